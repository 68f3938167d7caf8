"""The pause between two transactions is learned from what too early a start costs, and given up again."""

from fencepost.client.core.begin_delay import FIRST_S, LONGEST_S, PROBE_AFTER, BeginDelay


def play(delay: BeginDelay, count: int, markers_s: float, usual_s: float = 0.001) -> int:
    """Transactions one after the other on a broker whose markers take `markers_s`; how many met its 20 ms."""
    now, penalties = 100.0, 0
    for _ in range(count):
        ended, now = now, delay.due(now)
        delay.began(now)
        late = now - ended < markers_s
        penalties += late
        seconds = usual_s + 0.02 * late
        delay.acknowledged(seconds)
        now += seconds + 0.001
        delay.ended(now)
    return penalties


def test_a_broker_that_is_ready_at_once_is_not_waited_for() -> None:
    delay = BeginDelay()
    assert play(delay, 3000, markers_s=-1.0) == 0
    assert delay.pause_s == 0.0


def test_a_few_late_ones_are_enough_to_learn_it() -> None:
    delay = BeginDelay()
    assert play(delay, PROBE_AFTER, markers_s=0.0009) <= 2
    assert delay.pause_s == FIRST_S


def test_it_is_tried_with_less_now_and_then_and_never_grows_beyond_its_bound() -> None:
    delay = BeginDelay()
    play(delay, 100, markers_s=1.0)
    assert delay.pause_s == LONGEST_S
    assert play(delay, 5 * PROBE_AFTER, markers_s=-1.0) == 0
    assert delay.pause_s == 0.0


def test_programs_that_take_their_time_teach_nothing() -> None:
    delay = BeginDelay()
    delay.ended(10.0)
    assert delay.due(11.0) == 11.0
    delay.began(11.0)
    delay.acknowledged(0.5)
    assert delay.pause_s == 0.0
