"""A run's events as they stand in the journal: each with its place, its time, what it says in a line, and its hash.

Invariant: nothing is left out: what the line does not say stands in the event's own data beside it. Deliberately
absent: checking the chain (`shikisha journal verify` reads all of it).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shikisha.clean import one_line

_TOLD = (
    "why",
    "worker",
    "conductor",
    "status",
    "reason",
    "fault",
    "check",
    "asks",
    "actor",
    "note",
    "prompt",
    "answer",
)
_HIDDEN = ("config",)


@dataclass(frozen=True, slots=True)
class Line:
    """An event; `data` is all of it as JSON, `place` its round and step in words."""

    seq: int
    at: float
    kind: str
    place: str
    what: str
    data: str
    hash: str


def lines(exported: Iterable[str]) -> tuple[Line, ...]:
    """Read the journal's lines of JSON."""
    return tuple(_line(json.loads(text)) for text in exported)


def _line(told: Mapping[str, object]) -> Line:
    data = told["data"]
    fields: Mapping[str, object] = data if isinstance(data, dict) else {}
    shown = {name: value for name, value in fields.items() if name not in _HIDDEN}
    whole = json.dumps(shown, ensure_ascii=False, indent=1)
    return Line(
        int(str(told["seq"])),
        float(str(told["at"])),
        str(told["kind"]),
        _place(fields),
        _what(fields),
        whole,
        str(told["hash"]),
    )


def _place(data: Mapping[str, object]) -> str:
    if "round" not in data or data["round"] is None:
        return ""
    step = data.get("step")
    said = f"round {data['round']}" if step is None else f"round {data['round']}, step {step}"
    return f"{said}, call {data['attempt']}" if data.get("attempt") is not None else said


def _what(data: Mapping[str, object]) -> str:
    told = [f"{one_line(str(data[name]), 120)}" for name in _TOLD if data.get(name)]
    return " · ".join(told[:4])
