"""What an error of a model endpoint means: its cause, its message, the parameter that it names, and how long to wait.

The one place that reads errors of providers, whatever shape they have, under an error status, in a stream or in a whole
reply. A provider's words come from its profile; the order is: codes and types, phrases of the message, the status. A
cause decides the kind of the fault, because a status alone does not: quotas come as 429, overflows as 500. Invariants:
an error body is foreign (only a bounded part of it is read) and its message is redacted; the message of a refused key
is left out, since it may repeat the key. Deliberately absent: what follows from a cause (`engine.attempt`, `step`, the
server's doors).
"""

import json
import re
from collections.abc import Iterator, Mapping

from shikisha.core.call import TOO_DEEP_CODE
from shikisha.core.errors import FaultCause, FaultKind, WorkerError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.secrets import SecretStore
from shikisha.workers.endpoint import redact_and_clip, retry_after, stated_seconds, status_error
from shikisha.workers.provider_profile import ProviderProfile, vocabulary

_MAX_VALUES = 200  # of an error body that are looked at
_MAX_DEPTH = 6
_CODE_KEYS = frozenset({"code", "type", "status", "reason", "__type", "error_code", "error_type"})
_TEXT_KEYS = frozenset(
    {"message", "msg", "detail", "details", "error", "error_message", "error_msg", "status_msg", "raw"}
)
_KINDS = {
    FaultCause.TOO_LONG: FaultKind.BAD_REQUEST,
    FaultCause.FILTERED: FaultKind.REFUSED,
    FaultCause.PARAMETER: FaultKind.BAD_REQUEST,
    FaultCause.QUOTA: FaultKind.AUTH,
    FaultCause.THROTTLED: FaultKind.RATE_LIMITED,
    FaultCause.OVERLOADED: FaultKind.SERVER,
    FaultCause.SCHEMA: FaultKind.BAD_REQUEST,
    FaultCause.TOOL_LIMITS: FaultKind.BAD_REQUEST,
    FaultCause.AUTH: FaultKind.AUTH,
    FaultCause.NOT_FOUND: FaultKind.BAD_REQUEST,
}
_BY_STATUS = {
    401: FaultCause.AUTH,
    402: FaultCause.QUOTA,
    403: FaultCause.AUTH,
    404: FaultCause.NOT_FOUND,
    413: FaultCause.TOO_LONG,
    429: FaultCause.THROTTLED,
    503: FaultCause.OVERLOADED,
    529: FaultCause.OVERLOADED,
}
_STATUSES = {  # for an error that comes under status 200 and states none
    FaultCause.THROTTLED: 429,
    FaultCause.OVERLOADED: 503,
    FaultCause.AUTH: 401,
    FaultCause.QUOTA: 402,
}
_DAILY = re.compile(r"per_?day|daily|per_?month|monthly", re.IGNORECASE)
_WAIT_TEXT = re.compile(
    r"(?:try again|retry|available|reset\w*|wait)\b[^.\d]{0,40}?(?:in|after|for)?\s*((?:\d+(?:\.\d+)?\s*"
    r"(?:ms|milliseconds?|seconds?|secs?|s|minutes?|mins?|m|hours?|h|d|days?)(?![a-z])\s*)+)",
    re.IGNORECASE,
)
_PARAM_TEXT = re.compile(
    r"(?:unrecognized request arguments? supplied|(?:unsupported|unknown|unexpected|invalid|unrecognized) "
    r"(?:parameter|argument|field|value|keyword argument|name)s?|does not support(?: the)? parameters?|"
    r"extra inputs are not permitted)\W{1,4}([A-Za-z_][\w.\[\]]{0,60})|"
    r"[`'\"]?([a-z_]{3,40})[`'\"]? (?:is not supported|does not support|is not permitted)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class StatedError:
    """What an error body says: messages joined, codes and types in lower case, the parameter, seconds to wait."""

    message: str = ""
    codes: tuple[str, ...] = ()
    param: str = ""
    wait: float | None = None
    status: int | None = None


def stated_error(body: object) -> StatedError:
    """Return what a body says that was read as JSON, of any known shape; a text is its message."""
    if isinstance(body, str):
        return StatedError(body, wait=_wait_in_text(body))
    texts: list[str] = []
    codes: list[str] = []
    param, wait, status, daily = "", None, None, False
    for path, value in _leaves(body):
        name = path[-1] if path else ""
        if name in _CODE_KEYS and isinstance(value, str | int) and not isinstance(value, bool):
            codes.append(str(value).strip().casefold()[:100])
            if status is None and str(value).isdecimal() and 400 <= int(str(value)[:9]) < 600:
                status = int(value)
        elif name in _TEXT_KEYS and isinstance(value, str):
            texts.append(value)
        elif name in ("param", "loc", "field") and isinstance(value, str) and value:
            param = param or value
        elif name == "quotaId" and isinstance(value, str):
            daily = daily or bool(_DAILY.search(value))
        if wait is None and any(".".join(path).endswith(each) for each in vocabulary().waits):
            wait = stated_seconds(value, name)
    message = "; ".join(dict.fromkeys(text for text in texts if text.strip()))
    if daily:  # Google has one code for both
        codes.insert(0, "insufficient_quota")
    return StatedError(message, tuple(codes), param, wait if wait is not None else _wait_in_text(message), status)


def _leaves(body: object) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield the values of a body with their paths, the outermost first, as many as are looked at."""
    waiting: list[tuple[tuple[str, ...], object]] = [((), body)]
    for count, (path, value) in enumerate(waiting):
        if count > _MAX_VALUES:
            return
        if isinstance(value, str) and path and path[-1] in _TEXT_KEYS and value.lstrip()[:1] in ("{", "["):
            value = _loads(value)  # what a gateway's own provider said
        if len(path) < _MAX_DEPTH and isinstance(value, Mapping):
            waiting += [((*path, str(name)), inner) for name, inner in list(value.items())[:_MAX_VALUES]]
        elif len(path) < _MAX_DEPTH and isinstance(value, list):
            if path[-1:] == ("loc",):  # FastAPI's way to a field
                yield path, ".".join(str(each) for each in value if each != "body")
            waiting += [(path, inner) for inner in value[:_MAX_VALUES]]
        else:
            yield path, value


def _loads(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _wait_in_text(message: str) -> float | None:
    found = _WAIT_TEXT.search(message[:4_000])
    return None if found is None else stated_seconds(found[1], "")


def read_error_body(raw: bytes) -> tuple[StatedError, object]:
    """Return what the body of an error status says, and the usage that it states."""
    body = _loads(raw.decode(errors="replace"))
    usage = body.get("usage") if isinstance(body, Mapping) else None
    error = stated_error(body)
    return (error if error.message else replace(error, message=raw.decode(errors="replace"))), usage


def cause_of(error: StatedError, status: int, profile: ProviderProfile) -> FaultCause:
    """Return why an endpoint refused a request."""
    codes, stated = profile.error_codes, [code for code in error.codes if code]
    found = next((codes[code] for code in stated if code in codes), FaultCause.UNKNOWN)
    if found in (FaultCause.UNKNOWN, FaultCause.PARAMETER, FaultCause.THROTTLED):
        said = next((cause for phrase, cause in vocabulary().phrases if phrase.search(error.message[:8_000])), None)
        # The same words stand for a minute's limit where a wait is stated beside them.
        if said is not None and not (said is FaultCause.QUOTA and error.wait is not None):
            found = said if found is FaultCause.UNKNOWN or said is not FaultCause.PARAMETER else found
    if found is FaultCause.PARAMETER and error.param.startswith("tools") and "_above_max_length" in " ".join(stated):
        return FaultCause.TOOL_LIMITS
    if found is FaultCause.UNKNOWN:
        found = _BY_STATUS.get(status, FaultCause.UNKNOWN)
    if found is FaultCause.UNKNOWN and status in (400, 422) and (error.param or _PARAM_TEXT.search(error.message)):
        return FaultCause.PARAMETER
    return found


def model_fault(
    status: int | None,
    headers: Mapping[str, str],
    error: StatedError,
    secret_store: SecretStore,
    profile: ProviderProfile,
) -> WorkerError:
    """Return the fault of an error of a model endpoint; `status` None: it came under a status of success."""
    known = status if status is not None else error.status
    cause = cause_of(error, known or 0, profile)
    if status is None and TOO_DEEP_CODE in error.codes:
        known = 400
    code = TOO_DEEP_CODE if TOO_DEEP_CODE in error.codes else ""
    known = known or _STATUSES.get(cause, 400 if cause is not FaultCause.UNKNOWN else 0)
    if not known:
        detail = redact_and_clip(error.message, secret_store)
        return WorkerError(FaultKind.SERVER, f"the reply states an error: {detail}")
    fault = status_error(known, headers, error.message, secret_store, code).fault
    if fault.kind is FaultKind.NO_ANSWER or fault.kind is FaultKind.TOO_DEEP:
        return WorkerError.of(fault)
    kind = _KINDS.get(cause, fault.kind)
    said = fault.message
    if cause is FaultCause.QUOTA and known not in (401, 402, 403):
        said = f"{said} (the account has no credit)"
    param = error.param
    if cause is FaultCause.PARAMETER and not param and (found := _PARAM_TEXT.search(error.message)):
        param = found[1] or found[2]
    wait = retry_after(headers, error.wait)
    waits = kind in (FaultKind.RATE_LIMITED, FaultKind.SERVER)
    return WorkerError.of(
        replace(fault, kind=kind, message=said, stated=cause, param=param, retry_after=wait if waits else None)
    )
