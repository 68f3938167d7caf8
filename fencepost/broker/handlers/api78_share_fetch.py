"""ShareFetch (78): acquire records for a member of a share group, and take its acknowledgements of others (KIP-932).

v1-2 are served. v2 brings the acquire mode (KIP-1206) and renewals (KIP-1222): a request that renews locks reads
nothing, so that its answer does not come after the locks' end. The tags `delays` and `delay_ms` are ours
(docs/decisions/0016-tagged-fields.md).
"""

from collections.abc import Generator, Mapping, Sequence

import trio

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Reply
from fencepost.broker.ports import Broker
from fencepost.broker.share.fetch import WAIT_MS_MAX, ShareFetch
from fencepost.broker.share.requests import (
    RENEW_SINCE,
    STEP_PARTITIONS,
    Acknowledgements,
    Answer,
    ReleasingBatch,
    batches_of,
    by_topic,
    in_steps,
    is_member_id,
    name_leaders,
    names_in_steps,
    pause_in,
)
from fencepost.broker.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MemberKey,
    ShareSession,
    ShareSessionError,
    TopicIdPartition,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api78_share_fetch import (
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)


def handle(node: Broker, request: ShareFetchRequest, context: RequestContext) -> Reply:
    """Check the request and its session; the rest may wait."""
    if not node.share_protocol:
        return ShareFetchResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if request.group_id is None or not is_member_id(request.member_id):
        return _invalid("group id" if request.group_id is None else "member id")
    is_renewal = context.api_version >= RENEW_SINCE and request.is_renew_ack
    if is_renewal and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        return ShareFetchResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="max_bytes, min_bytes, max_records and max_wait_ms must be 0 if is_renew_ack is true",
        )
    if request.share_acquire_mode not in (0, 1):
        return _invalid("share acquire mode")
    member = MemberKey(request.group_id, request.member_id or "")
    asked = batches_of(request.topics)
    acknowledged = {part: batches for part, batches in asked.items() if batches}
    forgotten = [
        TopicIdPartition(topic.topic_id, number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]
    sessions = node.shares.sessions
    try:
        if request.share_session_epoch == INITIAL_EPOCH:
            if acknowledged:
                return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
            session = sessions.begin(member, asked, context.session)
        elif request.share_session_epoch == FINAL_EPOCH:
            session = sessions.get(member)
        else:
            session = sessions.continued(member, request.share_session_epoch)
            session.update(asked, forgotten)
    except ShareSessionError as error:
        refusal = ShareFetchResponse(error_code=error.code)
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return _wait(refusal, min(max(request.max_wait_ms, 0), WAIT_MS_MAX))
        return refusal
    settings = node.share_settings(request.group_id)
    session.check_by(
        (
            node.metadata.image.topics_by_id,
            node.place.leads,
            node.authorizer,
            context.principal,
            context.client_host,
            settings,
        )
    )
    pause_in(node, context, len(session.partitions) + len(acknowledged))
    return _answer(node, request, context, session, member, acknowledged, is_renewal=is_renewal)


async def _answer(
    node: Broker,
    request: ShareFetchRequest,
    context: RequestContext,
    session: ShareSession,
    member: MemberKey,
    acknowledged: Mapping[TopicIdPartition, Sequence[ReleasingBatch]],
    *,
    is_renewal: bool,
) -> ShareFetchResponse:
    reads = not is_renewal and request.share_session_epoch != FINAL_EPOCH
    wanted = dict.fromkeys([*session.ready, *session.to_check]) if reads else {}
    large = context.large
    names = await in_steps(large, names_in_steps(node, context, [*wanted, *acknowledged]))
    acknowledgements = Acknowledgements(
        node.shares,
        member,
        acknowledged,
        names,
        may_renew=context.api_version >= RENEW_SINCE,
        is_renewal=is_renewal,
    )
    await in_steps(large, acknowledgements.take())
    fetch = ShareFetch(node, node.shares, request, member, session, {part: names[part] for part in wanted})
    await fetch.run(large)
    acknowledged_with = await acknowledgements.answers()
    answers = await in_steps(large, _answers(request, session, fetch.answers, acknowledged_with))
    if request.share_session_epoch == FINAL_EPOCH:
        node.shares.leave(member, node.shares.sessions.end(member))
    leaders = name_leaders(node, context, answers, NodeEndpoint)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=node.share_settings(request.group_id or "").record_lock_duration_ms,
        responses=[
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=parts)
            for topic_id, parts in by_topic(answers).items()
        ],
        node_endpoints=leaders,
        delays=request.delays,
    )


def _answers(
    request: ShareFetchRequest,
    session: ShareSession,
    fetched: Mapping[TopicIdPartition, PartitionData],
    acknowledged: Mapping[TopicIdPartition, Answer],
) -> Generator[None, None, dict[TopicIdPartition, PartitionData]]:
    """What is answered for each partition that has something to say, or that the session waits for."""
    answers = dict(fetched)
    if request.share_session_epoch != FINAL_EPOCH:
        named = session.named
        session.named = {part: None for part, answer in fetched.items() if answer.error_code}
        for number, part in enumerate(named, 1):
            answers.setdefault(part, PartitionData(partition_index=part.partition, records=b""))
            if number % STEP_PARTITIONS == 0:
                yield
    for number, (part, (error, message)) in enumerate(acknowledged.items(), 1):
        answer = answers.setdefault(part, PartitionData(partition_index=part.partition, records=b""))
        answer.acknowledge_error_code, answer.acknowledge_error_message = error, message
        if number % STEP_PARTITIONS == 0:
            yield
    return answers


def _invalid(what: str) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=f"Invalid {what} in the request.")


async def _wait(refusal: ShareFetchResponse, wait_ms: int) -> ShareFetchResponse:
    """Refuse late, as Kafka does: the member asks again at once."""
    await trio.sleep(wait_ms / 1000)
    return refusal
