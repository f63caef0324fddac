"""A run that waits for its client is several responses: a leg begins with what the client answered, or with the run.

Invariant: legs are a pure function of the run's events and of whether its client may approve calls, so a response means
the same for ever, on every server. A leg ends where the run waits for something that its client can bring: results of
its tools, or, from a key that may approve, a decision. Whatever else a run waits for happens within its leg.
Deliberately absent: bringing the answer (`responses_resuming`), and the ids of calls (`toolcalls`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from shikisha.events import Event, QuestionAnswered, QuestionAsked, QuestionKind, RunPaused, Status
from shikisha.run import Run

_ID = re.compile(r"resp_([0-9a-z-]{1,64})(?:\.([1-9][0-9]{0,3}))?")
_APPROVAL = re.compile(r"mcpr_([0-9a-z-]{1,64})_([0-9a-f]{16})")


@dataclass(frozen=True, slots=True)
class Leg:
    """A response's part of a run: its number, its events' range, and what it waits for from its client at its end."""

    number: int
    begin: int
    end: int
    waits: tuple[QuestionAsked, ...] = ()

    def answers(self, events: Sequence[Event]) -> tuple[QuestionAnswered, ...]:
        """Return the answers with which it began."""
        found = []
        for event in events[self.begin : self.end]:
            if not isinstance(event, QuestionAnswered):
                break
            found.append(event)
        return tuple(found)


def legs(events: Sequence[Event], *, approves: bool) -> tuple[Leg, ...]:
    """Return a run's legs; the last one's end is the last event so far."""
    found: list[Leg] = []
    begin = 0
    for place, event in enumerate(events):
        if isinstance(event, RunPaused) and event.status is Status.SUSPENDED:
            waits = client_waits(Run.fold(events[: place + 1]), approves=approves)
            if waits:
                found.append(Leg(len(found), begin, place + 1, waits))
                begin = place + 1
    if begin < len(events):
        found.append(Leg(len(found), begin, len(events)))
    return tuple(found)


def client_waits(run: Run, *, approves: bool) -> tuple[QuestionAsked, ...]:
    """Return the open questions of a run that waits which its client can answer."""
    kinds = {QuestionKind.TOOLS, QuestionKind.APPROVE} if approves else {QuestionKind.TOOLS}
    return tuple(asked for asked in run.open_questions if asked.asks in kinds)


def response_id(run: str, leg: int = 0) -> str:
    """Return the id of a run's response: `resp_RUN`, and `resp_RUN.N` once it went on with the client's answers."""
    return f"resp_{run}.{leg}" if leg else f"resp_{run}"


def read_response_id(text: str) -> tuple[str, int] | None:
    """Return the run and the leg of a response's id; None for what is none of ours."""
    found = _ID.fullmatch(text)
    return (found[1], int(found[2] or 0)) if found else None


def approval_id(run: str, question: str) -> str:
    """Return the id under which a client sees a request for approval."""
    return f"mcpr_{run}_{question}"


def read_approval_id(text: str) -> tuple[str, str] | None:
    """Return the run and the question of a request for approval that was made here; None for any other id."""
    found = _APPROVAL.fullmatch(text)
    return (found[1], found[2]) if found else None
