"""Switches of what was learned that can be turned without editing the configuration: one small file beside it.

`[learned] use` says what is used at all; this file says what of it somebody has switched off, who, and when. It is read
whenever a conductor is built, so that a page, the command line and every server process that shares the folder agree.

Invariants: a switch can only take away what the configuration allows; the file is written completely or not at all, and
one that cannot be read is an error and never a silent yes; reading takes bounded work.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from shikisha.core.errors import ConfigError

LEARNED_KINDS = ("notes", "values", "prompt", "lessons", "skills")
SKILL_SWITCH = "skill "  # before a skill's name
_FORMAT = "shikisha-switches/1"
_MAX_BYTES = 2**20
_MAX_SWITCHES = 5_000
_NAME = re.compile(r"skill [a-z0-9][a-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True)
class SwitchedOff:
    """Who switched something off, and when (Unix time)."""

    by: str
    at: float


@dataclass(frozen=True, slots=True)
class LearnedSwitches:
    """The switches in a file; without the file everything is on."""

    file: Path

    def read(self) -> Mapping[str, SwitchedOff]:
        """Return what is switched off; ConfigError where the file is there and says something else."""
        try:
            with self.file.open("rb") as opened:
                data = opened.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{self.file}: cannot be read: {error.strerror or error}") from None
        try:
            body = json.loads(data) if len(data) <= _MAX_BYTES else {}
            if body["format"] != _FORMAT or len(body["off"]) > _MAX_SWITCHES:
                raise ValueError(f"expected the format {_FORMAT}")
            return {
                check_switch(name): SwitchedOff(str(row["by"])[:200], float(row["at"]))
                for name, row in body["off"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(f"{self.file}: no switches: {type(error).__name__}: {error}") from None

    def turn(self, name: str, *, on: bool, by: str, at: float) -> None:
        """Switch something on or off; ConfigError for an unknown name, or where the file cannot be written."""
        off = dict(self.read())
        if on:
            off.pop(check_switch(name), None)
        else:
            off[check_switch(name)] = SwitchedOff(by, at)
        rows = {each: asdict(row) for each, row in sorted(off.items())}
        part = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        try:
            part.write_text(json.dumps({"format": _FORMAT, "off": rows}, indent=1) + "\n", "utf-8")
            part.replace(self.file)
        except OSError as error:
            raise ConfigError(f"{self.file}: cannot be written: {error.strerror or error}") from None


def check_switch(name: str) -> str:
    """Return the name of a switch; ConfigError where there is none of this name."""
    if name not in LEARNED_KINDS and not _NAME.fullmatch(name):
        raise ConfigError(f"expected one of {', '.join(LEARNED_KINDS)}, or skill NAME, not {name!r:.80}")
    return name


def file_stamp(file: str) -> tuple[int, int]:
    """Return the time and size of a file; zeros where there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
