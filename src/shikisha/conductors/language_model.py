"""A conductor that asks a language model behind any chat endpoint for the plan.

Endpoints that support it are held to a JSON Schema; every text goes through the one strict parser. A text that is no
plan goes back to the model once, with the error; then the configured fallback conductor plans. Invariants: the model
can name workers of the pool and nothing else (1, 5); every rejected text, and the fallback's name, are in the
`Proposal`, so no substitution is hidden (9). A first plan that only repeats the task for the first of several workers
says nothing that the model understood: the proposal's note tells it, or the fallback plans. Deliberately absent:
memory between calls, repair of near misses, and retries after faults, which the engine's attempts do.

The part of a large pool that a conductor is shown for a task, chosen by the words of the task and of the cards.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING

from shikisha.core.call import Card
from shikisha.core.errors import FaultKind, MissingExtra, PlanError, WorkerError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.plan import Plan
from shikisha.core.plan_parser import parse_plan
from shikisha.core.prompts import (
    PLAN_CHARACTERS,
    PlanFormat,
    PromptStyle,
    RepeatedTask,
    parse_error_message,
    plan_schema,
    planner_instructions,
    planner_message,
)
from shikisha.core.run import RoundResult
from shikisha.core.task import Task
from shikisha.engine.conductor import Conductor, ModelCall, NoPlan, Proposal, Rejection, Situation
from shikisha.engine.pool import Member
from shikisha.engine.worker import ChatMessage, Json, Request, Speaker

if TYPE_CHECKING:
    from shikisha.retrieval.text_index import TextIndex


_WEIGHTS = (2.0, 1.0)  # of a name, and of a description
_QUERY_CHARACTERS = 8_000
_UNMATCHED_SHARE = 4  # one place in so many is for the pool's first workers
_NAMED_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Shortlist:
    """Ordinals of a pool of `size` workers, ascending; a plan for a shortlist names places in it."""

    ordinals: tuple[int, ...]
    size: int

    @property
    def whole(self) -> bool:
        """Whether nobody is left out."""
        return len(self.ordinals) == self.size

    def narrow(self, at: Situation) -> Situation:
        """Return the situation as a pool of the shortlist would have it."""
        if self.whole:
            return at
        place = {ordinal: place for place, ordinal in enumerate(self.ordinals)}
        rounds = tuple(replace(each, plan=_renumber(each.plan, place)) for each in at.rounds)
        return replace(at, cards=tuple(at.cards[ordinal] for ordinal in self.ordinals), rounds=rounds)

    def widen(self, proposal: Proposal, cards: Sequence[Card]) -> Proposal:
        """Return the proposal in the ordinals of the pool, with a note of who was shown."""
        if self.whole:
            return proposal
        names = ", ".join(cards[ordinal].name for ordinal in self.ordinals)
        said = f"shown {len(self.ordinals)} of {self.size} workers: {names}"
        said = said if len(said) <= _NAMED_CHARACTERS else f"{said[:_NAMED_CHARACTERS]}…"
        plan = _renumber(proposal.plan, dict(enumerate(self.ordinals)))
        return replace(proposal, plan=plan, note=f"{proposal.note}; {said}" if proposal.note else said)


def choose_shortlist(task: Task, cards: Sequence[Card], rounds: Sequence[RoundResult], most: int) -> Shortlist:
    """Return at most `most` workers to show for a task, or all of them; those of earlier rounds are always shown."""
    if len(cards) <= most:
        return Shortlist(tuple(range(len(cards))), len(cards))
    seen = dict.fromkeys(step.worker for each in rounds for step in each.plan.steps)
    matching = _index_of(tuple((card.name, card.description) for card in cards)).search(task.prompt[:_QUERY_CHARACTERS])
    by_clause = [
        [int(matching.positions[row]) for row in column.argsort()[::-1] if column[row] > 0]
        for column in matching.clause_scores.T
    ]
    ranked = chain(seen, islice(_in_turns([[int(each) for each in matching.positions], *by_clause]), len(cards)))
    matched = list(dict.fromkeys(ranked))[: max(len(seen), most - most // _UNMATCHED_SHARE)]
    chosen = list(dict.fromkeys([*matched, *range(len(cards))]))[: max(most, len(seen))]
    return Shortlist(tuple(sorted(chosen)), len(cards))


def _in_turns(lists: Sequence[Sequence[int]]) -> Iterator[int]:
    """Yield the first of each list, then the second of each, and so on."""
    for place in range(max(map(len, lists), default=0)):
        yield from (each[place] for each in lists if place < len(each))


@lru_cache(maxsize=4)
def _index_of(texts: tuple[tuple[str, str], ...]) -> "TextIndex":
    try:  # numpy is an extra, which only a pool that is too large to show needs
        from shikisha.retrieval.text_index import IndexedText, TextIndex
    except ModuleNotFoundError as error:
        raise MissingExtra("tools", f"a shortlist of {len(texts)} workers") from error
    return TextIndex([IndexedText("", each) for each in texts], _WEIGHTS)


def _renumber(plan: Plan, place: dict[int, int]) -> Plan:
    return Plan(tuple(replace(step, worker=place[step.worker]) for step in plan.steps))


PLAN_ATTEMPTS = 2
_SHORTER = "That ran into the limit of your output. Write the whole plan once more, in half as many words."
_REPEATED = "its plan only repeats the task for the first worker"
# Enough of a rejected text to show it to the model again.
_REJECTED_CHARACTERS = 20_000


def repeats_task(plan: Plan, at: Situation) -> bool:
    """Whether a first plan is one step that gives the task's own words to the first of several workers."""
    if at.rounds or len(at.cards) < 2 or len(plan.steps) != 1 or plan.steps[0].worker != 0:
        return False
    own, said = (" ".join(re.findall(r"\w+", text.lower())) for text in (at.task.prompt, plan.steps[0].subtask))
    return own == said


@dataclass(frozen=True, slots=True)
class LanguageModelConductor:
    """Asks `member` (an endpoint, not a worker of the pool) for each plan; `fallback` proposes when it writes none.

    `style` says how it is addressed; Form.JSON is for structured output. It plans `rounds` times at most. Of a larger
    pool the prompt shows a shortlist of `shown` workers (None: all of any pool). `repeats` says what happens to a plan
    that only repeats the task.
    """

    name: str
    member: Member
    fallback: Conductor | None = None
    style: PromptStyle = PromptStyle()
    rounds: int = 3
    shown: int | None = None
    repeats: RepeatedTask = RepeatedTask.TELL

    async def propose(self, situation: Situation) -> Proposal:
        """Ask for a plan; without a fallback, PlanError for no plan and WorkerError for no answer.

        A call that waits for a person keeps waiting: its WorkerError is raised even where there is a fallback.
        """
        if situation.ask is None:
            raise PlanError("this conductor has no way to call its model", self.name)
        rejected: list[Rejection] = []
        most = len(situation.cards) if self.shown is None else self.shown
        shortlist = choose_shortlist(situation.task, situation.cards, situation.rounds, most)
        try:
            proposal = await self._asked(shortlist.narrow(situation), situation.ask, rejected)
            proposal = shortlist.widen(proposal, situation.cards)
        except WorkerError as error:
            if self.fallback is None or error.fault.kind is FaultKind.WAITING:
                raise
            proposal = await self._stand_in(self.fallback, situation, f"its model gave no answer ({error.fault.kind})")
        except PlanError as error:
            if self.fallback is None:
                raise
            proposal = await self._stand_in(self.fallback, situation, error.what)
        else:
            if repeats_task(proposal.plan, situation):
                proposal = await self._repeated(proposal, situation)
        return replace(proposal, rejected=tuple(rejected))

    async def _repeated(self, proposal: Proposal, at: Situation) -> Proposal:
        if self.repeats is RepeatedTask.FALLBACK and self.fallback is not None:
            return await self._stand_in(self.fallback, at, _REPEATED)
        return replace(proposal, note=f"{proposal.note}; {_REPEATED}" if proposal.note else _REPEATED)

    async def _stand_in(self, fallback: Conductor, at: Situation, problem: str) -> Proposal:
        proposal = await fallback.propose(at)
        return replace(proposal, note=f"{self.name}: {problem}; {proposal.note}", substituted=fallback.name)

    async def _asked(self, at: Situation, ask: ModelCall, rejected: list[Rejection]) -> Proposal:
        """Return the model's proposal; texts that were no plans go to `rejected`."""
        turns, share = self._turns(at), 1
        for _ in range(PLAN_ATTEMPTS):
            schema = self._schema(at, share)
            try:
                reply = await ask(self.member, Request(at.task, "Write a plan.", turns=turns, schema=schema))
                plan = self._plan(reply.text, at)
            except WorkerError as error:
                if error.fault.kind is not FaultKind.TRUNCATED:
                    raise
                rejected.append(Rejection(error.fault.partial or "", error.fault.message, "plan"))
                turns = (*turns, *_retry_turns(error.fault.partial or "", _SHORTER))
                share *= 2  # half as long in every text, and half as many steps: a small model fills what it is given
                continue
            except PlanError as error:
                rejected.append(Rejection(reply.text, error.what, error.where))
                turns = (*turns, *_retry_turns(reply.text, parse_error_message(error)))
                continue
            return Proposal(plan, reply.text, version=reply.model, final=len(at.rounds) + 1 >= self.rounds)
        raise NoPlan(f"its model wrote no plan in {PLAN_ATTEMPTS} tries", self.name, rejected)

    def _plan(self, text: str, at: Situation) -> Plan:
        plan = parse_plan(text, len(at.cards), _max_steps(at))
        if plan.ships and not at.rounds:
            raise PlanError("there is no answer to keep yet: the first plan needs a step", "plan")
        return plan

    def _turns(self, at: Situation) -> tuple[ChatMessage, ...]:
        return (
            ChatMessage(Speaker.SYSTEM, planner_instructions(_max_steps(at), self.style, at.left.map_items)),
            ChatMessage(Speaker.USER, planner_message(at.task, at.cards, at.rounds, self.style)),
        )

    def _schema(self, at: Situation, share: int) -> Mapping[str, Json] | None:
        if self.style.form is not PlanFormat.JSON:
            return None
        maps, first = at.left.map_items > 0, not at.rounds
        most, characters = max(1, _max_steps(at) // share), PLAN_CHARACTERS // share
        return plan_schema(len(at.cards), most, maps=maps, first=first, characters=characters)


def _max_steps(at: Situation) -> int:
    return max(1, min(at.left.plan_steps, at.left.steps))


def _retry_turns(text: str, problem: str) -> tuple[ChatMessage, ChatMessage]:
    said = text[:_REJECTED_CHARACTERS] or "(nothing)"
    return ChatMessage(Speaker.ASSISTANT, said), ChatMessage(Speaker.USER, problem)
