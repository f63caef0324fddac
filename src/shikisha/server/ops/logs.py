"""Structured logs: one JSON object per line on standard error, with ids of requests, runs and steps, and without keys.

Invariant 8: every text of a record (message, extras, exception) is scrubbed of known secrets; what looks like one of
our keys, a bearer token or a login in a URL is masked even where it is unknown. Files and rotation are left to the
supervisor.
"""

import json
import logging
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import lru_cache
from time import gmtime, strftime, time
from typing import TextIO

from shikisha.core.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStarted,
    Event,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
)
from shikisha.core.secrets import MASK, SecretStore

_SECRET_PATTERN = re.compile(r"(sk-shikisha-[0-9A-Za-z]+-|(?i:bearer)\s+|://[^/\s:@]*:)[^\s\"'@,;]+")
_RUN_LOG = logging.getLogger("shikisha.runs")
_LIBRARY_LOGGERS = (
    "alembic",
    "uvicorn",
    "opentelemetry",
    "aiohttp",
    "httpx2",
    "httpcore2",
    "openai",
    "asyncio",
    "sqlalchemy",
    "mcp",
)
LogFields = Mapping[str, str | int | float | None]


def configure_logging(
    secret_store: SecretStore, level: str = "info", stream: TextIO | None = None
) -> Callable[[], None]:
    """Log to this stream from now on; return what puts everything back as it was."""
    root, handler = logging.getLogger(), _JsonHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(secret_store))
    before = root.handlers[:], root.level
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _LIBRARY_LOGGERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))

    def undo() -> None:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        for name in _LIBRARY_LOGGERS:
            logging.getLogger(name).setLevel(logging.NOTSET)

    return undo


class JsonFormatter(logging.Formatter):
    """A record as a line of JSON; `extra={"said": {...}}` adds members."""

    def __init__(self, secret_store: SecretStore) -> None:
        super().__init__()
        self._secret_store = secret_store

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        extra = getattr(record, "said", None)
        said = dict(extra) if isinstance(extra, Mapping) else {}
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return self.line(record.created, record.levelname, record.name, _record_message(record), said)

    def line(self, at: float, level: str, logger: str, message: str, said: Mapping[str, object]) -> str:
        """Return the line of these members."""
        told = {"message": message} | {str(name): value for name, value in said.items() if value is not None}
        # Nearly no line has a key in it, and one look at all of it is enough to know.
        texts = "\n".join([value for value in told.values() if isinstance(value, str)])
        if self._clean(texts) != texts:
            told = {name: self._clean(value) if isinstance(value, str) else value for name, value in told.items()}
        head = {"at": f"{_second_name(int(at))}.{int(at % 1 * 1000):03d}Z", "level": level.lower(), "logger": logger}
        return _encode(head | told)

    def _clean(self, text: str) -> str:
        return _SECRET_PATTERN.sub(rf"\1{MASK}", self._secret_store.scrub(text))


_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode


@lru_cache(4)
def _second_name(second: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(second))


class _JsonHandler(logging.StreamHandler[TextIO]):
    """Writes lines; those that the server writes for every request and run come without a record made of them."""

    def write_line(self, level: int, logger: str, message: str, said: LogFields) -> bool:
        """Write a line of these members; False where this is not our own formatter's business."""
        if not isinstance(self.formatter, JsonFormatter):
            return False
        line = self.formatter.line(time(), logging.getLevelName(level), logger, message, said)
        with self.lock or nullcontext():
            try:
                self.stream.write(f"{line}\n")
                self.flush()
            except (OSError, ValueError):
                pass  # nobody reads us any more; `logging` would complain there
        return True


def log_line(logger: logging.Logger, level: int, message: str, said: LogFields) -> None:
    """Log a line: `logger.log` with these members, in a third of its time where our handler is the only one."""
    if not logger.isEnabledFor(level):
        return
    handlers = logging.root.handlers
    only = handlers[0] if len(handlers) == 1 and not (logger.handlers or logger.filters) else None
    if not (isinstance(only, _JsonHandler) and only.write_line(level, logger.name, message, said)):
        logger.log(level, message, extra={"said": said})


def _record_message(record: logging.LogRecord) -> str:
    """Return a record's message; a call of the logger that was wrong must not lose it, nor raise."""
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        return str(record.msg)


def log_event(event: Event) -> None:
    """Log the end of a run at level info, starts and attempts at level debug (an observer of the service)."""
    match event:
        case RunStarted():
            _log_run(event, "run begun", {"conductor": event.conductor, "parent": event.parent}, logging.DEBUG)
        case RunResumed():
            _log_run(event, "run goes on", {})
        case RunPaused():
            _log_run(event, "run stopped", {"status": event.status.value})
        case RunFinished():
            fault = event.fault.value if event.fault else None
            _log_run(event, "run ended", {"status": event.status.value, "cap": event.cap, "fault": fault})
        case AttemptStarted() | AttemptFinished() | AttemptFailed() if _RUN_LOG.isEnabledFor(logging.DEBUG):
            step = f"{event.round}.{'plan' if event.step is None else event.step}"
            said: dict[str, str | int | float | None] = {
                "run": event.run,
                "step": step,
                "attempt": event.attempt,
                "worker": event.worker,
            }
            if isinstance(event, AttemptStarted):
                message, said["reason"] = "attempt begun", event.reason.value
            else:
                message, said["seconds"] = "attempt ended", round(event.seconds, 6)
                said["fault"] = event.fault.value if isinstance(event, AttemptFailed) else None
            _RUN_LOG.debug(message, extra={"said": said})
        case _:
            pass


def _log_run(event: Event, message: str, said: LogFields, level: int = logging.INFO) -> None:
    if _RUN_LOG.isEnabledFor(level):
        log_line(_RUN_LOG, level, message, {"run": event.run, **said})
