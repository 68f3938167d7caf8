"""What goes wrong in a world of several cores: blows to cores, and the weather between them."""

from random import Random
from typing import Literal, NamedTuple, Protocol

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.messages.api27_write_txn_markers import WriteTxnMarkersRequest
from fencepost.protocol.registry import API_BY_KEY
from tests.kit.sim_network import Fate, Request
from tests.simulation.weather import SeededWeather

Kind = Literal[
    "kill",
    "power cut",
    "power cut of all",
    "restart",
    "controller down",
    "clock jump",
    "slow flushes",
    "sender dies",
    "sender dies, marker late",
    "receiver dies",
    "receiver dies, marker written",
    "kill amid a move",
    "power cut amid a move",
    "moves fail",
]
KINDS: tuple[Kind, ...] = (
    "kill",
    "power cut",
    "power cut of all",
    "restart",
    "controller down",
    "clock jump",
    "slow flushes",
    "sender dies",
    "sender dies, marker late",
    "sender dies, marker late",
    "receiver dies",
    "receiver dies, marker written",
)
MOVE_KINDS: tuple[Kind, ...] = ("kill amid a move", "kill amid a move", "power cut amid a move", "moves fail")
"""In worlds in which partitions move."""


class Event(NamedTuple):
    """One blow; those of markers wait for the next request with markers."""

    at_seconds: float
    kind: Kind
    core: int
    after_calls: int
    after_passes: int
    amid_flushes: bool
    amount: float
    down_seconds: float


class World(Protocol):
    """What the weather between cores needs of its world."""

    weather: SeededWeather

    def markers_leave(self, request: Request, receiver: int) -> Fate | None:
        """A request with markers leaves a core: a blow may have waited for that. What becomes of it then."""


class CoreWeather:
    """What becomes of requests between cores: worse than the weather of clients, above all for markers.

    A copy of a TV1 marker never comes later than its answer: it would end the next transaction, which has the same
    epoch, with every broker. Real cores do not send it again before the first was read or its reader has died.
    """

    def __init__(self, world: World, receiver: int, random: Random) -> None:
        self._world = world
        self._receiver = receiver
        self._random = random
        self._weather = SeededWeather(random)
        self._bad = random.choice((0.0, 0.1, 0.3))
        """The probability that something becomes of a request with markers."""
        self._latest = random.choice((0.05, 0.5, 4.0))

    def dial(self, client_id: str) -> Fate:
        self._weather.calm = self._world.weather.calm
        return self._weather.dial(client_id)

    def request(self, request: Request) -> Fate:
        self._weather.calm = self._world.weather.calm
        if request.api_key != ApiKey.WRITE_TXN_MARKERS:
            return self._weather.request(request)
        random, delay = self._random, self._weather.request(request).delay_seconds
        if self._world.weather.calm:
            return Fate(delay)
        version = min(marker.transaction_version for marker in markers_in(request).markers)
        struck = self._world.markers_leave(request, self._receiver)
        if struck is not None:
            return struck
        if random.random() >= self._bad:
            return Fate(delay)
        cut = random.choice(("before", "after", None))
        return Fate(delay, cut, None if version < 2 else random.choice((None, random.uniform(0, self._latest))))

    def answer(self, request: Request) -> Fate:
        return self._weather.answer(request)


def markers_in(request: Request) -> WriteTxnMarkersRequest:
    """The markers of a WriteTxnMarkers request."""
    body = memoryview(request.data)[4:]
    header = read_request_header(body)
    found: WriteTxnMarkersRequest = API_BY_KEY[request.api_key].request.decode(
        body, request.api_version, header.body_start
    )
    return found


def blow(random: Random, seconds: float, cores: int, *, moves: bool) -> Event:
    """A blow to one of the cores, within these seconds; if partitions move, mostly amid moves."""
    return Event(
        at_seconds=random.uniform(0.1, seconds),
        kind=random.choice((*KINDS, *3 * MOVE_KINDS) if moves else KINDS),
        core=random.randrange(cores),
        after_calls=random.randint(1, 30),
        after_passes=random.choice((0, 0, 1, 2, 3, 5, 8, 13)),
        amid_flushes=random.random() < 0.5,
        amount=random.uniform(0.1, 2.0),
        down_seconds=random.choice((0.0, 0.1, 1.0)),
    )
