"""What runs wait for from people: found, shown to those who may see it, and answered.

Invariants: an answer comes from a principal of the run's own tenant with the scope to approve, goes to the very
question that was shown, and is refused when that is not open any more; of two who answer at once the journal's first
counts, and the other is told so (5). What waits for a client's tools is that client's business and not here.
Deliberately absent: HTTP (`approvals`), pages, and whether a run waits at all (the engine).
"""

from dataclasses import dataclass
from time import time

from shikisha import approval
from shikisha.approval import Decision
from shikisha.closing import misfit
from shikisha.errors import Closed, QuestionClosed, UnknownRun
from shikisha.events import QuestionAnswered, QuestionAsked, QuestionKind
from shikisha.run import Run
from shikisha.server.doors import owned
from shikisha.server.house import House, root_of
from shikisha.server.principal import Principal, Scope
from shikisha.server.problems import Problem
from shikisha.server.store import Filter, Served, State

_STATUS = {Closed.UNKNOWN: 404, Closed.ANSWERED: 409, Closed.EXPIRED: 410, Closed.OVER: 409}


@dataclass(frozen=True, slots=True)
class Asking:
    """A question to a person, the run that asks it (a root or a child run), and the root's row."""

    served: Served
    run: Run
    asked: QuestionAsked

    @property
    def id(self) -> str:
        """The name under which it is found again."""
        return f"{self.run.id}_{self.asked.question}"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A page of what waits for people, and the cursor of the next page; None when this is the last."""

    found: tuple[Asking, ...]
    after: tuple[float, str] | None = None


def actor(by: Principal) -> str:
    """Return who somebody is, as journals name them."""
    return f"{by.name} ({by.key})"


async def waiting(house: House, by: Principal, after: tuple[float, str] | None = None, most: int = 50) -> Waiting:
    """Return the open questions of the principal's tenant (an admin: of all), of the newest runs first.

    `most` runs are looked at for a page.
    """
    tenant = None if Scope.ADMIN in by.scopes else by.tenant
    page = await house.store.search(Filter(tenant, states=(State.WAITING,), after=after, limit=most))
    found = [each for served in page.runs for each in await of(house, served)]
    return Waiting(tuple(found), page.after)


async def of(house: House, served: Served) -> list[Asking]:
    """Return what a served run and its child runs ask people now."""
    try:
        family = await house.family(served.run)
    except UnknownRun:  # it was deleted meanwhile
        return []
    open_now = [(run, asked) for run in family.values() for asked in run.open_questions]
    return [Asking(served, run, asked) for run, asked in open_now if asked.asks is not QuestionKind.TOOLS]


async def find(house: House, by: Principal, name: str) -> Asking:
    """Return a question, open or not, by its name; Problem (404) when there is none that the principal may see."""
    run_id, _, question = name.rpartition("_")
    try:
        served = await house.served(root_of(run_id))
        owned(by, served.tenant, "question of this name")
        run = await house.past(run_id)
    except UnknownRun:
        raise _absent() from None
    asked = run.asked.get(question)
    if asked is None or asked.asks is QuestionKind.TOOLS:
        raise _absent()
    return Asking(served, run, asked)


async def answer(house: House, by: Principal, asking: Asking, decision: Decision) -> QuestionAnswered:
    """Write a decision down and go on with the run; Problem when the question is open no more, TaskError for its form.

    The decision's actor is the principal, whatever it says itself.
    """
    answered = await decided(house, by, asking, decision)
    await house.answer(answered)
    await counted(house, answered)
    return answered


async def decided(house: House, by: Principal, asking: Asking, decision: Decision) -> QuestionAnswered:
    """Return a decision as it is to be written down; Problem and TaskError as with `answer`."""
    scrub = house.composition.vault.scrub
    said = Decision(decision.approved, actor(by), scrub(decision.text), decision.via, scrub(decision.remark))
    if asking.served.state not in {State.WAITING, State.OPEN}:
        raise Problem(409, f"run {asking.served.run} was stopped: it waits for nobody", Closed.OVER)
    try:
        answered = approval.answer(asking.run, asking.asked.question, said, time())
    except QuestionClosed as error:
        raise closed(error) from None
    changed = answered.text if asking.asked.asks is QuestionKind.REVIEW else ""
    if changed and (problem := await misfit(asking.run.task, changed)):
        raise Problem(400, f"text: {problem}", "invalid_value", param="text")
    return answered


async def counted(house: House, answered: QuestionAnswered) -> None:
    """Return if what was written down is what counts; Problem (409) when somebody else was quicker."""
    counts = (await house.past(answered.run)).answers.get(answered.question)
    if counts != answered:
        first = counts.actor if counts else "nobody"
        raise Problem(409, f"question {answered.question} is answered already: {first} was first", Closed.ANSWERED)


def closed(error: QuestionClosed) -> Problem:
    """Return what is told of a question that is not open."""
    return Problem(_STATUS[error.why], str(error), f"question_{error.why}")


def _absent() -> Problem:
    return Problem(404, "there is no question of this name", "not_found")
