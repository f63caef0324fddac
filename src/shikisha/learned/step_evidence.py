"""From finished runs to evidence about steps: who answered which subtask, told what, and what is known of the answers.

A unit is one subtask with the same inputs: one worker answered it, or several (second opinions, votes, steps that were
asked again), or a second one checked the first one's answer. A grade belongs to the run; `outcome_fit` shares it among
the units that the run's answer depends on.

Invariants: an erased run says nothing; a subtask is kept without names, numbers and quoted text; calls of checks of the
configuration, of planners and of tools are no answers. Deliberately absent: any judgment of what was right.
"""

import re
from collections.abc import Iterator, Sequence

from shikisha.core.events import AttemptFailed, AttemptFinished, CallRole, CheckStatus, GradeBasis
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.plan import Plan
from shikisha.core.prompts import CHECK_OPENING
from shikisha.core.run import Attempt, RoundRecord, Run, StepRecord
from shikisha.core.task import Scope

MERGED = "\nAfter that: "  # between the subtasks that one call does
PLANNED = "planned"  # in `PlanProposed.beside`: whom the planner itself named for each step
STANDS_BY = "stands by"  # in its place, where the learner left a task to the conductor in force
EXPLORED = "explored"  # in `PlanProposed.beside`: what a drawn plan is to cost over the chosen one, in dollars
MOST_ANSWERS = 4  # of a unit
_RIGHT = 0.999  # a score from which on an answer is right
_MOST_READ, _MOST_WORDING = 4_000, 300  # characters
_MOST_COMPARED = 200  # characters: longer texts differ where results do not
_KNOWN = re.compile(r'Known: "(?P<asked>[^"]{1,1000})" gave (?P<value>[^"\n]{1,200}?)\. ')
_WHOLE = ("answer the question", "solve the whole question")
_QUOTED = re.compile(r"\"[^\"\n]{1,400}\"|“[^”\n]{1,400}”|'(?<=[\s(]')[^'\n]{1,400}'(?=[\s.,;:?!)])")
_WORD_OR_SIGN = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*|[?%+*/=$-]")
_DIGIT = re.compile(r"\d")
_COMMA = re.compile(r"(?<=\d),(?=\d{3})")
_OPENS_SENTENCE = '.?!:\n"'


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """One worker's answer: `told` has for each standing phrase whether it was said, `planned` whether the planner chose
    this worker. `same` numbers equal answers of a unit alike. `verdict`: an executed check said yes or no (None: no
    check spoke); `fault`: there was no answer; `model`: what the worker said that it was ("": nothing).
    """

    worker: str
    told: tuple[bool, ...]
    planned: bool
    same: int = 0
    verdict: bool | None = None
    fault: bool = False
    dollars: float = 0.0
    seconds: float = 0.0
    model: str = ""


@dataclass(frozen=True, slots=True)
class StepUnit:
    """A subtask's masked wording, its kind as the planner named it, and its answers.

    `used` is the place of the answer that the run went on with (None: none of them matters to the run's answer).
    `checker` saw the first answer, `changed` says whether it gave another one. `together` is how many subtasks the call
    did: each is a unit of its own.
    """

    wording: str
    kind: str
    answers: tuple[StepAnswer, ...]
    used: int | None
    checker: StepAnswer | None = None
    changed: bool = False
    together: int = 1


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """A run's units and its grade (None: not graded), whose word that is, and the run's scope.

    `acted`: the learner chose the plan (None: it was not asked); `explored` is what it drew was to cost, in dollars;
    `paid` are the dollars of all steps, `dollars` those of the whole run.
    """

    run: str
    at: float
    units: tuple[StepUnit, ...]
    right: bool | None
    basis: GradeBasis | None
    scope: Scope
    acted: bool | None = None
    explored: float = 0.0
    paid: float = 0.0
    dollars: float = 0.0


def mask_wording(text: str) -> str:
    """Return a subtask without names, numbers and quoted text: what kind of work it is."""
    said: list[str] = []
    at = 0
    shown = _QUOTED.sub(" Name ", text[:_MOST_READ])
    for match in _WORD_OR_SIGN.finditer(shown):
        opens = at == 0 or any(sign in shown[at : match.start()] for sign in _OPENS_SENTENCE)
        at = match.end()
        word = match[0]
        named = word[0].isupper() and not opens and not word.isupper()
        said.append("Name" if named else _DIGIT.sub("0", word))
    return " ".join(said)[:_MOST_WORDING]


def split_phrases(text: str, phrases: Sequence[str]) -> tuple[str, tuple[bool, ...]]:
    """Return a subtask without these phrases, and for each whether it was there."""
    said = tuple(phrase in text for phrase in phrases)
    for phrase, there in zip(phrases, said, strict=True):
        text = text.replace(phrase, " ") if there else text
    return " ".join(text.split()), said


def core_wording(subtask: str, prompt: str, phrases: Sequence[str]) -> str:
    """Return what a step is asked, masked: the task itself where the subtask says only to answer it."""
    told = " ".join(subtask.split()).casefold()
    text = prompt if told.startswith(_WHOLE) else without_known(subtask)
    return mask_wording(split_phrases(text, phrases)[0])


def run_evidence(run: Run, phrases: Sequence[str]) -> RunEvidence | None:
    """Return what a run tells; None where it tells nothing: it is not finished, was erased, or had no steps."""
    if run.erased is not None or run.finished is None or run.started.depth:
        return None
    units = _joined_units([list(_RoundReader(turn, run, phrases).units()) for turn in run.rounds], run)
    if not units:
        return None
    grade = run.grade
    graded = grade is not None and grade.score is not None
    beside = [turn.proposed.beside for turn in run.rounds if turn.proposed is not None]
    arms = [one[PLANNED] for one in beside if PLANNED in one]
    steps = [step for turn in run.rounds for step in turn.steps.values()]
    paid = sum(each.charged.dollars or 0.0 for step in steps for each in step.attempts)
    return RunEvidence(
        run.id,
        run.started.at,
        tuple(units),
        grade.score >= _RIGHT if graded and grade is not None and grade.score is not None else None,
        grade.basis if graded and grade is not None else None,
        run.scope,
        STANDS_BY not in arms if arms else None,
        sum(_number(one.get(EXPLORED, "")) for one in beside),
        paid,
        run.charged.dollars or 0.0,
    )


@dataclass(frozen=True, slots=True)
class _Said:
    """An answer with its text, which no evidence keeps."""

    answer: StepAnswer
    text: str


@dataclass(frozen=True, slots=True)
class _UnitDraft:
    """A unit as one round has it: `asked` is its subtask, `knows` what it states of earlier results."""

    asked: str
    wording: str
    kind: str
    said: tuple[_Said, ...]
    used: int | None
    checker: _Said | None = None
    together: int = 1
    knows: frozenset[str] = frozenset()

    def unit(self) -> StepUnit:
        """Return the unit; equal answers get one number."""
        kept = self.said[:MOST_ANSWERS]
        if self.used is not None and self.used >= MOST_ANSWERS:
            kept = (*self.said[: MOST_ANSWERS - 1], self.said[self.used])
        used = None if self.used is None else min(self.used, MOST_ANSWERS - 1)
        texts = [f"\0{at}" if one.answer.fault else plain_answer(one.text) for at, one in enumerate(kept)]
        answers = tuple(replace(one.answer, same=texts.index(text)) for one, text in zip(kept, texts, strict=True))
        changed = self.checker is not None and not _confirms(self.checker.text, kept[0].text)
        checker = None if self.checker is None else self.checker.answer
        return StepUnit(self.wording, self.kind, answers, used, checker, changed, self.together)


@dataclass(frozen=True, slots=True)
class _RoundReader:
    """Reads the units of one round: steps with one subtask and the same inputs, and what joined or checked them."""

    turn: RoundRecord
    run: Run
    phrases: Sequence[str]

    def units(self) -> Iterator[_UnitDraft]:
        """Yield the round's units in the order of its steps."""
        plan = self.turn.plan
        if plan is None or not plan.steps:
            return
        used = used_steps(plan, self._last())
        groups: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        joins, checks = dict[int, int](), dict[int, int]()
        cores = [split_phrases(step.subtask, self.phrases)[0] for step in plan.steps]
        for index, step in enumerate(plan.steps):
            seen = [at for at in step.access if cores[at] == cores[index]]
            checked = [at for at in step.access if cores[index] == f"{CHECK_OPENING} {cores[at]}"]
            if seen:
                joins |= dict.fromkeys(seen, index)
            elif checked:
                checks[checked[-1]] = index
            else:
                groups.setdefault((cores[index], step.access), []).append(index)
        for places in groups.values():
            yield from self._group(plan, places, used, joins, checks)

    def _group(
        self,
        plan: Plan,
        places: Sequence[int],
        used: frozenset[int],
        joins: dict[int, int],
        checks: dict[int, int],
    ) -> Iterator[_UnitDraft]:
        said = {at: one for at in places if (one := self._said(plan, at)) is not None}
        failed = [one for at in places for one in self._failed(plan, at)]
        if not said and not failed:
            return
        step = plan.steps[places[-1]]
        parts = step.subtask.split(MERGED)
        kept = list(said.values())
        place = None
        checker = next((checks[at] for at in places if at in checks), None)
        check = None if checker is None or not said else self._said(plan, checker)
        join = next((joins[at] for at in places if at in joins), None)
        if check is not None:
            kept, failed, place = kept[-1:], [], 0 if checker in used else None
        elif join is not None and join in self.turn.steps and join in used:
            joined = self.turn.steps[join].result
            text = None if joined is None or joined.text is None else plain_answer(joined.text)
            place = next((at for at, one in enumerate(kept) if plain_answer(one.text) == text), None)
        elif any(at in used for at in said):
            place = max(at for at, index in enumerate(said) if index in used)
        elif not said and any(at in used for at in places):
            place = 0  # a needed answer that is missing explains a wrong run: the other steps are not to blame
        for part in parts:
            mine = [self._share(one, len(parts)) for one in (*kept, *failed)]
            core = split_phrases(part, self.phrases)[0]
            yield _UnitDraft(
                without_known(core),
                core_wording(part, self.run.started.prompt, self.phrases),
                step.kind,
                tuple(mine),
                place,
                check,
                len(parts),
                frozenset(value for _, value in known_statements(part)),
            )

    def _share(self, one: _Said, parts: int) -> _Said:
        if parts == 1:
            return one
        share = replace(one.answer, dollars=one.answer.dollars / parts, seconds=one.answer.seconds / parts)
        return replace(one, answer=share)

    def _last(self) -> int | None:
        end = self.run.finished
        return end.step if end is not None and end.round == self.turn.index else None

    def _said(self, plan: Plan, index: int) -> _Said | None:
        """Return what a step's worker answered; None where it did not."""
        record = self.turn.steps.get(index)
        attempt = None if record is None else record.accepted_attempt
        if record is None or attempt is None or not isinstance(attempt.outcome, AttemptFinished):
            return None
        spoken = [one.status for one in record.checks if one.attempt == attempt.started.attempt]
        verdict = None
        if CheckStatus.FAIL in spoken or CheckStatus.PASS in spoken:
            verdict = CheckStatus.FAIL not in spoken
        return _Said(self._answer(plan, index, attempt, verdict), attempt.outcome.text.strip())

    def _failed(self, plan: Plan, index: int) -> Iterator[_Said]:
        """Yield a step's other attempts: answers that a check refused, and calls that brought none."""
        record = self.turn.steps.get(index) or StepRecord(index)
        refused = {one.attempt for one in record.checks if one.status is CheckStatus.FAIL}
        for attempt in record.attempts:
            if attempt is record.accepted_attempt or attempt.started.role is not CallRole.STEP:
                continue
            if isinstance(attempt.outcome, AttemptFailed):
                yield _Said(replace(self._answer(plan, index, attempt, None), fault=True), "")
            elif isinstance(attempt.outcome, AttemptFinished) and attempt.outcome.attempt in refused:
                yield _Said(self._answer(plan, index, attempt, verdict=False), attempt.outcome.text.strip())

    def _answer(self, plan: Plan, index: int, attempt: Attempt, verdict: bool | None) -> StepAnswer:
        step, done = plan.steps[index], attempt.outcome
        worker = attempt.started.worker if done is None else done.worker
        planned = self.turn.proposed.beside.get(PLANNED, "") if self.turn.proposed is not None else ""
        named = planned.split(",") if planned and planned != STANDS_BY else []
        own = self.run.started.pool[step.worker] == worker if step.worker < len(self.run.started.pool) else False
        if index < len(named):
            own = own and str(step.worker) in named[index].split("+")
        seconds = 0.0 if done is None else done.seconds
        told = split_phrases(step.subtask, self.phrases)[1]
        model = done.model if isinstance(done, AttemptFinished) else ""
        return StepAnswer(worker, told, own, 0, verdict, False, attempt.charged.dollars or 0.0, seconds, model)


def _joined_units(rounds: Sequence[Sequence[_UnitDraft]], run: Run) -> list[StepUnit]:
    """Return the units of all rounds; what was asked again of another worker is an answer of the same unit.

    A step that is asked again states what it is to know. Where that is not what the first one knew, it is a unit of its
    own. Used is the answer that was shipped, or that a later step was told.
    """
    end = run.finished
    shipped = None if end is None else end.round
    turn = run.rounds[shipped] if shipped is not None and shipped < len(run.rounds) else None
    plan = turn.plan if turn is not None else None
    told = set() if plan is None else {value for step in plan.steps for _, value in known_statements(step.subtask)}
    found, first = list[_UnitDraft](), dict[str, int]()
    for number, units in enumerate(rounds):
        values = {one.said[one.used].text for one in found if one.used is not None}
        for unit in units:
            at = first.get(unit.asked)
            alone = unit.together == 1 and unit.checker is None
            if at is None or not alone or found[at].checker is not None or not unit.knows <= values:
                first.setdefault(unit.asked, len(found))
                found.append(unit)
                continue
            earlier = found[at]
            is_used = unit.used is not None and (number == shipped or unit.said[unit.used].text in told)
            place = len(earlier.said) + unit.used if is_used and unit.used is not None else earlier.used
            found[at] = replace(earlier, said=(*earlier.said, *unit.said), used=place)
    return [one.unit() for one in found]


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0 <= value < 1e6 else 0.0


def plain_answer(text: str) -> str:
    """Return a result without what different workers write differently: case, space, commas in numbers, a last dot."""
    return " ".join(_COMMA.sub("", text).casefold().split()).rstrip(".")


def _confirms(check: str, first: str) -> bool:
    """Whether a check's answer keeps the result that it was shown: "Yes, 42 is right." keeps 42."""
    said, result = plain_answer(check), plain_answer(first)
    if max(len(said), len(result)) > _MOST_COMPARED:
        return said == result
    return re.search(rf"(?<!\w){re.escape(result)}(?!\w)", said) is not None


def used_steps(plan: Plan, last: int | None) -> frozenset[int]:
    """Return the steps that step `last` depends on (None: the last one), itself included."""
    needed, waiting = set[int](), [len(plan.steps) - 1 if last is None else last]
    while waiting:
        at = waiting.pop()
        if at not in needed and at < len(plan.steps):
            needed.add(at)
            waiting += plan.steps[at].access
    return frozenset(needed)


def state_known(pairs: Sequence[tuple[str, str]]) -> str:
    """Return what a step of a later round is told of earlier results."""
    return "".join(f'Known: "{asked}" gave {value}. ' for asked, value in pairs)


def known_statements(subtask: str) -> list[tuple[str, str]]:
    """Return what a subtask states of earlier results: what was asked, and what that gave."""
    return [(found["asked"], found["value"]) for found in _KNOWN.finditer(subtask[:_MOST_READ])]


def without_known(subtask: str) -> str:
    """Return a subtask without these statements."""
    return _KNOWN.sub("", subtask[:_MOST_READ]) + subtask[_MOST_READ:] if subtask.startswith("Known: ") else subtask


def planned_workers(performed: Plan, planned: Plan, phrases: Sequence[str] = ()) -> str:
    """Return for each step of a plan which worker the planner gave its subtask, as `2,-,0+1`: no text is repeated.

    A step that does several subtasks has several workers. `phrases` may have been added to a subtask.
    """
    by_subtask = {split_phrases(step.subtask, phrases)[0]: step.worker for step in planned.steps}

    def named(subtask: str) -> str:
        return str(by_subtask.get(split_phrases(subtask, phrases)[0], "-"))

    return ",".join("+".join(map(named, step.subtask.split(MERGED))) for step in performed.steps)
