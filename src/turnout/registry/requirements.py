"""What a promotion requires of a version's metrics, such as `f1>=0.9`."""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from turnout.core.errors import InvalidRequest

METRIC = re.compile(r"[^\s<>=]{1,128}")
"""What a metric may be called, so that a requirement can name it."""

_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_REQUIREMENT = re.compile(rf"\s*({METRIC.pattern})\s*(>=|<=|==|>|<)\s*({_NUMBER})\s*")

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One comparison of a metric with a number."""

    metric: str
    comparison: str
    bound: float

    def __str__(self) -> str:
        return f"{self.metric}{self.comparison}{self.bound!r}"

    def fault(self, metrics: Mapping[str, float]) -> str | None:
        """What is wrong with these metrics, for people; None if they meet the requirement."""
        found = metrics.get(self.metric)
        if found is not None and _COMPARE[self.comparison](found, self.bound):
            return None
        return f"{self.metric} must be {self.comparison} {self.bound!r}, found {'missing' if found is None else found}"


def parse_requirement(text: str) -> Requirement:
    """Read `metric op number`, op one of >= > <= < ==. Raises InvalidRequest."""
    match = _REQUIREMENT.fullmatch(text)
    if match is None or not math.isfinite(float(match[3])):
        raise InvalidRequest(
            f"the requirement {text!r} cannot be read; write a metric, one of >= > <= < ==, and a number: f1>=0.9",
            param="requirements",
        )
    return Requirement(match[1], match[2], float(match[3]))
