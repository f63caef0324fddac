"""Questions that runs ask people: approvals and reviews.

Invariants: a person's answer comes from a key of the run's tenant with the scope `approve`, goes to the very question
that was shown, and is refused once that is closed; of two answers the journal's first counts (5). A yes that costs
money, changes something or releases an answer needs the passkey of a person who has one, through every door.
"""

from time import time

from shikisha.core.errors import ClosedReason, QuestionClosed, UnknownRun
from shikisha.core.events import QuestionAnswered, QuestionAsked, QuestionKind
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.run import Run
from shikisha.core.tools import ToolEffect
from shikisha.engine import approvals
from shikisha.engine.approvals import Decision
from shikisha.engine.rounds import answer_problem
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.auth import check_tenant
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.keys.passkeys import CodePurpose, action_text
from shikisha.server.lifecycle.service import RunService, root_run_id
from shikisha.server.store import RunFilter, ServedRun, ServedState

VIA_PASSKEY = "passkey"
_CLOSED_STATUSES = {
    ClosedReason.UNKNOWN: 404,
    ClosedReason.ANSWERED: 409,
    ClosedReason.EXPIRED: 410,
    ClosedReason.OVER: 409,
}


@dataclass(frozen=True, slots=True)
class PersonQuestion:
    """A question to a person, the run that asks it (a root or a child run), and the root's row."""

    served: ServedRun
    run: Run
    asked: QuestionAsked

    @property
    def id(self) -> str:
        """The name under which it is found again."""
        return f"{self.run.id}_{self.asked.question}"


@dataclass(frozen=True, slots=True)
class PersonQuestionPage:
    """A page of what waits for people, and the cursor of the next page; None when this is the last."""

    found: tuple[PersonQuestion, ...]
    after: tuple[float, str] | None = None


async def list_questions(
    service: RunService, by: Principal, after: tuple[float, str] | None = None, most: int = 50
) -> PersonQuestionPage:
    """Return the open questions of the principal's tenant (an admin: of all), of the newest runs first.

    `most` runs are looked at for a page.
    """
    tenant = None if KeyScope.ADMIN in by.scopes else by.tenant
    page = await service.store.search(RunFilter(tenant, states=(ServedState.WAITING,), after=after, limit=most))
    found = [each for served in page.runs for each in await questions_of_run(service, served)]
    return PersonQuestionPage(tuple(found), page.after)


async def questions_of_run(service: RunService, served: ServedRun) -> list[PersonQuestion]:
    """Return what a served run and its child runs ask people now."""
    try:
        family = await service.read_family(served.run)
    except UnknownRun:  # it was deleted meanwhile
        return []
    open_now = [(run, asked) for run in family.values() for asked in run.open_questions]
    return [PersonQuestion(served, run, asked) for run, asked in open_now if asked.asks is not QuestionKind.TOOLS]


async def find_question(service: RunService, by: Principal, name: str) -> PersonQuestion:
    """Return a question, open or not, by its name; ApiError (404) when there is none that the principal may see."""
    run_id, _, question = name.rpartition("_")
    try:
        served = await service.find_served(root_run_id(run_id))
        check_tenant(by, served.tenant, "question of this name")
        run = await service.read_run(run_id)
    except UnknownRun:
        raise _no_such_question() from None
    asked = run.asked.get(question)
    if asked is None or asked.asks is QuestionKind.TOOLS:
        raise _no_such_question()
    return PersonQuestion(served, run, asked)


async def answer_question(
    service: RunService, by: Principal, asking: PersonQuestion, decision: Decision, passkey: str = ""
) -> QuestionAnswered:
    """Record a decision and resume the run; ApiError for a closed question, TaskError for an invalid answer.

    The decision's actor is the principal, whatever it says itself. `passkey` is what the person's device signed.
    """
    answered = await check_decision(service, by, asking, decision, passkey)
    await service.answer(answered)
    await check_answer_counts(service, answered)
    return answered


async def check_decision(
    service: RunService, by: Principal, asking: PersonQuestion, decision: Decision, passkey: str = ""
) -> QuestionAnswered:
    """Return a decision as it is to be written down; ApiError and TaskError as with `answer`."""
    scrub = service.container.secret_store.scrub
    said = Decision(decision.approved, by.actor, scrub(decision.text), decision.via, scrub(decision.remark))
    if asking.served.state not in {ServedState.WAITING, ServedState.OPEN}:
        raise ApiError(409, f"run {asking.served.run} was stopped: it waits for no answer", ClosedReason.OVER)
    try:
        answered = approvals.answer_question(asking.run, asking.asked.question, said, time())
    except QuestionClosed as error:
        raise closed_question_error(error) from None
    changed = answered.text if asking.asked.asks is QuestionKind.REVIEW else ""
    if changed and (problem := await answer_problem(asking.run.task, changed)):
        raise ApiError(400, f"text: {problem}", "invalid_value", param="text")
    if decision.approved and await needs_passkey(service, by, asking):
        if not passkey:
            page = f"{(service.settings.url or '').rstrip('/')}/ui/approvals/{asking.run.id}/{asking.asked.question}"
            raise ApiError(403, f"this yes needs your passkey: give it at {page}", "passkey_required")
        action = approval_action(asking, decision.text)
        await service.passkeys.verify(by.key, passkey, CodePurpose.APPROVE, action)
        answered = replace(answered, via=VIA_PASSKEY)
    return answered


async def needs_passkey(service: RunService, by: Principal, asking: PersonQuestion) -> bool:
    """Whether a yes of this principal to this question counts only with a passkey."""
    if not _has_consequences(service, asking.asked):
        return False
    return service.settings.passkeys == "always" or bool(await service.passkeys.of_key(by.key))


def _has_consequences(service: RunService, asked: QuestionAsked) -> bool:
    """Whether a yes may cost money, change something, or release an answer.

    True unless the call is known to be free and the configuration itself says that its worker only reads.
    """
    if asked.asks is not QuestionKind.APPROVE:
        return asked.asks is QuestionKind.REVIEW
    table = service.container.workers.get(asked.worker)
    return table is None or asked.bound.dollars != 0 or table.effect is not ToolEffect.READ


def approval_action(asking: PersonQuestion, text: str) -> str:
    """Return what a passkey signs: the question, the hash of the exact call, what is shown of it, the text released."""
    asked = asking.asked
    bound = (asked.bound.dollars, asked.bound.tokens)
    return action_text(asking.id, (asked.question, asked.asks, asked.worker, asked.prompt, *bound, text))


async def check_answer_counts(service: RunService, answered: QuestionAnswered) -> None:
    """Raise ApiError (409) unless this answer is the one that counts."""
    counts = (await service.read_run(answered.run)).answers.get(answered.question)
    if counts != answered:
        first = counts.actor if counts else "nobody"
        raise ApiError(
            409, f"question {answered.question} is answered already: {first} was first", ClosedReason.ANSWERED
        )


def check_open(asking: PersonQuestion) -> None:
    """Raise ApiError unless the question is open."""
    try:
        approvals.require_open_question(asking.run, asking.asked.question, time())
    except QuestionClosed as error:
        raise closed_question_error(error) from None


def closed_question_error(error: QuestionClosed) -> ApiError:
    """Return the error for a question that is not open."""
    return ApiError(_CLOSED_STATUSES[error.why], str(error), f"question_{error.why}")


def _no_such_question() -> ApiError:
    return ApiError(404, "there is no question of this name", "not_found")
