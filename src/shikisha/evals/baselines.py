"""The entrants of an evaluation besides those asked for, and the order in which all of them are played.

Every evaluation has each single worker, random plans, the best fixed topology, and the best worker asked again at equal
cost. Invariants: a choice (which worker is best, which topology) is made on dev tasks only, and a topology is reported
on tasks that it was not chosen on; a specification is plain data, of which any process can make an entrant; a call that
one entrant paid for is not paid again for another (see `response_cache`); free baselines make no call, and are reported
only where the calls made anyway cover all tasks; a note says what was not played.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from math import log
from typing import Protocol

from shikisha.core.fast_dataclass import asdict, dataclass, field, replace
from shikisha.core.plan import MAX_STEPS
from shikisha.evals.runner import Evaluation
from shikisha.evals.samples import Entrant, EntrantRole, Sample
from shikisha.evals.taskset import TaskItem

ONE_AGENT = "one agent, all tools"  # its name in a pool
VOTE, WEIGH = "vote", "weigh"  # the vote-counting workers that every pool has
_TOP_WORKERS = 3
_MOST_VOTERS = MAX_STEPS - 1
_CONDUCTOR_MARKS = re.compile("[:?&]")  # stands in every conductor's own name before its first `=`
_EQUAL_WEIGHTS_NOTE = "every vote counts the same: no voter is right more often than not on the dev split"
# Accuracies are clipped: log odds stay finite, and a perfect score on few dev tasks does not outvote all others.
_LEAST_ACCURACY, _HIGHEST_ACCURACY = 0.02, 0.98


@dataclass(frozen=True, slots=True)
class EntrantSpec:
    """What an Entrant is made of: the conductor's name as a configuration gives it, and the Entrant's other fields.

    `weights` are what the first, second, ... vote counts where the conductor joins by WEIGH. `pool` names the workers
    that play where the taskset brings workers (none named: those of each task). `cache_only`: it plays as far as
    replies are cached, and pays for none; `subtask` is a single worker's prompt, where it is not the usual one.
    A ONE_AGENT has the tools of all agents and the model of `worker`: without a conductor it gets the whole task, with
    one it plays all parts of that conductor's plans in one conversation; with `repeats` it is asked so often, and its
    answers are put to a vote.
    """

    name: str
    conductor: str
    part: EntrantRole = EntrantRole.ASKED
    worker: str | None = None
    note: str = ""
    weights: tuple[float, ...] = ()
    pool: tuple[str, ...] = ()
    cache_only: bool = False
    subtask: str = ""
    repeats: int = 0

    def to_json(self) -> dict[str, object]:
        """Return it as what JSON has."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, object]) -> "EntrantSpec":
        """Return the spec that `to_json` made, read back from JSON."""
        spec = cls(**data)  # type: ignore[arg-type]  # it was a Spec
        return replace(spec, part=EntrantRole(spec.part), weights=tuple(spec.weights), pool=tuple(spec.pool))


class Baselines:
    """The entrants of an evaluation over one pool of workers that are named.

    `talk`: the workers read what others wrote; replayed ones do not, and answer each task once only.
    """

    def __init__(self, workers: Sequence[str], *, talk: bool, seed: int = 0) -> None:
        self._workers, self._talk, self._seed = tuple(workers), talk, seed

    def singles(self) -> list[EntrantSpec]:
        """Return an entrant for each worker alone."""
        return single_worker_specs(self._workers)

    def random(self) -> EntrantSpec:
        """Return the entrant whose plans are drawn at random."""
        return EntrantSpec("random plans", f"random:{self._seed}", EntrantRole.RANDOM)

    def candidates(self, skill: Mapping[str, float]) -> list[EntrantSpec]:
        """Return the fixed topologies to choose from, over the best workers by their accuracy on the dev split."""
        ranking = sorted(self._workers, key=lambda worker: -skill.get(worker, 0.0))
        return fixed_topology_specs(ranking, skill, talk=self._talk)

    def consistency(self, worker: str, alone: float, others: Sequence[float]) -> EntrantSpec | None:
        """Return the best worker asked again at equal cost; None where that buys no second call."""
        return self_consistency_spec(worker, alone, others) if self._talk else None


def single_worker_specs(workers: Iterable[str]) -> list[EntrantSpec]:
    """Return an entrant for each worker alone."""
    return [EntrantSpec(worker, f"fixed:single?worker={worker}", EntrantRole.SINGLE, worker) for worker in workers]


def requested_entrant(conductor: str, skill: Mapping[str, float]) -> EntrantSpec:
    """Return the requested entrant, given as `CONDUCTOR` or `LABEL=CONDUCTOR`.

    Where it joins by WEIGH, votes count by the accuracy of who gives them.
    """
    label, _, rest = conductor.partition("=")
    named = rest and not _CONDUCTOR_MARKS.search(label)
    label, conductor = (label, rest) if named else (conductor, conductor)
    _, _, query = conductor.partition("?")
    options = dict(part.partition("=")[::2] for part in query.split("&"))
    voters = options.get("workers", "").split(",")
    weighs = WEIGH in options.values()
    weights = vote_weights(voters, skill) if weighs else ()
    note = _EQUAL_WEIGHTS_NOTE if weighs and not weights else ""
    return EntrantSpec(label, conductor, note=note, weights=weights)


def vote_weights(voters: Sequence[str], skill: Mapping[str, float]) -> tuple[float, ...]:
    """Return the log odds of each voter's accuracy (the weights of an optimal vote of independent voters), from 0.

    Where no voter is right more often than not there are no weights: every vote counts the same.
    """
    held = [min(_HIGHEST_ACCURACY, max(_LEAST_ACCURACY, skill.get(voter, 0.5))) for voter in voters]
    weights = tuple(max(0.0, log(share / (1 - share))) for share in held)
    return weights if any(weights) else ()


def fixed_topology_specs(ranking: Sequence[str], skill: Mapping[str, float], *, talk: bool) -> list[EntrantSpec]:
    """Return fixed topologies over the best workers of a ranking (best first), one of which is to be chosen.

    `talk`: the workers read what others wrote; replayed ones do not, and then only votes make sense.
    """
    best, some, many = ranking[0], ranking[:_TOP_WORKERS], ranking[:_MOST_VOTERS]
    names, wide = ",".join(some), ",".join(many)
    made = [EntrantSpec("", f"fixed:single?worker={best}")]
    if len(some) == _TOP_WORKERS:
        made.append(EntrantSpec("", f"fixed:vote?workers={names}&join={VOTE}"))
        made.append(EntrantSpec("", f"fixed:agreement?workers={some[1]},{some[2]},{best}"))
    if len(many) > _TOP_WORKERS:
        made.append(EntrantSpec("", f"fixed:vote?workers={wide}&join={VOTE}"))
        made.append(
            EntrantSpec("", f"fixed:fan-out-join?workers={wide}&join={WEIGH}", weights=vote_weights(many, skill))
        )
    if talk:
        second = some[1] if len(some) > 1 else best
        made.append(
            EntrantSpec("", f"fixed:planner-executor-verifier?planner={best}&executor={second}&verifier={best}")
        )
        made.append(EntrantSpec("", f"fixed:fan-out-join?workers={names}&join={best}"))
        made.append(EntrantSpec("", f"fixed:chain?workers={second},{best}"))
    note = "chosen on the dev split"
    return [replace(spec, name=f"best fixed ({spec.conductor})", part=EntrantRole.FIXED, note=note) for spec in made]


def self_consistency_spec(worker: str, alone: float, others: Sequence[float]) -> EntrantSpec | None:
    """Return the best worker asked again, at about the cost of the most expensive of the `others` (dollars a task).

    `alone` is what one call of it costs. None where that buys no second call: then it is the single worker itself.
    """
    highest = max(others, default=0.0)
    count = min(MAX_STEPS - 1, round(highest / alone)) if alone > 0 else _TOP_WORKERS
    if count < 2:
        return None
    note = _cost_note(count, alone, highest)
    spec = f"fixed:vote?workers={worker}&n={count}&join={VOTE}"
    return EntrantSpec(f"self-consistency × {count} ({worker})", spec, EntrantRole.CONSISTENCY, worker, note)


def _cost_note(count: int, alone: float, highest: float) -> str:
    """Say how what so many calls cost stands to what they are to be compared with."""
    if alone <= 0:
        return f"{count} answers: what one costs is not known, or nothing"
    if highest > alone * (count + 1):
        return (
            f"as many answers as a plan has room for, at {count * alone / highest:.0%} of the most expensive one's cost"
        )
    return "at about equal cost"


def mean_score(samples: Iterable[Sample]) -> float:
    """Return the mean score of the graded samples; 0 where there are none."""
    scores = [sample.score for sample in samples if sample.score is not None]
    return sum(scores) / len(scores) if scores else 0.0


def mean_dollars(samples: Iterable[Sample]) -> float:
    """Return the mean of the known costs; 0 where none is known."""
    dollars = [sample.dollars for sample in samples if sample.dollars is not None]
    return sum(dollars) / len(dollars) if dollars else 0.0


class BaselineMode(StrEnum):
    """Which baselines play besides the requested conductors."""

    NONE = "none"  # nothing
    FREE = "free"  # what needs no call that is not made anyway: single workers, as far as they were put whole tasks
    ALL = "all"  # single workers, random plans, the best fixed topology, self-consistency at equal cost


class BaselineSource(Protocol):
    """Who plays besides those asked for (`Baselines`, or the simulated taskset's own)."""

    def singles(self) -> list[EntrantSpec]:
        """Return the single workers."""
        ...

    def random(self) -> EntrantSpec:
        """Return the entrant with random plans."""
        ...

    def candidates(self, skill: dict[str, float]) -> list[EntrantSpec]:
        """Return the fixed topologies to choose from."""
        ...

    def consistency(self, worker: str, alone: float, others: Sequence[float]) -> EntrantSpec | None:
        """Return the best worker asked again at equal cost."""
        ...


@dataclass(slots=True)
class EvaluationPlan:
    """What is played: `items` are reported, `dev` tasks are chosen by, `conductors` were asked for.

    `whole_prompt` is how topologies of several workers put the whole task to one of them, besides the usual way.
    `agents` names the workers that use tools: where there are any, one agent with all their tools is a baseline, asked
    again at equal cost where `reads` says that their tools only read.
    """

    evaluation: Evaluation
    baselines: BaselineSource
    make: Callable[[EntrantSpec], Entrant]
    items: Sequence[TaskItem]
    dev: Sequence[TaskItem]
    conductors: Sequence[str] = ()
    on_start: Callable[[str, int], None] | None = None
    mode: BaselineMode = BaselineMode.ALL
    whole_prompt: str = ""
    agents: Sequence[str] = ()
    reads: bool = False
    played: list[tuple[Entrant, Sequence[TaskItem]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Play it all, or as much as the limits allow."""
        if self.mode is not BaselineMode.ALL:
            await self._play([self.make(requested_entrant(name, {})) for name in self.conductors], self.items)
            if self.mode is BaselineMode.FREE:
                await self._play_free_singles()
            return
        # Single workers come first: their skill on dev tasks weighs votes and ranks the fixed topologies.
        singles = [self.make(spec) for spec in self.baselines.singles()]
        both = list({item.task.id: item for item in (*self.items, *self.dev)}.values())
        await self._play(singles, both, self.items)
        skill = {entrant.name: mean_score(self._of(entrant, self.dev)) for entrant in singles if self.dev}
        others = [self.make(requested_entrant(name, skill)) for name in self.conductors]
        await self._play([*others, self.make(self.baselines.random())], self.items)
        await self._play_one_agent(singles, others)
        await self._play_best_topology(skill)
        await self._play_self_consistency(singles, others)

    async def _play(
        self, entrants: Sequence[Entrant], items: Sequence[TaskItem], reported: Sequence[TaskItem] | None = None
    ) -> None:
        if self.on_start is not None:
            for entrant in entrants:
                self.on_start(entrant.name, sum(self.evaluation.missing(entrant, item) for item in items))
        await self.evaluation.play(entrants, items)
        self.played += [(entrant, items if reported is None else reported) for entrant in entrants]

    def _of(self, entrant: Entrant, items: Sequence[TaskItem]) -> list[Sample]:
        return self.evaluation.store.samples_of(entrant, items)

    async def _play_free_singles(self) -> None:
        """Add each single worker whose answers to all tasks are among the calls that were made anyway.

        One that was asked for some tasks only is left out: which those are may depend on their difficulty.
        """
        left = []
        for spec in self.baselines.singles():
            ways = [
                replace(spec, cache_only=True),
                replace(spec, name=f"{spec.name} (alone)", subtask=self.whole_prompt, cache_only=True),
            ]
            for entrant in map(self.make, ways):
                await self.evaluation.play([entrant], self.items)
                if not any(self.evaluation.missing(entrant, item) for item in self.items):
                    self.played.append((entrant, self.items))
                    break
            else:
                left.append(spec.name)
        if left:
            self.notes.append(
                f"Not compared with, since that takes calls of its own (--controls all): {', '.join(left)} alone, "
                "random plans, the best fixed topology, self-consistency."
            )

    async def _play_one_agent(self, singles: Sequence[Entrant], others: Sequence[Entrant]) -> None:
        """Play one agent that has all agents' tools: on the whole task, and in all parts of each conductor's plans.

        The control of every team of agents: what a team adds must be more than what one of them does with all tools.
        """
        able = [entrant for entrant in singles if entrant.worker in self.agents]
        if not able or self.evaluation.stopped is not None:
            return
        best = max(able, key=lambda entrant: self._ranking_key(entrant, self.dev or self.items)).worker or ""
        specs = [EntrantSpec(f"one agent, all tools ({best})", "", EntrantRole.ONE_AGENT, best)]
        for asked in (requested_entrant(name, {}) for name in self.conductors):
            name = f"one agent ({best}) in all parts of {asked.name}"
            specs.append(EntrantSpec(name, asked.conductor, EntrantRole.ONE_AGENT, best))
        entrants = [self.make(spec) for spec in specs]
        await self._play(entrants, self.items)
        highest = max((mean_dollars(self._of(entrant, self.items)) for entrant in others), default=0.0)
        alone = mean_dollars(self._of(entrants[0], self.items))
        count = min(MAX_STEPS - 1, round(highest / alone)) if alone > 0 else 0
        if count > 1 and self.reads:
            name = f"one agent, all tools ({best}) × {count}"
            note = _cost_note(count, alone, highest)
            again = self.make(EntrantSpec(name, "", EntrantRole.ONE_AGENT, best, note, repeats=count))
            await self._play([again], self.items)
            entrants.append(again)
        elif count > 1:
            self.notes.append(
                f"one agent, all tools ({best}) was not asked again at equal cost: a tool of the agents may write."
            )
        if highest > 0:
            shares = [f"{each.name} {mean_dollars(self._of(each, self.items)) / highest:.0%}" for each in entrants]
            self.notes.append(f"Dollars a task of the most expensive conductor, for comparison: {', '.join(shares)}.")

    async def _play_best_topology(self, skill: dict[str, float]) -> None:
        """Choose the best fixed topology on the dev tasks and play it on the others."""
        if not self.dev:
            self.notes.append("No fixed topology was chosen: there are no dev tasks to choose it on.")
            return
        entrants = [self.make(spec) for spec in self.baselines.candidates(skill)]
        if self.on_start is not None:
            self.on_start("fixed topologies on the dev split", len(entrants) * len(self.dev))
        await self.evaluation.play(entrants, self.dev)
        if self.evaluation.stopped is not None:
            return
        best = max(entrants, key=lambda entrant: self._ranking_key(entrant, self.dev))
        chosen_on = {item.task.id for item in self.dev}
        fresh = [item for item in self.items if item.task.id not in chosen_on]
        if not fresh:
            self.notes.append(f"{best.name} is not reported: there is no task that it was not chosen on.")
            return
        if len(fresh) < len(self.items):
            self.notes.append(f"{best.name} is reported on the {len(fresh):,} tasks that it was not chosen on.")
        await self._play([best], fresh)

    def _ranking_key(self, entrant: Entrant, items: Sequence[TaskItem]) -> tuple[float, float]:
        samples = self._of(entrant, items)
        return mean_score(samples), -mean_dollars(samples)

    async def _play_self_consistency(self, singles: Sequence[Entrant], others: Sequence[Entrant]) -> None:
        """Ask the best single worker again, as often as the most expensive requested conductor's cost allows."""
        if not singles or self.evaluation.stopped is not None:
            return
        best = max(singles, key=lambda entrant: self._ranking_key(entrant, self.dev or self.items))
        alone = mean_dollars(self._of(best, self.items))
        costs = [mean_dollars(self._of(entrant, self.items)) for entrant in others]
        spec = self.baselines.consistency(best.worker or best.name, alone, costs)
        if spec is None:
            self.notes.append(
                f"Self-consistency of {best.name} at equal cost was not played: either the cost of the others buys no "
                "second call, or the workers are replayed and answered each task once."
            )
            return
        if not self.dev:
            self.notes.append(f"{best.name} is asked again as the best on the tasks reported: there are no dev tasks.")
        await self._play([self.make(spec)], self.items)
