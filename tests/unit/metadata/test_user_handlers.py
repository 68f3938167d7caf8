"""SCRAM credentials of users: APIs 50 and 51 (KIP-554), by the rules of Kafka's ScramControlManager and ScramImage."""

from typing import Any

from fencepost.coordinator.metadata.image import METADATA_VERSION, ScramUser
from fencepost.coordinator.metadata.user_controller import CredentialUpsertion
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.scram import client_key_of, salted_password, server_key_of, stored_key_of
from tests.unit.metadata.wire import NodeDouble, ask, messages, node

SHA_256, SHA_512 = 1, 2
TWICE = (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


async def alter(
    on: NodeDouble,
    upsert: list[tuple[str, int, int]] = [],  # noqa: B006 - never changed
    delete: list[tuple[str, int]] = [],  # noqa: B006 - never changed
    password: str = "pencil",
) -> dict[str, Any]:
    m = messages(51)
    request = m.AlterUserScramCredentialsRequest(
        deletions=[m.ScramCredentialDeletion(name=name, mechanism=kind) for name, kind in delete],
        upsertions=[
            m.ScramCredentialUpsertion(
                name=name,
                mechanism=kind,
                iterations=iterations,
                salt=b"salt",
                salted_password=salted_password("SCRAM-SHA-256", password.encode(), b"salt", 4096),
            )
            for name, kind, iterations in upsert
        ],
    )
    response = await ask(on, 51, 0, request)
    assert len({one.user for one in response.results}) == len(response.results)
    return {one.user: (one.error_code, one.error_message) for one in response.results}


async def describe(on: NodeDouble, *users: str) -> dict[str, Any]:
    m = messages(50)
    request = m.DescribeUserScramCredentialsRequest(users=[m.UserName(name=name) for name in users] if users else None)
    response = await ask(on, 50, 0, request)
    assert response.error_code == 0
    return {
        one.user: [(info.mechanism, info.iterations) for info in one.credential_infos]
        if not one.error_code
        else (one.error_code, one.error_message)
        for one in response.results
    }


async def test_credentials_are_set_described_and_deleted() -> None:
    on = await node()
    assert await alter(on, [("alice", SHA_256, 4096), ("bob", SHA_512, 16_384)]) == {
        "alice": (0, None),
        "bob": (0, None),
    }
    assert await alter(on, [("alice", SHA_512, 8192)]) == {"alice": (0, None)}
    assert await describe(on) == {"alice": [(1, 4096), (2, 8192)], "bob": [(2, 16_384)]}
    assert await alter(on, delete=[("alice", SHA_256)]) == {"alice": (0, None)}
    assert await describe(on, "alice") == {"alice": [(2, 8192)]}


async def test_only_keys_are_kept() -> None:
    """RFC 5802: StoredKey and ServerKey, from which the password does not follow."""
    on = await node()
    await alter(on, [("alice", SHA_256, 4096)])
    salted = salted_password("SCRAM-SHA-256", b"pencil", b"salt", 4096)
    kept = on.metadata.image.scram[ScramUser("alice", SHA_256)]
    assert kept.stored_key == stored_key_of("SCRAM-SHA-256", client_key_of("SCRAM-SHA-256", salted))
    assert kept.server_key == server_key_of("SCRAM-SHA-256", salted)
    assert salted not in kept
    assert str(kept.stored_key) not in repr(kept)
    assert "pencil" not in repr(CredentialUpsertion("alice", SHA_256, 4096, b"salt", b"pencil"))


async def test_each_user_has_an_outcome_of_its_own() -> None:
    on = await node()
    assert await alter(
        on,
        [("", SHA_256, 4096), ("a", 0, 4096), ("b", 3, 4096), ("c", SHA_256, 4095), ("d", SHA_256, 16_385),
         ("fine", SHA_256, 4096)],
        [("e", SHA_256)],
    ) == {
        "": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        "a": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        "b": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        "c": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        "d": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        "e": (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
        "fine": (0, None),
    }  # fmt: skip
    assert list(await describe(on)) == ["fine"]


async def test_a_user_who_is_named_twice_is_not_changed() -> None:
    """Also for two mechanisms, and for a deletion and an upsertion: ScramControlManager.alterCredentials."""
    on = await node()
    await alter(on, [("a", SHA_256, 4096), ("b", SHA_256, 4096)])
    assert await alter(
        on,
        [("a", SHA_256, 8192), ("c", SHA_256, 4096), ("c", SHA_512, 4096), ("c", SHA_512, 4096)],
        [("a", SHA_256), ("b", SHA_256), ("b", SHA_512)],
    ) == {"a": TWICE, "b": TWICE, "c": TWICE}
    assert await describe(on) == {"a": [(1, 4096)], "b": [(1, 4096)]}


async def test_describing_names_what_is_wrong_with_each_user() -> None:
    on = await node()
    await alter(on, [("alice", SHA_256, 4096)])
    assert await describe(on, "alice", "bob", "eve", "eve") == {
        "alice": [(1, 4096)],
        "bob": (
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to describe a user credential that does not exist: bob",
        ),
        "eve": (
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: eve",
        ),
    }


async def test_an_older_metadata_version_has_no_scram_users() -> None:
    """Level 11 (3.5-IV2) brought them."""
    on = await node()
    m = messages(57)
    lower = m.FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=10, upgrade_type=3)
    await ask(on, 57, 1, m.UpdateFeaturesRequest(feature_updates=[lower]))
    assert await alter(on, [("alice", SHA_256, 4096)]) == {
        "alice": (ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    }
