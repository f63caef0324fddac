"""The course of an evaluation: single workers first, then everyone else, then what is chosen by what came before.

Invariants: the best single worker and the best fixed topology are chosen on dev tasks, and the topology is reported on
tasks that it was not chosen on; a call that one entrant paid for is not paid again for another (see `calls`); controls
that are to be free are paid for by nobody, and stand in the report only where the calls made anyway tell all of them;
what could not be played is said in a note. Deliberately absent: figures (`report`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from shikisha.evaluate.casting import Spec, asked, mean_dollars, mean_score
from shikisha.evaluate.evaluation import Evaluation
from shikisha.evaluate.samples import Entrant, Sample
from shikisha.taskset import Item


class Controls(StrEnum):
    """What plays beside the conductors that were asked for."""

    NONE = "none"  # nothing
    FREE = "free"  # what needs no call that is not made anyway: single workers, as far as they were put whole tasks
    ALL = "all"  # single workers, random plans, the best fixed topology, self-consistency at equal cost


class Casts(Protocol):
    """Who plays besides those asked for (`casting.Repertoire`, or the rehearsal's own)."""

    def singles(self) -> list[Spec]:
        """Return the single workers."""
        ...

    def random(self) -> Spec:
        """Return the plans drawn by lot."""
        ...

    def candidates(self, skill: dict[str, float]) -> list[Spec]:
        """Return the fixed topologies to choose from."""
        ...

    def consistency(self, worker: str, alone: float, others: Sequence[float]) -> Spec | None:
        """Return the best worker asked again at equal cost."""
        ...


@dataclass(slots=True)
class Course:
    """What is played: `items` are reported, `dev` tasks are chosen by, `conductors` were asked for.

    `alone` is how topologies of several put the whole task to one worker, besides the usual way.
    """

    evaluation: Evaluation
    casts: Casts
    make: Callable[[Spec], Entrant]
    items: Sequence[Item]
    dev: Sequence[Item]
    conductors: Sequence[str] = ()
    begins: Callable[[str, int], None] | None = None
    controls: Controls = Controls.ALL
    alone: str = ""
    played: list[tuple[Entrant, Sequence[Item]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Play it all, or as much as the limits allow."""
        if self.controls is not Controls.ALL:
            await self._play([self.make(asked(name, {})) for name in self.conductors], self.items)
            if self.controls is Controls.FREE:
                await self._told()
            return
        singles = [self.make(spec) for spec in self.casts.singles()]
        both = list({item.task.id: item for item in (*self.items, *self.dev)}.values())
        await self._play(singles, both, self.items)
        skill = {entrant.name: mean_score(self._of(entrant, self.dev)) for entrant in singles if self.dev}
        others = [self.make(asked(name, skill)) for name in self.conductors]
        await self._play([*others, self.make(self.casts.random())], self.items)
        await self._fixed(skill)
        await self._consistency(singles, others)

    async def _play(
        self, entrants: Sequence[Entrant], items: Sequence[Item], told: Sequence[Item] | None = None
    ) -> None:
        if self.begins is not None:
            for entrant in entrants:
                self.begins(entrant.name, sum(self.evaluation.missing(entrant, item) for item in items))
        await self.evaluation.play(entrants, items)
        self.played += [(entrant, items if told is None else told) for entrant in entrants]

    def _of(self, entrant: Entrant, items: Sequence[Item]) -> list[Sample]:
        return self.evaluation.keep.of(entrant, items)

    async def _told(self) -> None:
        """Add each single worker whose answers to all tasks are among the calls that were made anyway.

        One that was asked for some tasks only is left out: which those are may hang on how hard they are.
        """
        left = []
        for spec in self.casts.singles():
            ways = [replace(spec, kept=True), replace(spec, name=f"{spec.name} (alone)", subtask=self.alone, kept=True)]
            for entrant in map(self.make, ways):
                await self.evaluation.play([entrant], self.items)
                if not any(self.evaluation.missing(entrant, item) for item in self.items):
                    self.played.append((entrant, self.items))
                    break
            else:
                left.append(spec.name)
        if left:
            self.notes.append(
                f"Not beside them, since that takes calls of its own (--controls all): {', '.join(left)} alone, "
                "random plans, the best fixed topology, self-consistency."
            )

    async def _fixed(self, skill: dict[str, float]) -> None:
        """Choose the best fixed topology on the dev tasks and play it on the others."""
        if not self.dev:
            self.notes.append("No fixed topology was chosen: there are no dev tasks to choose it on.")
            return
        entrants = [self.make(spec) for spec in self.casts.candidates(skill)]
        if self.begins is not None:
            self.begins("fixed topologies on the dev split", len(entrants) * len(self.dev))
        await self.evaluation.play(entrants, self.dev)
        if self.evaluation.stopped is not None:
            return
        best = max(entrants, key=lambda entrant: self._merit(entrant, self.dev))
        chosen_on = {item.task.id for item in self.dev}
        fresh = [item for item in self.items if item.task.id not in chosen_on]
        if not fresh:
            self.notes.append(f"{best.name} is not reported: there is no task that it was not chosen on.")
            return
        if len(fresh) < len(self.items):
            self.notes.append(f"{best.name} is reported on the {len(fresh):,} tasks that it was not chosen on.")
        await self._play([best], fresh)

    def _merit(self, entrant: Entrant, items: Sequence[Item]) -> tuple[float, float]:
        samples = self._of(entrant, items)
        return mean_score(samples), -mean_dollars(samples)

    async def _consistency(self, singles: Sequence[Entrant], others: Sequence[Entrant]) -> None:
        """Ask the best single worker again, as often as the dearest conductor that was asked for costs."""
        if not singles or self.evaluation.stopped is not None:
            return
        best = max(singles, key=lambda entrant: self._merit(entrant, self.dev or self.items))
        alone = mean_dollars(self._of(best, self.items))
        costs = [mean_dollars(self._of(entrant, self.items)) for entrant in others]
        spec = self.casts.consistency(best.worker or best.name, alone, costs)
        if spec is None:
            self.notes.append(
                f"Self-consistency of {best.name} at equal cost was not played: either the cost of the others buys no "
                "second call, or the workers are replayed and answered each task once."
            )
            return
        if not self.dev:
            self.notes.append(f"{best.name} is asked again as the best on the tasks reported: there are no dev tasks.")
        await self._play([self.make(spec)], self.items)
