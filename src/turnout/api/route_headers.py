"""The headers that name what served a request."""

from urllib.parse import quote

from turnout.core.identity import Route

_PLAIN = "!#$&'()*+,/:;<=>?@[]^_`{|}~ "


def route_headers(route: Route) -> dict[str, str]:
    """X-Turnout-*: adapter (name@number), digest, and why. Names are percent-encoded where a header must be ASCII."""
    return {
        "X-Turnout-Adapter": quote(route.served_by, safe=_PLAIN),
        "X-Turnout-Digest": route.version.digest,
        "X-Turnout-Route-Reason": route.reason,
    }
