"""`ApiError`: a refusal with its HTTP status, in the shape of each API's errors, and its entry in the OpenAPI document.

Under `/v1/messages` errors have Anthropic's shape, everywhere else OpenAI's.

Invariant 8: a message holds no key, no header and no traceback. Whoever raises it says what is wrong, where, and what
was expected.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel


class ApiError(Exception):
    """A refusal: HTTP status, OpenAI's `type` and `code`, the parameter concerned, seconds after which to try again."""

    def __init__(
        self, status: int, message: str, code: str, *, param: str | None = None, wait: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.wait = wait

    @property
    def kind(self) -> str:
        """OpenAI's name for errors of this status."""
        return _ERROR_TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")

    def body(self) -> Mapping[str, object]:
        """Return the body of the answer."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def headers(self) -> dict[str, str]:
        """Return the headers that go with it."""
        return {} if self.wait is None else {"Retry-After": str(max(1, round(self.wait)))}


_ERROR_TYPES = {
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


CONTEXT_LENGTH_CODE = "context_length_exceeded"
_ANTHROPIC_PATH = "/v1/messages"
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    410: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def anthropic_body(problem: ApiError) -> dict[str, object]:
    """Return an error in the shape of Anthropic's API, which has no nulls; `code` and `param` are ours."""
    kind = _ANTHROPIC_TYPES.get(problem.status, "invalid_request_error" if problem.status < 500 else "api_error")
    message = problem.message
    if problem.code == CONTEXT_LENGTH_CODE:  # by these words Claude Code knows that it should compact
        message = f"prompt is too long: {message}"
    fields: dict[str, object] = {"type": kind, "message": message, "code": problem.code}
    if problem.param is not None:
        fields["param"] = problem.param
    if problem.param == "thread":  # Anthropic's SDK reads these details, and goes on without a thread
        fields["details"] = {"error_code": "thread_unsupported_request", "unsupported": []}
    return {"type": "error", "error": fields}


def error_body_at(path: str, problem: ApiError) -> Mapping[str, object]:
    """Return an error in the shape of the API that this path belongs to."""
    if path == _ANTHROPIC_PATH or path.startswith(f"{_ANTHROPIC_PATH}/"):
        return anthropic_body(problem)
    return problem.body()


class ErrorInfo(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None


class ErrorBody(BaseModel):
    """A refusal, in OpenAI's shape."""

    error: ErrorInfo


class AnthropicErrorBody(BaseModel):
    """A refusal, in Anthropic's shape."""

    type: Literal["error"]
    error: ErrorInfo


_STATUS_DESCRIPTIONS = {
    400: "The request is not as expected",
    401: "No key, or none that opens anything",
    402: "A budget is used up",
    403: "The key may not do this",
    404: "There is no such thing, or it is another tenant's",
    409: "It is not in a state for this",
    410: "It was there, and is over or erased",
    413: "The body is too large",
    415: "The body is compressed in an unknown way",
    421: "The Host header names no host of this server",
    429: "Too many; see Retry-After",
    431: "The headers are too large",
    500: "An unforeseen error",
    502: "No worker gave an answer that stands",
    503: "Not now; see Retry-After",
    504: "No answer in time",
}
COMMON_STATUSES = (400, 401, 403, 413, 421, 429, 431, 500, 503)


def error_responses(*more: int, model: type[BaseModel] = ErrorBody) -> dict[int | str, dict[str, object]]:
    """Return the `responses` of a route: those that every route has, and these."""
    gone = (410,) if 404 in more else ()  # what can be absent can have been erased
    return {
        status: {"model": model, "description": _STATUS_DESCRIPTIONS[status]}
        for status in sorted({*COMMON_STATUSES, *more, *gone})
    }


SSE_CONTENT = {
    "schema": {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
        "description": "One server-sent event",
    }
}
