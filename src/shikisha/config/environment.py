"""The variables that Shikisha reads, where its files are, its event loop, and the `.env` beside a configuration.

Invariants: a variable of the environment wins over one in `.env`; what `.env` holds opens endpoints and steers nothing
else: it does not reach this process's own environment, so no proxy, certificate or library is chosen by a file in a
folder. A line that is no assignment is skipped, as other readers of such files do.
"""

import os
import re
import tomllib
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

CONFIG_FILE = "shikisha.toml"
CONFIG_VARIABLE = "SHIKISHA_CONFIG"
DOTENV_FILE = ".env"
SIMULATED = "simulated"  # the one word that asks for the simulated workers, in place of a pool
JOURNAL_FILE = "shikisha.db"  # relative to the configuration
DISCOVERY_VARIABLE = "SHIKISHA_DISCOVERY"
VARIABLES: Mapping[str, str] = {  # what `shikisha` reads besides the variables that a configuration names
    CONFIG_VARIABLE: "the configuration file, where --config names none",
    DISCOVERY_VARIABLE: "what a run without a configuration looks for: all (the default), local, free or off",
    "SHIKISHA_KEY": "the virtual key whose budget `shikisha serve --mcp` uses",
    "SHIKISHA_DATA": "the folder of all tasksets that `--taskset NAME` names",
    "SHIKISHA_DEBUG": "1 shows the traceback of an unexpected error",
}
_MAX_BYTES = 64 * 2**10
_ASSIGNMENT = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]*=[ \t]*
        (?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\n]*?))[ \t]*(?:(?<=[\s"'])\#[^\n]*)?$""",
    re.MULTILINE | re.VERBOSE | re.ASCII,
)
_ESCAPES = {r"\n": "\n", r"\"": '"', r"\\": "\\"}


def read_dotenv(folder: Path) -> dict[str, str]:
    """Return the assignments of a folder's `.env`; none where there is no such file that can be read."""
    try:
        with (folder / DOTENV_FILE).open("rb") as file:
            text = file.read(_MAX_BYTES).decode("utf-8-sig", errors="replace")
    except OSError:
        return {}
    return dict(_assignments(text.replace("\r\n", "\n")))


def with_dotenv(environment: Mapping[str, str], folder: Path) -> Mapping[str, str]:
    """Return the environment, with a folder's `.env` behind it."""
    return ChainMap(dict(environment), read_dotenv(folder))


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    for found in _ASSIGNMENT.finditer(text):
        name, double, single, bare = found.groups()
        if double is not None:
            yield name, re.sub(r'\\[n"\\]', lambda escape: _ESCAPES[escape[0]], double)
        else:
            yield name, single if single is not None else (bare or "").strip()


def find_config(given: Path | None, environment: Mapping[str, str]) -> Path | None:
    """Return the file to read: the given one, that of $SHIKISHA_CONFIG, or ./shikisha.toml, if any."""
    if given is not None:
        return given
    if environment.get(CONFIG_VARIABLE):
        return Path(environment[CONFIG_VARIABLE])
    return Path(CONFIG_FILE) if os.path.lexists(CONFIG_FILE) else None  # what is there and is no file is an error


def state_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of the journal without a configuration: $XDG_STATE_HOME/shikisha (XDG base directories)."""
    base = environment.get("XDG_STATE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state") / "shikisha"


def journal_location(given: Path | None, environment: Mapping[str, str]) -> str | None:
    """Return where runs are recorded, where the configuration says that plainly; None where all of it is to be read.

    For commands that show runs: they need nothing else of the configuration, and reading it takes longer than they do.
    """
    path = find_config(given, environment)
    if path is None:
        return str((state_folder(environment) / JOURNAL_FILE).absolute())
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("journal", {})
    except (OSError, ValueError):
        return None
    if not isinstance(table, dict) or not table.keys() <= {"file"}:
        return None
    file = table.get("file", JOURNAL_FILE)
    return str((path.parent / file).absolute()) if isinstance(file, str) else None


def event_loop_factory() -> "Callable[[], AbstractEventLoop] | None":
    """Return what makes the event loop of a process that makes many calls: uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
