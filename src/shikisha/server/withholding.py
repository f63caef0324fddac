"""What is kept from view while a person has not let a run's answer pass: every text that its workers wrote.

Invariants: whoever may approve sees everything; anyone else sees that something was said and not what, from the run's
first event on, and for good where the answer was refused. Events keep their numbers and all their figures. Deliberately
absent: who may see a run at all (`doors`), and when a person is asked (`oversight`).
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from shikisha.errors import FaultKind, UnknownRun
from shikisha.events import (
    AnswerGraded,
    AttemptFailed,
    AttemptFinished,
    CheckDecided,
    EndReached,
    Event,
    QuestionAnswered,
    QuestionAsked,
    QuestionKind,
    RunFinished,
    StepFinished,
)
from shikisha.oversight import Mode, Oversight
from shikisha.run import Run
from shikisha.server.audible import looked_at
from shikisha.server.house import House, root_of
from shikisha.server.principal import Principal, Scope

WITHHELD = "(withheld until a person lets the answer pass)"


def unreviewed(run: Run, oversight: Oversight) -> bool:
    """Whether a person is to see what this root run comes to, and has not let it pass."""
    if run.answer is not None:
        return False
    if any(asked.asks is QuestionKind.REVIEW for asked in run.asked.values()):
        return True
    autonomy = oversight.of(run.task, run.started.conductor)
    return looked_at(autonomy) and (run.finished is None or autonomy.mode is Mode.REVIEW)


async def hides(house: House, by: Principal, name: str) -> bool:
    """Whether texts of a run, or of a child run, are kept from this principal now."""
    if by.may(Scope.APPROVE):
        return False
    return unreviewed(await house.past(root_of(name)), house.composition.oversight())


async def family(house: House, by: Principal, name: str) -> dict[str, Run]:
    """Return a run and its child runs by id, as this principal may see them, the run itself first."""
    if not await hides(house, by, name):
        return await house.family(name)
    found, names = {name: Run.fold(map(withheld, await house.journal.read(name)))}, [name]
    for each in names:
        for child in await house.journal.children(each):
            with suppress(UnknownRun):
                found[child.id] = Run.fold(map(withheld, await house.journal.read(child.id)))
                names.append(child.id)
    return found


def passed(run: Run, events: Iterable[Event], oversight: Oversight) -> Run:
    """Return a run as clients may be told of it, who may all be people that must not approve."""
    return Run.fold(map(withheld, events)) if unreviewed(run, oversight) else run


def withheld(event: Event) -> Event:
    """Return an event without what workers, and people in their place, wrote. A root's end holds what was let pass."""
    match event:
        case AttemptFinished(step=int()) if event.text:
            return replace(event, text=WITHHELD)
        case AttemptFailed(step=int()) if event.partial:
            return replace(event, partial=WITHHELD)
        case StepFinished(fault=FaultKind.CHECK_FAILED):
            return replace(event, message=WITHHELD)
        case CheckDecided():
            return replace(event, reason=event.reason and WITHHELD)
        case QuestionAsked(asks=QuestionKind.REVIEW):
            return replace(event, prompt=WITHHELD)
        case QuestionAnswered():
            return replace(event, text=event.text and WITHHELD)
        case EndReached():
            return replace(event, answer=event.answer and WITHHELD, asks=event.asks and WITHHELD)
        case RunFinished():
            why = WITHHELD if event.fault is FaultKind.CHECK_FAILED else event.why
            root = event.run == root_of(event.run)
            return replace(event, why=why, answer=event.answer if root else event.answer and WITHHELD)
        case AnswerGraded():
            return replace(event, found=event.found and WITHHELD, evidence=event.evidence and WITHHELD)
        case _:
            return event
