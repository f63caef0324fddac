"""Questions that runs ask: approvals and reviews for people, and calls of the client's own tools.

Invariants: a person's answer comes from a key of the run's tenant with the scope `approve`, goes to the very question
that was shown, and is refused once that is closed; of two answers the journal's first counts (5). A yes that costs
money, changes something or releases an answer needs the passkey of a person who has one, through every door. Calls of
the client's tools carry an id that names their run (`call_RUN_QUESTION_PLACE`, at most 40 characters), so their results
find it from any server. Results are accepted for a waiting run of the same tenant, for exactly its open calls, and
only if the run is no wider than the key and headers that come with them; any other conversation starts a run of its
own.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import time

from shikisha.core.errors import ClosedReason, QuestionClosed, RunErased, UnknownRun
from shikisha.core.events import Event, QuestionAnswered, QuestionAsked, QuestionKind, RunStatus
from shikisha.core.messages import ToolCall, ToolExchange, ToolResult, dump_records, load_tool_calls
from shikisha.core.run import Run
from shikisha.core.tools import ToolEffect
from shikisha.engine import approvals
from shikisha.engine.approvals import Decision
from shikisha.engine.rounds import answer_problem
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.auth import check_tenant
from shikisha.server.http.request import RequestOptions
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.keys.passkeys import CodePurpose, action_text
from shikisha.server.lifecycle.service import RunService, root_run_id
from shikisha.server.store import RunFilter, ServedRun, ServedState

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


def actor_name(by: Principal) -> str:
    """Return the name of a principal for the journal."""
    return f"{by.name} ({by.key})"


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
    said = Decision(decision.approved, actor_name(by), scrub(decision.text), decision.via, scrub(decision.remark))
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


_TOOL_CALL_ID = re.compile(r"call_(\d{6}-\d{6}-[0-9a-z]{8})_([0-9a-f]{8})_(\d{1,3})")
_HASH_LENGTH = 8
_MAX_RUN_EXCHANGES = 24  # fewer than the engine allows in one step
VIA_API, VIA_PASSKEY = "api", "passkey"
_NO_OPTIONS = RequestOptions({})


@dataclass(frozen=True, slots=True)
class ToolResumption:
    """A run that the results belong to: what is to be answered (None: it was), and the last event before the answer."""

    served: ServedRun
    after: int
    answer: QuestionAnswered | None


def client_tool_calls(question: QuestionAsked) -> tuple[ToolCall, ...]:
    """Return the calls that a question asks for, under the ids that a client gets."""
    named = enumerate(load_tool_calls(question.prompt))
    return tuple(ToolCall(_client_call_id(question, place), call.name, call.arguments) for place, call in named)


async def find_tool_resumption(
    service: RunService,
    by: Principal,
    exchanges: Sequence[ToolExchange],
    model: str,
    options: RequestOptions = _NO_OPTIONS,
    tool_choice: str = "",
) -> ToolResumption | None:
    """Return the run that waits for the results of the last exchange; None when no run of the tenant's own does.

    `tool_choice` holds for the call that reads the results.
    """
    found = _TOOL_CALL_ID.fullmatch(exchanges[-1].calls[0].id) if exchanges else None
    if found is None:
        return None
    try:
        served = await service.store.find(found[1])
        events = await service.journal.read(found[1])
    except (UnknownRun, RunErased):
        return None
    if served is None or not by.owns(served.tenant) or served.model != model:
        return None
    run = Run.fold(events)
    question = _question_of_calls(events, found[2])
    if question is None or _is_over(run, question) or not _is_within_limits(run, by, options):
        return None
    if _had_enough(run, exchanges):
        return None
    results = _own_results(question, exchanges[-1])
    if question.question in run.answers:
        same = run.answers[question.question].text == results
        return ToolResumption(served, _number_before_answer(events, question), None) if same else None
    answer = QuestionAnswered(
        run=question.run,
        at=time(),
        question=question.question,
        approved=True,
        actor=actor_name(by),
        via=VIA_API,
        text=results,
        tool_choice=tool_choice,
    )
    return ToolResumption(served, len(events) - 1, answer)


def _had_enough(run: Run, exchanges: Sequence[ToolExchange]) -> bool:
    """Whether a new run should go on instead: this one had many exchanges, and the client brings all of them along.

    A coding agent calls tools a hundred times for one question, and each time a run goes on it reads its whole journal.
    """
    had = sum(run.asked[name].asks is QuestionKind.TOOLS for name in run.answers if name in run.asked)
    return had >= _MAX_RUN_EXCHANGES and len(exchanges) > had


def _is_within_limits(run: Run, by: Principal, options: RequestOptions) -> bool:
    """Whether a run does no more, and bears no fewer labels, than who brings something to it allows and says."""
    begun = run.started
    if not {*by.labels, *options.labels} <= set(begun.labels):
        return False
    if any(allowed is not None and not set(begun.pool) <= set(allowed) for allowed in (by.workers, options.workers)):
        return False
    if options.domain and options.domain != begun.domain:
        return False
    caps = {name: getattr(begun.caps, name) for name in options.caps}
    return all(caps[name] is not None and caps[name] <= wanted for name, wanted in options.caps.items())


def _is_over(run: Run, question: QuestionAsked) -> bool:
    """Whether the run has ended, was cancelled, or waited long enough for an answer that did not come."""
    late = 0 < question.expires <= time() and question.question not in run.answers
    return run.finished is not None or run.status is RunStatus.INTERRUPTED or late


def _question_of_calls(events: Sequence[Event], hashed: str) -> QuestionAsked | None:
    """Return the question of which the calls are, or the one that the run waits for instead."""
    asked = [each for each in events if isinstance(each, QuestionAsked) and each.asks is QuestionKind.TOOLS]
    return next((each for each in asked if each.question.startswith(hashed)), None)


def _own_results(question: QuestionAsked, exchange: ToolExchange) -> str:
    """Return the results under the worker's own ids; 400 when they are not those of exactly these calls."""
    came = {result.tool_call_id: result.content for result in exchange.results}
    expected = [_client_call_id(question, place) for place, _ in enumerate(load_tool_calls(question.prompt))]
    if set(came) != set(expected):
        said = f"run {question.run} waits for the results of exactly these calls: {', '.join(expected)}"
        raise ApiError(400, f"messages: {said}", "wrong_tool_calls", param="messages")
    own = load_tool_calls(question.prompt)
    return dump_records([ToolResult(call.id, came[name]) for name, call in zip(expected, own, strict=True)])


def _number_before_answer(events: Sequence[Event], question: QuestionAsked) -> int:
    for place, event in enumerate(events):
        if isinstance(event, QuestionAnswered) and event.question == question.question:
            return place - 1
    return len(events) - 1


def _client_call_id(question: QuestionAsked, place: int) -> str:
    return f"call_{question.run}_{question.question[:_HASH_LENGTH]}_{place}"
