"""The one place that says which fault an HTTP status other than success is.

Invariant: no key and no header is in a message; what an endpoint says of an authorisation failure is left out, since
endpoints like to repeat parts of the key in it. Deliberately absent: any HTTP library, and what fails before there is
a status (`wire`, `mcp_http`).
"""

import json
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import isfinite
from time import time

from shikisha.depth import TOO_DEEP
from shikisha.errors import FaultKind, WorkerError
from shikisha.secrets import Vault
from shikisha.workers.wording import clip


def refusal(status: int, headers: Mapping[str, str], detail: str, vault: Vault, code: str = "") -> WorkerError:
    """Say which fault a status is; `detail` is what the endpoint says about it, `code` the word that it has for it."""
    said = f"status {status}: {clip(detail, vault)}" if detail else f"status {status}"
    if code == TOO_DEEP and status == 400:
        return WorkerError(FaultKind.TOO_DEEP, said)
    if status >= 500 and headers.get("x-should-retry", "").strip().lower() == "false":
        return WorkerError(FaultKind.NO_ANSWER, f"{said} (the endpoint says that trying again is no use)")
    match status:
        case 401 | 403:
            return WorkerError(FaultKind.AUTH, f"status {status}: the key is missing, wrong or not allowed to do this")
        case 402:
            return WorkerError(FaultKind.AUTH, f"{said} (the account has no credit)")
        case 408:  # the endpoint did not wait for our request: nothing was performed
            return WorkerError(FaultKind.TIMEOUT, said, tokens=0, dollars=0.0)
        case 409 | 425:
            return WorkerError(FaultKind.SERVER, said, retry_after=retry_after(headers))
        case 429:
            return WorkerError(FaultKind.RATE_LIMITED, said, retry_after=retry_after(headers))
        case _ if status >= 500:
            return WorkerError(FaultKind.SERVER, said, retry_after=retry_after(headers))
        case _ if 300 <= status < 400:
            return WorkerError(FaultKind.BAD_REQUEST, f"status {status}: redirects are not followed")
        case _:
            return WorkerError(FaultKind.BAD_REQUEST, said)


def stated_code(body: bytes) -> str:
    """Return the code that an error's body states in OpenAI's shape; empty without one."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    error = found.get("error") if isinstance(found, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) else ""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header, number or HTTP date (RFC 9110), as received: below zero, or huge."""
    value = headers.get("Retry-After", "").strip()[:64]
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time()
        except (ValueError, OverflowError):
            return None
    return seconds if isfinite(seconds) else None


def too_large(most: int) -> WorkerError:
    """Return the fault of a body beyond `most` bytes."""
    return WorkerError(FaultKind.TOO_LARGE, f"the body is larger than {most:,} bytes")
