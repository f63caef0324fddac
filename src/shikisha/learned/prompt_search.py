"""Search for advice that makes a planner's plans worth more: reflective evolution, in dollars, with an honest end.

The search is the package `gepa` (arXiv 2507.19457). A candidate is advice. Some search tasks are performed with it; a
reflector reads what came of them and edits it; candidates compete on these tasks. At the end the best one and the
advice in force are performed on tasks that the search has not seen, and it is accepted only if the paired 95 %
interval of the difference in worth excludes harm and a zero gain.

Invariants: dollars are the only budget, and what is spent never exceeds the cap: each call gets what is left, and the
search ends while the final comparison can still be paid; a cap that cannot pay for one honest comparison is refused
with its price before anything is spent; the same seed and the same results lead to the same search, so a search that
was killed is repeated from the journal without paying twice. Deliberately absent: gepa's own state files (pickle).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from math import ceil
from statistics import fmean
from typing import Protocol

from shikisha.core.budget import format_dollars
from shikisha.core.errors import ConfigError, MissingExtra
from shikisha.core.prompts import quote_lines
from shikisha.evals.statistics import mean_interval
from shikisha.learned.learned_file import LearnedGain
from shikisha.learned.tuned_prompt import MAX_ADVICE

ADVICE = "advice"
MIN_GATE = 20  # tasks of the final comparison
_LEAST_SEARCH = 8  # search tasks
# Tasks on which edits compete, the same for all: on a few, drawn anew, one that helps is seldom seen to.
_COMPETITION = 8
_GATE_SHARE = 0.5
_STALE = 8  # questions in a row without a new edit, after which the search ends
_IDLE = 30  # edits in a row of which none is better
_MOST_NEEDED = 50
_REFLECTOR_TASK = (
    "You improve the advice that a planner gets. The planner splits a task into steps for several models, says what "
    "each model is told, and which earlier results it sees. Its instructions stay; the advice is added to them."
)
_REFLECTOR_GOAL = (
    "Find what would have made more of them right, or cheaper, and hold for other tasks too: what to tell workers, "
    "whom to prefer, what to check. Name no answers of these tasks. Write the whole new advice."
)
_SAFETY = 1.25  # what a run may cost more than the estimate, where prices are only estimated


@dataclass(frozen=True, slots=True)
class TunedRun:
    """What came of one task with one advice: its score (0 to 1), dollars, run id, and feedback in words."""

    score: float
    dollars: float
    run: str
    feedback: str


@dataclass(frozen=True, slots=True)
class Reflection:
    """What a reflector said, and its dollars."""

    text: str
    dollars: float


class CapSpent(Exception):
    """The cap leaves nothing for another call."""


PerformTask = Callable[[str, int, float], TunedRun]  # advice, place of the task, dollars left
AskReflector = Callable[[str, int, float], Reflection]  # prompt, number of the question, dollars left


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The advice that is in force from now on, and why; `gain` is the final comparison's (None: there was none)."""

    advice: str
    accepted: bool
    gain: LearnedGain | None
    spent: float
    runs: int
    candidates: int
    why: str
    evidence: tuple[str, ...] = ()


class _FoundByGepa(Protocol):
    """What we read of gepa's result."""

    @property
    def best_candidate(self) -> Mapping[str, str]: ...

    @property
    def candidates(self) -> Sequence[Mapping[str, str]]: ...


@dataclass
class PromptSearch:
    """A search over `tasks` tasks with a cap of `dollars`; a right answer is worth `worth` dollars."""

    tasks: int
    perform: PerformTask
    reflect: AskReflector
    dollars: float
    worth: float = 0.05
    seed: int = 0
    spent: float = 0.0
    runs: int = 0
    questions: int = 0
    stale: int = 0
    idle: int = 0
    evidence: list[str] = field(default_factory=list)
    _known: dict[tuple[str, int], TunedRun] = field(default_factory=dict)
    _proposed: set[str] = field(default_factory=set)

    @property
    def gate(self) -> list[int]:
        """The tasks of the final comparison: half of all, by a draw."""
        return sorted(self._order[: max(MIN_GATE, round(self.tasks * _GATE_SHARE))])

    @property
    def search_tasks(self) -> list[int]:
        """The tasks of the search: all others."""
        return sorted(self._order[len(self.gate) :])

    @property
    def _competition(self) -> list[int]:
        """The search tasks on which edits compete."""
        return self._order[len(self.gate) :][:_COMPETITION]

    @property
    def _order(self) -> list[int]:
        return sorted(range(self.tasks), key=lambda at: sha256(f"{self.seed} {at}".encode()).digest())

    def floor(self, run_cost: float, reflection_cost: float) -> float:
        """Return what one honest comparison costs: two candidates on search tasks, one edit, the comparison."""
        performed = 2 * len(self._competition) + 2 * len(self.gate)
        return _SAFETY * (performed * run_cost + reflection_cost)

    def refuse_too_little(self, run_cost: float, reflection_cost: float) -> None:
        """Raise ConfigError where tasks or dollars are too few for one honest comparison."""
        least = MIN_GATE + _LEAST_SEARCH
        if self.tasks < least:
            raise ConfigError(f"expected at least {least} tasks to tune on, found {self.tasks}")
        price = self.floor(run_cost, reflection_cost)
        if price > self.dollars:
            raise ConfigError(
                f"one honest comparison costs about {format_dollars(price)} ({2 * len(self.gate)} runs to compare, "
                f"{format_dollars(run_cost)} a run), and the cap is {format_dollars(self.dollars)}: nothing was spent"
            )

    def run(self, advice: str, run_cost: float, reflection_cost: float) -> SearchResult:
        """Search from the advice in force; return what is in force afterwards."""
        self.refuse_too_little(run_cost, reflection_cost)
        kept = 2 * len(self.gate) * run_cost * _SAFETY
        try:
            found, candidates = self._search(advice, kept, run_cost, reflection_cost)
            if found == advice:
                return self._end(advice, None, candidates, "no candidate was better on the search tasks")
            return self._compare(advice, found, candidates)
        except CapSpent:
            return self._end(advice, None, len(self._proposed), "the cap was spent before the comparison had ended")

    def _search(self, advice: str, kept: float, run_cost: float, reflection_cost: float) -> tuple[str, int]:
        """Return the best candidate of the search, and how many there were."""
        try:
            optimize: Callable[..., _FoundByGepa] = import_module("gepa").optimize
        except ModuleNotFoundError:
            raise MissingExtra("tune", "shikisha tune") from None
        adapter = _SearchAdapter(self)
        order = self._competition
        step = len(order) * run_cost + reflection_cost

        def ends(_: object) -> bool:
            return self.stale >= _STALE or self.idle >= _IDLE or self.spent + step + kept > self.dollars

        result = optimize(
            seed_candidate={ADVICE: advice},
            trainset=order,
            valset=order,
            adapter=adapter,
            custom_candidate_proposer=self._propose,
            reflection_minibatch_size=len(order),
            skip_perfect_score=True,
            perfect_score=self.worth,
            stop_callbacks=ends,
            logger=_Silent(),
            seed=self.seed,
            display_progress_bar=False,
            track_best_outputs=False,
        )
        return result.best_candidate[ADVICE], len(result.candidates)

    def _propose(
        self,
        candidate: Mapping[str, str],
        dataset: Mapping[str, Sequence[Mapping[str, object]]],
        components: Sequence[str],
    ) -> dict[str, str]:
        """Return the reflector's edit; the candidate as it is where the reflector gives none that is new."""
        records = [str(row["Feedback"]) for name in components for row in dataset.get(name, ())]
        said, problem = candidate[ADVICE], ""
        for _ in range(2):
            prompt = reflection_prompt(candidate[ADVICE], records, problem)
            reflection = self.reflect(prompt, self.questions, self._left())
            self.questions += 1
            self.spent += reflection.dollars
            said, problem = read_edit(reflection.text, candidate[ADVICE], self._proposed)
            if not problem:
                break
        if problem:
            self.stale += 1
            return dict(candidate)
        self._proposed.add(said)
        self.stale = 0
        self.idle += 1  # until it is performed and turns out better
        return {ADVICE: said}

    def performed(self, advice: str, place: int) -> TunedRun:
        """Return what came of a task with an advice; each pair is performed once."""
        key = (advice, place)
        if key not in self._known:
            found = self.perform(advice, place, self._left())
            self.spent += found.dollars
            self.runs += 1
            self.evidence.append(found.run)
            self._known[key] = found
        return self._known[key]

    def value(self, run: TunedRun) -> float:
        """Return what a run was worth, in dollars."""
        return self.worth * run.score - run.dollars

    def _left(self) -> float:
        left = self.dollars - self.spent
        if left <= 0:
            raise CapSpent
        return left

    def _compare(self, before: str, after: str, candidates: int) -> SearchResult:
        differences = []
        for place in self.gate:
            old, new = self.performed(before, place), self.performed(after, place)
            differences.append(self.value(new) - self.value(old))
        low, high = mean_interval(differences)
        gain = LearnedGain("dollars of worth a run", fmean(differences), low, high, len(differences), "measured")
        if low > 0:
            return self._end(after, gain, candidates, "better on tasks that the search has not seen", accepted=True)
        return self._end(before, gain, candidates, f"not shown to be better; {_needed(gain)}")

    def _end(
        self, advice: str, gain: LearnedGain | None, candidates: int, why: str, *, accepted: bool = False
    ) -> SearchResult:
        used = tuple(dict.fromkeys(self.evidence))
        return SearchResult(advice, accepted, gain, self.spent, self.runs, candidates, why, used)


class _SearchAdapter:
    """What gepa asks of a system: perform a batch with a candidate, and say what came of it."""

    propose_new_texts = None

    def __init__(self, search: PromptSearch) -> None:
        self._search = search
        self._best = float("-inf")

    def evaluate(self, batch: list[int], candidate: dict[str, str], capture_traces: bool = False) -> object:
        runs = [self._search.performed(candidate[ADVICE], place) for place in batch]
        scores = [self._search.value(run) for run in runs]
        if not capture_traces and fmean(scores) > self._best:
            self._best, self._search.idle = fmean(scores), 0
        batch_of_gepa: Callable[..., object] = import_module("gepa.core.adapter").EvaluationBatch
        return batch_of_gepa(outputs=runs, scores=scores, trajectories=runs if capture_traces else None)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: object, components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, object]]]:
        del candidate
        runs: Sequence[TunedRun] = getattr(eval_batch, "trajectories", None) or ()
        return {name: [{"Feedback": run.feedback} for run in runs] for name in components_to_update}


class _Silent:
    """gepa's log goes nowhere: progress is shown by whoever performs the tasks."""

    def log(self, message: str) -> None:
        del message


def reflection_prompt(advice: str, records: Sequence[str], problem: str) -> str:
    """Return what the reflector is asked; everything that others wrote is quoted."""
    parts = [
        _REFLECTOR_TASK,
        f"The advice now:\n{quote_lines(advice or '(none)')}",
        "What came of some tasks with it:\n" + "\n\n".join(records),
        _REFLECTOR_GOAL,
        f'Answer with one JSON object and nothing else: {{"advice": "..."}}, at most {MAX_ADVICE} characters.',
    ]
    if problem:
        parts.append(f"Your last answer could not be used: {problem}")
    return "\n\n".join(parts)


def read_edit(text: str, before: str, proposed: set[str]) -> tuple[str, str]:
    """Return the advice in a reflector's answer, and what is wrong with it (empty: nothing)."""
    start, end = text.find("{"), text.rfind("}")
    try:
        said = json.loads(text[start : end + 1])[ADVICE] if start >= 0 else None
    except (ValueError, KeyError, TypeError, RecursionError):
        said = None
    if not isinstance(said, str):
        return before, 'expected one JSON object with a text "advice"'
    said = said.strip()
    if len(said) > MAX_ADVICE:
        return before, f"the advice has {len(said):,} characters: expected at most {MAX_ADVICE:,}"
    if said == before.strip() or said in proposed:
        return before, "this advice was there before: expected another one"
    return said, ""


def _needed(gain: LearnedGain) -> str:
    """Say how many more tasks would show a gain as large as the one that was seen."""
    if gain.mean <= 0:
        return "it was no better on these tasks"
    more = ceil(gain.tasks * ((gain.high - gain.low) / 2 / gain.mean) ** 2) - gain.tasks
    return (
        f"about {more:,} more tasks would tell"
        if 0 < more <= _MOST_NEEDED * gain.tasks
        else "the gain is too small to tell"
    )
