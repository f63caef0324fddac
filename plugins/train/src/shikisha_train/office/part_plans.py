"""From choices for the parts of a task to plans: rounds of at most five steps, each granted what it is to see.

A `PartPolicy` says, for the parts that are not done yet, which block comes next and how it is done. The conductor turns
its choices into rounds: it grants each step the results that the step is to see, states what earlier rounds brought,
ends a round where something must be known before it can go on (a condition, two results that may differ), and ships.

Invariants: the same task, policy and outcomes give the same plans, so that a resumed run goes on; a step's subtask
quotes the task's own sentences. Deliberately absent: reading a task, and who is best (policies).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.plan import MAX_STEPS, Plan, Step
from shikisha.core.prompts import CHECK_OPENING
from shikisha.engine.conductor import Proposal, Situation

DOLLAR_WEIGHT = 20.0  # what a dollar is worth against a right answer of value 1
# What a worker may be told besides the work itself, by name. Workers differ in what helps them; outcomes tell it.
WORDINGS: Mapping[str, str] = MappingProxyType(
    {
        "format": "Reply with the result only.",
        "unit": "Mind the units: whole numbers, dates as YYYY-MM-DD.",
        "example": "For example: 1234.",
        "check": "Go over your result twice.",
    }
)
NOTHING_TOLD: frozenset[str] = frozenset()
_NO_RESULT = "no result"
_MOST_DIGITS = 12


class TreatmentKind(StrEnum):
    """How a block of parts is done."""

    CALL = "call"
    SECOND_OPINION = "second opinion"  # two calls, and a third with a vote where they differ
    VOTE = "vote"  # three calls and a vote in one round
    CHECK = "check"  # one call, and another worker's check of its result


_STEPS = {TreatmentKind.CALL: 1, TreatmentKind.CHECK: 2, TreatmentKind.SECOND_OPINION: 2, TreatmentKind.VOTE: 4}


@dataclass(frozen=True, slots=True)
class PartCondition:
    """Parts from `first_then` are asked for if part `on` gives more than `threshold`, else those from `first_else`."""

    on: int
    threshold: int
    first_then: int
    first_else: int


@dataclass(frozen=True, slots=True)
class PartedTask:
    """A task in parts, in an order of work: the sentence of each, and whose results it uses."""

    sentences: tuple[str, ...]
    uses: tuple[tuple[int, ...], ...]
    condition: PartCondition | None = None

    def __len__(self) -> int:
        return len(self.sentences)

    def taken(self, value: object) -> tuple[int, ...]:
        """Return the parts that are asked for when the condition's part has this value; all without a condition."""
        rule = self.condition
        if rule is None:
            return tuple(range(len(self)))
        above = isinstance(value, int) and value > rule.threshold
        branch = range(rule.first_then, rule.first_else) if above else range(rule.first_else, len(self))
        return (*range(rule.first_then), *branch)

    def needs(self, part: int) -> frozenset[int]:
        """Return the earlier parts whose results a part needs, the condition's part included."""
        rule = self.condition
        decides = {rule.on} if rule is not None and part >= rule.first_then else set[int]()
        return frozenset({*self.uses[part], *decides})

    def is_closed(self, block: Sequence[int], path: Sequence[int]) -> bool:
        """Whether one call can do these parts of a path: what comes after needs none of them but the last."""
        inner, after = set(block[:-1]), [part for part in path if part > block[-1]]
        rule = self.condition
        if rule is not None and rule.on in inner and after:
            return False
        return not any(inner & set(self.uses[part]) for part in after)


@dataclass(frozen=True, slots=True)
class PartChoice:
    """The next block of parts, how it is done, by whom (places in the pool), and how each of them is told.

    `told` holds the names of wordings for each worker. A block sees the results of the earlier parts that it needs.
    """

    block: tuple[int, ...]
    kind: TreatmentKind
    workers: tuple[int, ...]
    told: tuple[frozenset[str], ...]


# Given the parts still to do on the path as far as it is known: what comes next.
PartPolicy = Callable[[tuple[int, ...]], PartChoice]


@dataclass(slots=True)
class _RoundDraft:
    """Steps of the round that is being written, and which step gives which part."""

    steps: list[Step] = field(default_factory=list)
    gives: dict[int, int] = field(default_factory=dict)
    pending: PartChoice | None = None
    decided: tuple[int, ...] | None = None  # a block that has a condition's part and went on beyond it


@dataclass(slots=True)
class _PartProgress:
    """What the rounds so far brought: values by part, and a block with two results that may differ."""

    known: dict[int, str] = field(default_factory=dict)
    split: tuple[PartChoice, list[str]] | None = None
    keeps: int | None = None
    decided: tuple[int, ...] | None = None


class PartsConductor:
    """Plans one question by a policy; the same question, crew and outcomes give the same plans."""

    def __init__(self, name: str, task: PartedTask, policy: PartPolicy, votes: int) -> None:
        self.name = name
        self._task, self._policy, self._votes = task, policy, votes

    async def propose(self, situation: Situation) -> Proposal:
        """Return the next round's plan; the empty plan once the last part has a value."""
        progress = self._replay(situation)
        path = self._path(progress)
        if path[-1] in progress.known and progress.split is None:
            return Proposal(Plan(), keeps=progress.keeps)
        return Proposal(Plan(tuple(self._draft(progress, path).steps)))

    def _path(self, progress: _PartProgress) -> tuple[int, ...]:
        """Return the parts to do as far as it can be said: up to the condition while that is open."""
        rule = self._task.condition
        if rule is None:
            return tuple(range(len(self._task)))
        if progress.decided is not None:  # whoever did the block took its branch
            branch = range(rule.first_then, rule.first_else)
            return self._task.taken(rule.threshold + 1 if progress.decided[-1] in branch else 0)
        if rule.on not in progress.known:
            return tuple(range(rule.first_then))
        return self._task.taken(read_number(progress.known[rule.on]))

    def _draft(self, progress: _PartProgress, path: tuple[int, ...]) -> _RoundDraft:
        draft = _RoundDraft()
        if progress.split is not None:  # two results differ: a third is asked for
            choice, _ = progress.split
            self._add_call(draft, choice, 2, progress.known)
            return draft
        rule = self._task.condition
        while True:
            left = tuple(part for part in path if part not in progress.known and part not in draft.gives)
            open_rest = rule is not None and rule.on not in progress.known
            if not left:
                return draft
            choice = self._policy(left)
            if len(draft.steps) + _STEPS[choice.kind] > MAX_STEPS:
                return draft
            self._add(draft, choice, progress.known)
            if choice.kind is TreatmentKind.SECOND_OPINION or (
                open_rest and rule is not None and rule.on in choice.block
            ):
                return draft

    def _add(self, draft: _RoundDraft, choice: PartChoice, known: Mapping[int, str]) -> None:
        match choice.kind:
            case TreatmentKind.CALL:
                step = self._add_call(draft, choice, 0, known)
            case (
                TreatmentKind.SECOND_OPINION
            ):  # the one that wins where all differ comes last: its answer is the round's
                self._add_call(draft, choice, 1, known)
                step = self._add_call(draft, choice, 0, known)
            case TreatmentKind.VOTE:
                calls = tuple(self._add_call(draft, choice, at, known) for at in range(3))
                step = len(draft.steps)
                draft.steps.append(Step(write_subtask(self._task, choice.block), self._votes, calls))
            case TreatmentKind.CHECK:
                first = self._add_call(draft, choice, 0, known)
                step = self._add_call(draft, choice, 1, known, checks=first)
        draft.gives[choice.block[-1]] = step
        rule = self._task.condition
        for part in choice.block[:-1]:  # done within the block: nobody asks for their values, but for a condition's
            draft.gives.setdefault(part, step)
            if rule is not None and part == rule.on:
                draft.decided = choice.block

    def _add_call(
        self, draft: _RoundDraft, choice: PartChoice, at: int, known: Mapping[int, str], checks: int | None = None
    ) -> int:
        needs = frozenset[int]().union(*(self._task.needs(part) for part in choice.block)) - set(choice.block)
        access = {draft.gives[part] for part in needs if part in draft.gives}
        stated = {part: known[part] for part in sorted(needs) if part in known}
        if checks is not None:
            access.add(checks)
        text = write_subtask(self._task, choice.block, choice.told[at], stated, check=checks is not None)
        draft.steps.append(Step(text, choice.workers[at], tuple(sorted(access))))
        return len(draft.steps) - 1

    def _replay(self, situation: Situation) -> _PartProgress:
        """Go through the rounds again, with the same choices, and note what each brought."""
        progress = _PartProgress()
        for index, turn in enumerate(situation.rounds):
            draft = self._redraft(progress)
            texts = [None if result is None else result.text for result in turn.results]
            if progress.split is not None:
                self._settle(progress, [*progress.split[1], texts[-1] or _NO_RESULT], index)
                continue
            for part, step in draft.gives.items():
                progress.known[part] = texts[step] or _NO_RESULT
            progress.keeps = index
            progress.decided = draft.decided or progress.decided
            if draft.pending is not None:
                pair = [texts[len(draft.steps) - 1] or _NO_RESULT, texts[len(draft.steps) - 2] or _NO_RESULT]
                if pair[0] != pair[1]:
                    progress.split = (draft.pending, pair)
                    progress.known.pop(draft.pending.block[-1], None)
        return progress

    def _redraft(self, progress: _PartProgress) -> _RoundDraft:
        draft = self._draft(progress, self._path(progress))
        if progress.split is None and draft.steps:
            last = max(draft.gives, default=None, key=lambda part: draft.gives[part])
            choice = None if last is None else self._choice_for(last, progress, draft)
            draft.pending = choice if choice is not None and choice.kind is TreatmentKind.SECOND_OPINION else None
        return draft

    def _choice_for(self, last: int, progress: _PartProgress, draft: _RoundDraft) -> PartChoice | None:
        path = self._path(progress)
        done = {part for part, step in draft.gives.items() if step < draft.gives[last]} | progress.known.keys()
        left = tuple(part for part in path if part not in done)
        return self._policy(left) if left else None

    def _settle(self, progress: _PartProgress, texts: list[str], index: int) -> None:
        """Take the majority of three results; the first where all differ."""
        if progress.split is None:
            return
        choice, _ = progress.split
        winner, votes = Counter(texts).most_common(1)[0]
        if votes == 1:
            winner = texts[0]
        else:
            progress.keeps = index if texts[2] == winner else progress.keeps
        progress.known[choice.block[-1]] = winner
        progress.split = None


def read_number(text: str) -> int | None:
    """Return the whole number that a result is; None for any other text."""
    text = text.strip().rstrip(".")
    return int(text) if text.isdigit() and len(text) <= _MOST_DIGITS else None


def write_subtask(
    task: PartedTask,
    parts: Sequence[int],
    told: frozenset[str] = NOTHING_TOLD,
    known: Mapping[int, str] = MappingProxyType({}),
    *,
    check: bool = False,
) -> str:
    """Return a subtask that quotes the sentences of these parts, states what is known, and tells what it should."""
    opening = [CHECK_OPENING] if check else []
    stated = [f'Known: "{task.sentences[part]}" gave {value}.' for part, value in known.items()]
    said = [task.sentences[part] for part in parts]
    return " ".join([*opening, *stated, *said, *(WORDINGS[name] for name in sorted(told))])
