"""Where a request's time went, from its arrival at the HTTP layer to its last token."""

from dataclasses import asdict, dataclass

from turnout.core.events import Phases


@dataclass(frozen=True, slots=True)
class Timings:
    """The engine's phases, and what lies around them. Seconds.

    `resolve`: from arrival to the Route and the prompt's token ids; `total`: from arrival to the last token.
    """

    resolve: float
    engine: Phases
    total: float

    def by_phase(self) -> dict[str, float]:
        """Seconds of each phase, by the name it has in metrics."""
        return {"resolve": self.resolve, **asdict(self.engine), "total": self.total}

    def as_milliseconds(self) -> dict[str, float]:
        """The `timings` object of an answer: `<phase>_ms` with three decimals."""
        return {f"{phase}_ms": round(seconds * 1e3, 3) for phase, seconds in self.by_phase().items()}
