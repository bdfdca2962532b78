"""What of a pushed version can be kept."""

import json
import math

from turnout.core.errors import InvalidRequest
from turnout.registry.names import check_text
from turnout.registry.records import NewVersion
from turnout.registry.requirements import METRIC
from turnout.registry.rows import version_values
from turnout.routing.selectors import check_semantic_version


def check_new_version(new: NewVersion) -> None:
    """Raise InvalidRequest for what could not be found, compared or read back as it was said."""
    check_text(new.note, "note")
    if new.semantic_version is not None:
        check_semantic_version(new.semantic_version)
    for metric, value in new.claims.metrics.items():
        if not METRIC.fullmatch(metric):
            raise InvalidRequest(
                f"the metric {metric!r} cannot be named in a requirement; use no spaces and none of < > =",
                param="metrics",
            )
        if not math.isfinite(value):
            raise InvalidRequest(
                f"the metric {metric!r} is {value}; give a finite number, or leave it out", param="metrics"
            )
    values = version_values(new)
    for column in ("files", "facts", "claims", "signature", "flags"):
        _check_json(values[column], column)


def _check_json(value: object, column: str) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"the version's {column} cannot be written as JSON: {error}", param=column) from error
