"""The variables that Shikisha reads, and the `.env` beside a configuration, which holds keys for it alone.

Invariants: a variable of the environment wins over one in `.env`; what `.env` holds opens endpoints and steers nothing
else: it does not reach this process's own environment, so no proxy, certificate or library is chosen by a file in a
folder. A line that is no assignment is skipped, as other readers of such files do.
"""

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from pathlib import Path

DOTENV_FILE = ".env"
DISCOVERY_VARIABLE = "SHIKISHA_DISCOVERY"
VARIABLES: Mapping[str, str] = {  # what `shikisha` reads besides the variables that a configuration names
    "SHIKISHA_CONFIG": "the configuration file, where --config names none",
    DISCOVERY_VARIABLE: "what a run without a configuration looks for: all (the default), local, free or off",
    "SHIKISHA_KEY": "the virtual key whose budget `shikisha mcp` uses",
    "SHIKISHA_DATA": "where the container image keeps its journal",
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
