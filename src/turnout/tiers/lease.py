"""The promise of weights to a request."""

from collections.abc import Callable


class Lease:
    """While it lasts, its weights are in the engine. It ends once; ending it again does no harm."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended: Callable[[], None] | None = ended

    def end(self) -> None:
        """The request is over."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()
