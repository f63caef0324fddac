"""What the OpenAPI document says of refusals: OpenAI's shape, for every status that a route may answer with.

Deliberately absent: the refusals themselves (`problems`).
"""

from pydantic import BaseModel


class ErrorShown(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class Refusal(BaseModel):
    """A refusal, in OpenAI's shape."""

    error: ErrorShown


_SAID = {
    400: "The request is not as expected",
    401: "No key, or none that opens anything",
    402: "A budget is used up",
    403: "The key may not do this",
    404: "There is no such thing, or it is another tenant's",
    409: "It is not in a state for this",
    410: "It was there, and is over or erased",
    413: "The body is too large",
    421: "The Host header names no host of this server",
    429: "Too many; see Retry-After",
    431: "The headers are too large",
    500: "An unforeseen error",
    502: "No worker gave an answer that stands",
    503: "Not now; see Retry-After",
    504: "No answer in time",
}
ALWAYS = (400, 401, 403, 413, 421, 429, 431, 500, 503)


def refusals(*more: int) -> dict[int | str, dict[str, object]]:
    """Return the `responses` of a route: those that every route has, and these."""
    gone = (410,) if 404 in more else ()  # what can be absent can have been erased
    return {status: {"model": Refusal, "description": _SAID[status]} for status in sorted({*ALWAYS, *more, *gone})}


SSE = {
    "schema": {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
        "description": "One server-sent event",
    }
}
