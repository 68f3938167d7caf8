"""Our share partition beside Kafka's own, in plays that chance made: share_plays.py wrote what Kafka 4.4.0 answers."""

from tests.golden.share_lines import Lines
from tests.golden.share_plays import RECORDED, checksum


def test_the_same_answers_as_kafkas_share_partition() -> None:
    """kafka.server.share.SharePartition: records acquired, refusals, writes, dead letters, offsets, every state."""
    ours = Lines()
    plays = answers = 0
    for number, recorded in enumerate(RECORDED.read_text(encoding="utf-8").splitlines(), 1):
        theirs, line = recorded.split(" ", 1)
        answer = ours.answer(line)
        assert checksum(answer) == theirs, (
            f"line {number}, {line!r}: we answer {answer!r}; share_plays.py shows Kafka's"
        )
        plays += line == "play"
        answers += 1
    assert plays == 250
    assert answers > 4500
