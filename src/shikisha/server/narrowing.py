"""What a request may say by header, in every API: tighter limits, fewer workers, more labels, what to tell of the run.

Invariant: all of it narrows. A header that would widen a cap, or names a worker that nobody configured, is refused and
not clipped; so is one that is there twice (but for labels, which add up), and an unknown `X-Shikisha-` header, because
whoever sends it counts on it.
Deliberately absent: what the limits are (the configuration's and the key's, see `ordering`).

| header | holds |
|---|---|
| `X-Shikisha-Budget-Dollars`, `-Tokens`, `-Seconds`, `-Steps`, `-Rounds` | a tighter cap for this run |
| `X-Shikisha-Workers` | the workers that may be used, by name, with commas |
| `X-Shikisha-Labels` | data labels of what is sent, with commas |
| `X-Shikisha-Domain` | the task's type, for rules and for autonomy by task class |
| `X-Shikisha-Metadata` | `summary` or `full`: a `shikisha` object in the answer |
| `X-Shikisha-Progress` | `reasoning`: lines about earlier steps as reasoning content |
| `X-Shikisha-Depth` | how many servers of ours the request has come through; chat workers send it |
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from shikisha.budget import Caps
from shikisha.server.problems import Problem

_OURS = "x-shikisha-"
_LONGEST = 2000
_LONGEST_NAME = 64
_LONGEST_DOMAIN = 200
_LONGEST_DEPTH = 9  # digits
_MOST = 10**12
_BUDGETS: Mapping[str, Callable[[str], float]] = {
    "dollars": float,
    "tokens": int,
    "seconds": float,
    "steps": int,
    "rounds": int,
}


class Detail(StrEnum):
    """How much of the run is told in an answer."""

    NONE = "none"  # the standard fields and the headers
    SUMMARY = "summary"  # who did what, at which cost
    FULL = "full"  # and the subtasks and answers of every step


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What the headers of a request ask for."""

    caps: Mapping[str, float]
    workers: tuple[str, ...] | None = None
    labels: tuple[str, ...] = ()
    domain: str = ""
    detail: Detail = Detail.NONE
    progress: bool = False
    depth: int = 0

    def narrowed(self, caps: Caps) -> Caps:
        """Return these caps with the tighter ones in place; 400 for one that is wider than what is allowed."""
        if not self.caps:
            return caps
        given = {name: getattr(caps, name) for name in Caps.__dataclass_fields__}
        for name, wanted in self.caps.items():
            most = given[name]
            if most is not None and wanted > most:
                said = f"at most {most:g} is allowed here, and a header can only narrow that"
                raise _bad(f"budget-{name}", said, "budget_widened")
            given[name] = wanted
        return Caps(**given)


def narrowing(headers: Mapping[str, str]) -> Narrowing:
    """Read the headers of a request; 400 names the one that cannot be honoured. Names are lower-case."""
    given: dict[str, str] = {}
    for name, value in headers.items():
        if name.startswith(_OURS):
            _put(given, name.removeprefix(_OURS), value.strip())
    if not given:
        return _PLAIN
    for name, value in given.items():
        if name not in _KNOWN:
            raise _bad(
                name, f"unknown; known are {', '.join(f'X-Shikisha-{known.title()}' for known in sorted(_KNOWN))}"
            )
        most = _LONGEST_DOMAIN if name == "domain" else _LONGEST
        if len(value) > most:
            raise _bad(name, f"longer than {most} characters")
    return Narrowing(
        {name: _number(given[f"budget-{name}"], name) for name in _BUDGETS if f"budget-{name}" in given},
        _names(given, "workers") if "workers" in given else None,
        _names(given, "labels") if "labels" in given else (),
        given.get("domain", ""),
        _detail(given.get("metadata", Detail.NONE)),
        _progress(given.get("progress", "none")),
        _depth(given.get("depth", "0")),
    )


def _put(given: dict[str, str], name: str, value: str) -> None:
    """Take a header in. A gateway may add a line of labels to its client's; no other header is taken twice."""
    if name in given and name != "labels":
        raise _bad(name, "sent more than once")
    given[name] = f"{given[name]},{value}" if name in given else value


def _number(text: str, name: str) -> float:
    try:
        number = _BUDGETS[name](text)
    except ValueError:
        number = -1
    if not 0 <= number <= _MOST or (number == 0 and name != "dollars"):
        raise _bad(f"budget-{name}", "expected a number above 0" if name != "dollars" else "expected dollars from 0")
    return number


def _names(given: Mapping[str, str], header: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in given[header].split(",")))
    if not all(names):
        raise _bad(header, "expected names with commas between them")
    if any(len(name) > _LONGEST_NAME for name in names):
        raise _bad(header, f"expected names of at most {_LONGEST_NAME} characters")
    return names


def _detail(text: str) -> Detail:
    if text not in tuple(Detail):
        raise _bad("metadata", f"expected one of {', '.join(Detail)}")
    return Detail(text)


def _progress(text: str) -> bool:
    if text not in ("reasoning", "none"):
        raise _bad("progress", "expected reasoning or none")
    return text == "reasoning"


def _depth(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_DEPTH):
        raise _bad("depth", "expected a whole number from 0")
    return int(text)


def _bad(name: str, what: str, code: str = "invalid_header") -> Problem:
    header = f"X-Shikisha-{name.title()}"
    return Problem(400, f"{header}: {what}", code, param=header)


_KNOWN = frozenset(
    {*(f"budget-{name}" for name in _BUDGETS), "workers", "labels", "domain", "metadata", "progress", "depth"}
)
_PLAIN = Narrowing({})
