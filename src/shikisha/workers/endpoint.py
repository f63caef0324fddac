"""What workers behind an endpoint share: address and key headers, arguments from a subtask, faults, and safe messages.

Invariants: an address comes from the configuration and from nowhere else; a key is named by its environment variable
and never written into an address, a header of the configuration or a message (8); keys are masked before a text is cut.
Where foreign text names a server (a catalogue's document), `address_problem` decides which addresses it may not be at.
Arguments are a JSON object that fits the tool's schema, or a fault that says what does not fit and where: nothing is
repaired or guessed. `status_error` is the one place that maps an HTTP status to a fault. No HTTP library is imported.
"""

import json
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from math import fsum, isfinite
from time import time
from typing import Annotated, NoReturn, TypeAlias
from unicodedata import normalize
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import AfterValidator, JsonValue

from shikisha.core.call import TOO_DEEP_CODE
from shikisha.core.errors import ConfigError, FaultKind, WorkerError
from shikisha.core.json_schema import SchemaCheck
from shikisha.core.secrets import SecretStore

OPENAI_URL = "https://api.openai.com/v1"
LOCAL_URL = "local:"  # a model of this machine, which has an address once its server runs
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)


def check_chat_url(url: str) -> str:
    """Return the URL of a chat endpoint, which may be a model of this machine; otherwise as `check_url`."""
    return url if url == LOCAL_URL else check_url(url)


def check_url(url: str) -> str:
    """Return a URL that somebody configures; ValueError for one that holds a user, a password or a fragment."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected an http or https URL with a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL holds no user or password; name an environment variable instead")
    if parts.fragment:
        raise ValueError("a URL holds no fragment")
    return url


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, template in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no header name")
        if _SECRET_HEADER.search(name) and not _VARIABLE.search(template):
            raise ValueError(f"{name} looks like a key: write ${{NAME}} for the value of environment variable NAME")
    return headers


def check_key_templates(query: dict[str, str]) -> dict[str, str]:
    """Return query parameters; ValueError for one that looks like a key and names no environment variable."""
    for name, template in query.items():
        if _SECRET_HEADER.search(name) and not _VARIABLE.search(template):
            raise ValueError(f"{name} looks like a key: write ${{NAME}} for the value of environment variable NAME")
    return query


EndpointUrl = Annotated[str, AfterValidator(check_url)]
ChatUrl = Annotated[str, AfterValidator(check_chat_url)]
HeaderTemplates = Annotated[dict[str, str], AfterValidator(_check_headers)]


AddressRule: TypeAlias = Callable[[str], str]
"""Returns why no connection may go to an IP address; empty where one may."""
# Metadata services outside of the link-local networks: AWS, Google, Alibaba, Oracle, Azure.
_METADATA = frozenset({"fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"})
_METADATA_NAMES = frozenset({"metadata.google.internal", "metadata.goog", "instance-data", "metadata"})


def origin(url: str) -> str:
    """Return scheme, host and port of a URL, in one spelling; empty for a text that is no http or https URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}" if host and port else ""


def metadata_problem(address: str) -> str:
    """Return why no catalogue may call this IP address, whoever names it; empty where it may."""
    found = any(each.is_link_local or str(each) in _METADATA for each in _addresses(address))
    return "a link-local or metadata address, which is never called" if found else ""


def inside_problem(address: str) -> str:
    """Return why foreign text may not name this IP address: it is not a public one; empty where it may."""
    public = all(each.is_global and not each.is_multicast for each in _addresses(address))
    return metadata_problem(address) or ("" if public else "no public address, so it has to be named by a person")


def _addresses(address: str) -> Sequence[IPv4Address | IPv6Address]:
    """Return an IP address as what it leads to: IPv6 may carry an IPv4 address."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv4Address) or found.ipv4_mapped is not None:
        return (found if isinstance(found, IPv4Address) else found.ipv4_mapped or found,)
    carries = int(found) >> 32 in (0, 0x64FF9B << 64)  # IPv4-compatible, NAT64
    low = IPv4Address(int(found) & 0xFFFFFFFF) if carries else found.sixtofour
    return (found,) if low is None else (found, low)


def address_problem(host: str, rule: AddressRule) -> str:
    """Return why a host may not be called as it is written; empty where it may, or where only a resolver can know."""
    name = normalize("NFKC", host).lower().rstrip(".")
    if name in _METADATA_NAMES:
        return "the name of a metadata service, which is never called"
    name = "127.0.0.1" if name == "localhost" or name.endswith(".localhost") else name
    with suppress(OSError, ValueError):  # as resolvers read it: 2852039166, 0251.0376.43518
        return rule(name if ":" in name else str(IPv4Address(socket.inet_aton(name))))
    return ""


@lru_cache(256)
def join_path(base: str, path: str) -> str:
    """Join a path to a base URL; the base's query (Azure's `api-version`) stays at the end."""
    parts = urlsplit(base)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))


_CONNECT_WORDS = (  # what systems and libraries say of a connection that did not come about, and what a person reads
    (r"refused|connect call failed|all connection attempts failed", "nothing listens at {}: is it running?"),
    (
        r"name or service|nodename|getaddrinfo|name resolution|no address|dns",
        "no machine is known as {}: is the address right, and is there a network?",
    ),
    (
        r"wrong.version.number|record.layer|not.?ssl|unknown.protocol|http_request",
        "{} answers without TLS: is https:// right, or is it http://?",
    ),
    (
        r"certificate.verify.failed|certificate",
        "the certificate of {} is not trusted here (SSL_CERT_FILE names others)",
    ),
    (r"timed? ?out|timeout", "no connection to {} came about in time: is it running, and can this machine reach it?"),
)


def connect_problem(where: str, error: str) -> str:
    """Return why there is no connection to `where`, in words that say what to look at."""
    for pattern, words in _CONNECT_WORDS:
        if re.search(pattern, error, re.IGNORECASE):
            return words.format(where)
    return f"no connection to {where} came about: {error}"


def read_key(secret_store: SecretStore, variable: str, *, short: bool = False) -> str:
    """Return the key in this environment variable; ConfigError when a header cannot carry it."""
    key = secret_store.read(variable, short=short)
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"environment variable {variable} holds characters that no HTTP header can carry")
    return key


def fill_headers(headers: Mapping[str, str], secret_store: SecretStore) -> dict[str, str]:
    """Return the headers with each `${NAME}` replaced by the key in environment variable NAME."""
    return {
        name: _VARIABLE.sub(lambda found: read_key(secret_store, found[1]), template)
        for name, template in headers.items()
    }


def key_headers(
    headers: Mapping[str, str], variable: str | None, base_url: str, secret_store: SecretStore
) -> dict[str, str]:
    """Return the headers with variables and key filled in; of servers other than OpenAI's the key may be short."""
    filled = fill_headers(headers, secret_store)
    if variable is not None:
        key = read_key(secret_store, variable, short=base_url != OPENAI_URL)
        filled["Authorization"] = f"Bearer {key}"
    return filled


def idempotency_header(key: str) -> dict[str, str]:
    """Return the header that carries a call's idempotency key; what a header cannot carry is percent-encoded."""
    return {"Idempotency-Key": quote(key, safe="/:")} if key else {}


_FENCE = re.compile(r"^```[^\n`]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_MAX_PROBLEM = 300


class ToolArguments:
    """The arguments of one tool. `free` names the argument that receives a subtask in plain words."""

    def __init__(self, check: SchemaCheck, free: str | None = None) -> None:
        self._check = check
        self._free = free

    async def read(self, subtask: str) -> dict[str, JsonValue]:
        """Return the arguments in this subtask; BAD_ARGUMENTS says what does not fit, and where."""
        if self._free is None:
            return await self._fitting(_parse_object(_json_part(subtask)))
        try:
            return await self._fitting(_parse_object(subtask))
        except WorkerError:
            return await self._fitting({self._free: subtask})

    async def _fitting(self, arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
        try:
            problem = await self._check.problem(arguments)
        except TimeoutError as error:
            problem = f"whether they fit the tool's schema is {error}"
        if problem is not None:
            raise WorkerError(FaultKind.BAD_ARGUMENTS, problem)
        return arguments


def _bad_arguments(what: str, where: str) -> WorkerError:
    short = what if len(what) <= _MAX_PROBLEM else what[:_MAX_PROBLEM] + "…"
    return WorkerError(FaultKind.BAD_ARGUMENTS, f"{where}: {short}")


def _json_part(subtask: str) -> str:
    """Return the whole subtask if it is an object, or else its only fenced block."""
    if subtask.lstrip().startswith("{"):
        return subtask
    blocks = _FENCE.findall(subtask)
    if len(blocks) != 1:
        found = "no fenced block" if not blocks else f"{len(blocks)} fenced blocks"
        raise _bad_arguments(
            f"expected a JSON object as the whole text or as its only fenced block; there is {found}", "subtask"
        )
    return str(blocks[0])


def _parse_object(text: str) -> dict[str, JsonValue]:
    """Parse strictly: no name twice, no number that JSON does not have."""
    try:
        value = json.loads(text, object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_constant)
        json.dumps(
            value, ensure_ascii=False
        ).encode()  # half a surrogate pair can be written as an escape, but not sent
    except json.JSONDecodeError as error:
        raise _bad_arguments(error.msg, f"line {error.lineno} column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise _bad_arguments(str(error), "subtask") from None
    if not isinstance(value, dict):
        raise _bad_arguments(f"expected a JSON object, not {type(value).__name__}", "$")
    return value


def _reject_duplicate_keys(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is given twice")
    return made


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


# Pieces of keys are searched in this many times the length.
_LOOKAHEAD_FACTOR = 8


def redact_and_clip(text: str, secret_store: SecretStore, longest: int = 300) -> str:
    """Return the text without keys, on one line, printable, and no longer than this many characters."""
    line = secret_store.redact(" ".join(secret_store.scrub(text).split())[: _LOOKAHEAD_FACTOR * longest])
    printable = "".join(letter if letter.isprintable() else "?" for letter in line[:longest])
    return printable + ("…" if len(line) > longest else "")


def status_error(
    status: int, headers: Mapping[str, str], detail: str, secret_store: SecretStore, code: str = ""
) -> WorkerError:
    """Map a status to a fault; `detail` is the endpoint's message, `code` its error code."""
    said = f"status {status}: {redact_and_clip(detail, secret_store)}" if detail else f"status {status}"
    if code == TOO_DEEP_CODE and status == 400:
        return WorkerError(FaultKind.TOO_DEEP, said)
    if status >= 500 and headers.get("x-should-retry", "").strip().lower() == "false":
        return WorkerError(FaultKind.NO_ANSWER, f"{said} (the endpoint says that trying again is no use)")
    match status:
        case 401 | 403:
            return WorkerError(FaultKind.AUTH, f"status {status}: the key is missing, wrong or not allowed to do this")
        case 402:
            return WorkerError(FaultKind.AUTH, f"{said} (the account has no credit)")
        case 408:  # the endpoint stopped waiting for our request: nothing was performed
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


def error_code(body: bytes) -> str:
    """Return the error code in a body of OpenAI's shape; empty without one."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    error = found.get("error") if isinstance(found, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) else ""


_WAIT_HEADERS = ("retry-after-ms", "x-ms-retry-after-ms", "x-retry-after-ms", "retry-after", "x-retry-after")
_LEFT, _RESET = (
    re.compile(r"(x-)?(.*-)?ratelimit(-.*)?-remaining(-.*)?"),
    re.compile(r"(x-)?(.*-)?ratelimit(-.*)?-reset(-.*)?"),
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milli\w*|s|sec\w*|m|min\w*|h|hour\w*|d|days?)(?![a-z])", re.IGNORECASE)
_SECONDS_IN = {"ms": 1e-3, "mi": 60.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_EPOCH = 1e9  # seconds since 1970 and no duration, from here on; times 1,000: milliseconds


def retry_after(headers: Mapping[str, str], in_body: float | None = None) -> float | None:
    """Return the seconds after which an endpoint wants to be asked again, as received: below zero, or huge.

    The headers come first (RFC 9110, and those in milliseconds before it), then the body, then the resets of limits of
    which nothing is left.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    for name in _WAIT_HEADERS:
        if (seconds := stated_seconds(lower.get(name, ""), name)) is not None:
            return seconds
    if in_body is not None:
        return in_body
    limits = {name: value for name, value in lower.items() if "ratelimit" in name}
    spent = {
        name.replace("remaining", "reset") for name, left in limits.items() if _LEFT.fullmatch(name) and left[:2] == "0"
    }
    resets = {name: stated_seconds(value, name) for name, value in limits.items() if _RESET.fullmatch(name)}
    known = {name: seconds for name, seconds in resets.items() if seconds is not None and seconds >= 0}
    waits = [seconds for name, seconds in known.items() if name in spent]
    return max(waits) if waits else min(known.values(), default=None)


def stated_seconds(value: object, name: str) -> float | None:
    """Return the seconds that a value means: a number (of milliseconds where its name says so), a duration, a date."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value).strip()[:64]
    try:
        number = float(text)
    except ValueError:
        # The seconds of "21s", "6m0s", "2 minutes" or a date (RFC 9110, RFC 3339); None for another text.
        parts = _DURATION.findall(text)
        if parts and not _DURATION.sub("", text).strip(" ,"):
            return fsum(float(count) * _unit_seconds(unit.lower()) for count, unit in parts)
        for read in (parsedate_to_datetime, datetime.fromisoformat):
            try:
                return read(text).timestamp() - time()
            except (ValueError, OverflowError):
                continue
        return None
    if not isfinite(number):
        return None
    if name.lower().rstrip("s").endswith(("_m", "-m", "millisecond")):
        return number / 1e3
    if "reset" in name.lower() and number >= _EPOCH:
        return (number / 1e3 if number >= 1e3 * _EPOCH else number) - time()
    return number


def _unit_seconds(unit: str) -> float:
    if unit.startswith("mil"):
        return 1e-3
    return _SECONDS_IN.get(unit[:2], 0.0) or _SECONDS_IN[unit[0]]


def body_too_large(most: int) -> WorkerError:
    """Return the fault of a body beyond `most` bytes."""
    return WorkerError(FaultKind.TOO_LARGE, f"the body is larger than {most:,} bytes")
