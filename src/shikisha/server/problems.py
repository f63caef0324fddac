"""What an HTTP client is told when something cannot be done, in OpenAI's shape.

Invariant 8: a message holds no key, no header and no traceback; what nobody foresaw is a 500 that says only where to
look. Deliberately absent: texts for each route (whoever raises says what, where, and what was expected).
"""

from collections.abc import Mapping


class Problem(Exception):
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
        return _KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")

    def body(self) -> Mapping[str, object]:
        """Return the body of the answer."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def headers(self) -> dict[str, str]:
        """Return the headers that go with it."""
        return {} if self.wait is None else {"Retry-After": str(max(1, round(self.wait)))}


_KINDS = {
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
