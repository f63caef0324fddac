"""Traffic of one simulated office: one crew, questions without conditions, some kinds of which come again and again.

A share of the questions are of a few recurring types: the same operations in the same sentences about other people,
invoices and numbers, the frequent types much more often than the rare ones. The others are drawn afresh. Invariants:
question `index` is a function of seed and index; the crew and its cards stay; a question has at most five parts, so
that each can be a step of one plan.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from shikisha.core.plan import MAX_STEPS
from shikisha.core.task import Task
from shikisha.simulation.office.office_tasks import OfficeTask
from shikisha.simulation.office.questions import (
    AuthorSplit,
    OfficeQuestion,
    draw_question,
    office_authors,
    redraw_literals,
)
from shikisha.simulation.office.staff import CardHonesty, Crew, CrewDistribution, draw_crew
from shikisha.simulation.seeded_random import seeded_generator

_PARTS = (0.2, 0.28, 0.27, 0.15, 0.1)
MISLEADING = CrewDistribution(
    (6,),
    1.0,
    {
        CardHonesty.TRUE: 0.15,
        CardHonesty.VAGUE: 0.15,
        CardHonesty.BOASTFUL: 0.25,
        CardHonesty.OUTDATED: 0.15,
        CardHonesty.BLANK: 0.1,
        CardHonesty.SWAPPED: 0.2,
    },
)


@dataclass(frozen=True)
class RecurringTraffic:
    """Questions for one crew; `types` recurring types make up the share `recurring`."""

    seed: int
    split: AuthorSplit = AuthorSplit.TRAIN
    recurring: float = 0.6
    types: int = 12
    crew: Crew = field(init=False)

    def __post_init__(self) -> None:
        crew = draw_crew(MISLEADING, self.split, seeded_generator("traffic crew", self.split, self.seed))
        object.__setattr__(self, "crew", crew)

    def task(self, index: int) -> OfficeTask:
        """Return question `index` for the crew."""
        rng = seeded_generator("traffic", self.split, self.seed, index)
        if rng.random() < self.recurring:
            place = rng.choices(range(self.types), [1 / (rank + 1) for rank in range(self.types)])[0]
            base = self._question(seeded_generator("traffic type", self.split, self.seed, place))
            question = redraw_literals(base, rng, self.seed * 1_000 + place)
            name = f"type {place}"
        else:
            question, name = self._question(rng), "fresh"
        task = Task(question.text, id=f"traffic/{self.split}/{self.seed}/{index}", domain=name)
        return OfficeTask(task, question, self.crew, 1.0, luck=self.seed)

    def tasks(self, first: int, count: int) -> Sequence[OfficeTask]:
        """Return questions from `first` on."""
        return [self.task(first + at) for at in range(count)]

    def _question(self, rng: random.Random) -> OfficeQuestion:
        count = rng.choices(range(1, MAX_STEPS + 1), _PARTS)[0]
        return draw_question(count, rng, office_authors(self.split), conditional=0.0)
