"""SCRAM (RFC 5802, RFC 7677): both sides prove that they know a password without sending it."""

import base64
import hmac
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from fencepost.broker.security.log_names import quoted
from fencepost.broker.security.sasl.exchange import Login, LoginRefused, text_of
from fencepost.protocol.scram import HASHES, ITERATIONS, MIN_ITERATIONS, SALT_BYTES, sign, stored_key_of, xor

_SASL_NAME = r"(?:[^\x00=,]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^\x00,]+)*"
_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization_id>{_SASL_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_SASL_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


class Credential(Protocol):
    """What verifies a password, as the metadata has it."""

    @property
    def salt(self) -> bytes: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...


class _Decoy(NamedTuple):
    """The credential of a user who does not exist: no password verifies with it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class Form(NamedTuple):
    """What a client sees of a credential. The default is that of credentials that `fencepost user` makes."""

    iterations: int = ITERATIONS
    salt_bytes: int = SALT_BYTES


def usual_form(credentials: Iterable[Credential]) -> Form:
    forms = Counter(Form(one.iterations, len(one.salt)) for one in credentials)
    return max(forms, key=lambda form: (forms[form], form), default=Form())


class ScramCredentials:
    """The credentials of one mechanism.

    An unknown user gets a credential, too, of the usual `form`. It is the same one for a name as long as `key` is
    the same. So neither the steps of a login nor their time show whether a user exists.
    """

    def __init__(
        self, mechanism: str, find: Callable[[str], Credential | None], key: bytes, form: Callable[[], Form] = Form
    ) -> None:
        self.mechanism = mechanism
        self._find = find
        self._key = key
        self._form = form

    def of(self, name: str) -> tuple[Credential, bool]:
        """A credential, and whether the user exists."""
        decoy = self._decoy(name)  # also for users who exist: both take the same time
        found = self._find(name)
        return (decoy, False) if found is None else (found, True)

    def _decoy(self, name: str) -> Credential:
        hashed = HASHES[self.mechanism]
        salt, stored, server = (
            hmac.digest(self._key, f"{purpose} {self.mechanism} {name}".encode(), hashed)
            for purpose in ("salt", "stored", "server")
        )
        form = self._form()
        return _Decoy((salt * 8)[: form.salt_bytes], stored, server, form.iterations)


class ScramExchange:
    """One login with SCRAM. `nonce` must be fresh, unpredictable and printable, without commas."""

    def __init__(self, credentials: ScramCredentials, nonce: str) -> None:
        self.login: Login | None = None
        self.rejected: LoginRefused | None = None
        self._mechanism = credentials.mechanism
        self._credentials = credentials
        self._nonce = nonce
        self._next: Callable[[str], bytes] = self._challenge

    def step(self, message: bytes) -> bytes:
        step, self._next = self._next, self._refuse
        return step(text_of(message, self._mechanism))

    def _challenge(self, message: str) -> bytes:
        found = _FIRST.fullmatch(message)
        if found is None:
            raise LoginRefused(f"the client's first {self._mechanism} message is malformed")
        name = found["name"].replace("=2C", ",").replace("=3D", "=")
        if ",tokenauth=true" in f"{found['extensions']},".lower():
            raise LoginRefused(f"delegation tokens are not supported user={quoted(name)}")
        if found["authorization_id"] not in (None, found["name"]):
            why = "Client requested an authorization id that is different from username"
            raise LoginRefused(f"{why} user={quoted(name)}", f"Authentication failed: {why}")
        self._credential, self._exists = self._credentials.of(name)
        if self._credential.iterations < MIN_ITERATIONS:
            raise LoginRefused(f"the credential has fewer than {MIN_ITERATIONS} iterations user={quoted(name)}")
        self._name = name
        self._header = found["header"].encode()
        self._both_nonces = found["nonce"] + self._nonce
        salt = base64.b64encode(self._credential.salt).decode()
        challenge = f"r={self._both_nonces},s={salt},i={self._credential.iterations}".encode()
        self._exchanged = found["bare"].encode() + b"," + challenge + b","
        self._next = self._verify
        return challenge

    def _verify(self, message: str) -> bytes:
        """Check the client's proof. Unknown users and wrong passwords take the same steps."""
        found = _FINAL.fullmatch(message)
        if found is None:
            raise LoginRefused(f"the client's final {self._mechanism} message is malformed user={quoted(self._name)}")
        if found["nonce"] != self._both_nonces or base64.b64decode(found["binding"]) != self._header:
            raise LoginRefused(
                f"the nonce in the final {self._mechanism} message is of another exchange; update librdkafka if it is"
                f" older than 2.6.1 user={quoted(self._name)}"
            )
        mechanism, credential = self._mechanism, self._credential
        exchanged = self._exchanged + found["without_proof"].encode()
        signature = sign(mechanism, credential.stored_key, exchanged)
        proof = base64.b64decode(found["proof"])
        if len(proof) != len(signature):
            raise LoginRefused(f"the {mechanism} proof has a wrong length user={quoted(self._name)}")
        stored_key = stored_key_of(mechanism, xor(proof, signature))
        is_right = hmac.compare_digest(stored_key, credential.stored_key)
        answer = b"v=" + base64.b64encode(sign(mechanism, credential.server_key, exchanged))
        if not (is_right and self._exists):
            raise LoginRefused(f"unknown user or wrong password user={quoted(self._name)}")
        self.login = Login(self._name)
        return answer

    def _refuse(self, _message: str) -> bytes:
        raise LoginRefused(f"a {self._mechanism} message after the end of the exchange")
