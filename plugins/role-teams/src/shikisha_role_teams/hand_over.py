"""Hand-overs between the roles of a team, as text: JSON documents, shown in lines that nothing in them can leave.

A step that a team asks for begins with the line that names its role, and ends with the hand-overs that the role sees,
one line of JSON each. Invariants: which role a hand-over is of is said by the conductor alone, since a document's line
breaks are escaped and its text can begin no line; what is read back is what was handed over. Deliberately absent:
schemas (a Member has one, and the engine checks it), and repairing JSON.
"""

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

from shikisha.core.messages import Json

HAND_OVERS = "The hand-overs so far, as lines of JSON:"
_NONE = "none"
_ROLE_LINE = re.compile(r"You are the (\w[\w-]*) of the team (\S+)\.")


class HandOver(NamedTuple):
    """What a role handed over: a document where it has a schema, else a text."""

    role: str
    document: Json


def role_line(role: str, team: str) -> str:
    """Return the first line of what a role is asked."""
    return f"You are the {role} of the team {team}."


def role_asked(subtask: str) -> str | None:
    """Return the role that a step asks; None for a step that no team asked for."""
    found = _ROLE_LINE.fullmatch(subtask.partition("\n")[0])
    return found[1] if found else None


def show_hand_overs(given: Iterable[HandOver]) -> str:
    """Return the last part of what a role is asked: what it sees of the others.

    It is there even where there is nothing to show, so that no text before it can pass for it.
    """
    return "\n".join([HAND_OVERS, *([_line(each) for each in given] or [_NONE])])


def _line(given: HandOver) -> str:
    line = {"from": given.role, "hands_over": given.document}
    text = json.dumps(line, ensure_ascii=False)
    return text if _storable(text) else json.dumps(line)


def _storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character, which a document can name and no journal takes
        return False
    return True


def shown_hand_overs(subtask: str) -> list[HandOver]:
    """Return the hand-overs at the end of what a role was asked."""
    _, found, tail = subtask.rpartition(f"\n{HAND_OVERS}\n")
    if not found or tail == _NONE:
        return []
    return [HandOver(line["from"], line["hands_over"]) for line in map(json.loads, tail.split("\n"))]
