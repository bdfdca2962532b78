"""What other threads say to the engine's thread. All immutable; order of sending is order of effect."""

from concurrent.futures import Future
from dataclasses import dataclass

from turnout.core.adapter import AdapterState
from turnout.core.engine import Listener
from turnout.core.identity import Digest
from turnout.core.request import Request


@dataclass(frozen=True, slots=True)
class Submit:
    """Serve a request."""

    request: Request
    listener: Listener


@dataclass(frozen=True, slots=True)
class Abort:
    """Drop a request."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Load:
    """Take an adapter's weights in."""

    state: AdapterState
    done: "Future[None]"


@dataclass(frozen=True, slots=True)
class Unload:
    """Let an adapter's weights go when their last request has ended."""

    digest: Digest
    done: "Future[None]"


@dataclass(frozen=True, slots=True)
class Close:
    """Fail what is left and end the thread."""


Message = Submit | Abort | Load | Unload | Close
