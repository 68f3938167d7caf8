"""A decision against a request of a consumer group's member."""

from fencepost.protocol.errors import ErrorCode


class Refused(Exception):
    """Nothing is changed; the client receives `code`, and the text if its API has a field for it."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
