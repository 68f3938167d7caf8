"""WriteTxnMarkers (27): append markers that end transactions on partitions, for brokers and for an operator's abort.

v0-2 are served; v2 carries the marker's transaction version (KIP-1228). The request bypasses the coordinator: the
marker ends the transaction on the partition whatever state the coordinator has. With the tag `only_hanging` (a
fencepost extension) a partition is rejected with INVALID_TXN_STATE if a coordinator owns the transaction, or may do so.
"""

from collections.abc import Mapping

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Reply, Response
from fencepost.broker.ports import Broker
from fencepost.broker.security.audit import audit
from fencepost.broker.security.checks import brokers_only
from fencepost.broker.security.log_names import principal_text, quoted
from fencepost.broker.security.principal import CLUSTER
from fencepost.broker.transactions.markers import Appended
from fencepost.coordinator.ports import Marker
from fencepost.coordinator.txn.causes import EXPLAINED, Cause, Reason
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from fencepost.protocol.topics import TopicPartition


def handle(node: Broker, request: WriteTxnMarkersRequest, context: RequestContext) -> Reply:
    """Write the markers in the order of the request; each is durable and visible before the answer."""
    if (refused := brokers_only(node, request, context)) is not None:
        return refused
    if context.session.principal == CLUSTER:
        return _write_of_coordinator(node, request.markers)
    return _write_all(node, request.markers, context)


def _write_of_coordinator(node: Broker, markers: list[WritableTxnMarker]) -> Reply:
    """The markers of another broker's coordinator, in one round of flushes."""
    appended = [node.markers.append(_marker_of(one), _partitions(one)) for one in markers]
    codes = [each.settled_now() for each in appended]
    found = [each for each in codes if each is not None]
    return _written(markers, found) if len(found) == len(codes) else _settle(markers, appended, codes)


async def _settle(
    markers: list[WritableTxnMarker],
    appended: list[Appended],
    codes: list[Mapping[TopicPartition, ErrorCode] | None],
) -> Response:
    pairs = zip(appended, codes, strict=True)
    return _written(markers, [await each.settled() if known is None else known for each, known in pairs])


def _written(markers: list[WritableTxnMarker], codes: list[Mapping[TopicPartition, ErrorCode]]) -> Response:
    return WriteTxnMarkersResponse(markers=[_result(one, each) for one, each in zip(markers, codes, strict=True)])


async def _write_all(node: Broker, markers: list[WritableTxnMarker], context: RequestContext) -> Response:
    return WriteTxnMarkersResponse(markers=[await _write(node, marker, context) for marker in markers])


def _marker_of(marker: WritableTxnMarker) -> Marker:
    return Marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
    )


def _partitions(marker: WritableTxnMarker) -> set[TopicPartition]:
    return {TopicPartition(topic.name, partition) for topic in marker.topics for partition in topic.partition_indexes}


async def _write(node: Broker, marker: WritableTxnMarker, context: RequestContext) -> WritableTxnMarkerResult:
    wanted, owned = _partitions(marker), set[TopicPartition]()
    if marker.only_hanging:
        owned = wanted - await node.hanging.hanging_of(wanted, marker.producer_id)
    codes = await node.markers.append(_marker_of(marker), wanted - owned).settled()
    answers = {**codes, **dict.fromkeys(owned, ErrorCode.INVALID_TXN_STATE)}
    _explain(node, marker, answers, owned, context)
    audit.warning(
        "MARKERS_WRITTEN principal=%s host=%s client_id=%s verdict=%s producer_id=%d epoch=%d partitions=%s",
        principal_text(context.session.principal),
        context.client_host,
        quoted(context.client_id or ""),
        "COMMIT" if marker.transaction_result else "ABORT",
        marker.producer_id,
        marker.producer_epoch,
        ",".join(f"{tp}:{answers.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR).name}" for tp in sorted(wanted)),
    )
    return _result(marker, answers)


def _result(marker: WritableTxnMarker, answers: Mapping[TopicPartition, ErrorCode]) -> WritableTxnMarkerResult:
    topics = [
        WritableTxnMarkerTopicResult(
            name=topic.name,
            partitions=[
                WritableTxnMarkerPartitionResult(
                    partition_index=partition,
                    error_code=answers.get(TopicPartition(topic.name, partition), ErrorCode.UNKNOWN_SERVER_ERROR),
                )
                for partition in topic.partition_indexes
            ],
        )
        for topic in marker.topics
    ]
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)


def _explain(
    node: Broker,
    marker: WritableTxnMarker,
    answers: dict[TopicPartition, ErrorCode],
    owned: set[TopicPartition],
    context: RequestContext,
) -> None:
    """Store why markers were rejected, if the code is one of `EXPLAINED`."""
    for tp, code in answers.items():
        if code in EXPLAINED:
            cause = (
                Cause(Reason.OWNED, f"{tp}: nothing hangs there: a coordinator owns it, or it has ended")
                if tp in owned
                else Cause(Reason.NEWER_EPOCH, f"{tp}: the producer is at a higher epoch there")
            )
            shown = (marker.producer_id, marker.producer_epoch)
            node.transactions.history.note(marker.producer_id, shown, code, cause, context)
