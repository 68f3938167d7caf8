"""Producer ids for every broker of a cluster: only the controller, whose log reserves them, gives them out."""

from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.place import Place
from fencepost.coordinator.ports import LogWriteFailed, ProducerIdSource
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdRequest

INIT_PRODUCER_ID_VERSION = 4


class RemoteProducerIds:
    """A `ProducerIdSource` that asks the controller, unless that is this broker.

    It asks as a client without a transactional id does. A new id is needed once for each producer, so that a request
    for each costs little.
    """

    def __init__(self, place: Place, own: ProducerIdSource) -> None:
        self._place = place
        self._own = own

    async def next_producer_id(self) -> int:
        """A new producer id. Raises LogWriteFailed, with NOT_CONTROLLER if no controller can be asked."""
        place = self._place
        if place.is_controller:
            return await self._own.next_producer_id()
        if place.controller_id in (None, place.node_id):
            raise LogWriteFailed(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        try:
            answer = await place.links.ask(place.controller_id, request, INIT_PRODUCER_ID_VERSION)
        except PeerUnavailable as error:
            raise LogWriteFailed(ErrorCode.NOT_CONTROLLER, f"the controller gives no producer ids: {error}") from error
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            raise LogWriteFailed(ErrorCode.NOT_CONTROLLER, f"the controller gives no producer ids: {code.name}")
        producer_id: int = answer.producer_id
        return producer_id
