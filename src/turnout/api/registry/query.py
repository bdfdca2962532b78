"""What stands in the address of a request."""

from datetime import UTC, datetime, timedelta

from fastapi import Request
from fastapi.dependencies.models import Dependant

from turnout.core.durations import parse_duration
from turnout.core.errors import InvalidRequest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


async def refuse_strange(request: Request) -> None:
    """Raise InvalidRequest for a parameter that the endpoint does not know, or is given twice: it would go unheard.

    And for the character U+0000, which no database can look for.
    """
    sent = [name for name, _ in request.query_params.multi_items()]
    known = _parameters(request.scope["route"].dependant)
    for name in sent:
        if name not in known:
            raise InvalidRequest(f"unrecognized query parameter: {name}", param=name)
        if sent.count(name) > 1:
            raise InvalidRequest(f"the query parameter {name} is given more than once", param=name)
    if any("\0" in text for text in (request.url.path, request.scope["path"], *request.query_params.values())):
        raise InvalidRequest("the address holds the character U+0000; leave it out")


def instant(text: str, param: str) -> int:
    """Microseconds since 1970 of a time in ISO 8601 with its offset, such as `2026-03-01T00:00:00Z`."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidRequest(f"{text!r} is not a time; write it like 2026-03-01T00:00:00Z", param=param)
    return (time - _EPOCH) // _MICROSECOND


def span(text: str, param: str) -> timedelta:
    """A duration such as `1h`."""
    try:
        return timedelta(microseconds=parse_duration(text))
    except InvalidRequest as error:
        raise InvalidRequest(error.message, param=param) from error


def _parameters(dependant: Dependant) -> set[str]:
    names = {field.alias for field in dependant.query_params}
    return names.union(*map(_parameters, dependant.dependencies))
