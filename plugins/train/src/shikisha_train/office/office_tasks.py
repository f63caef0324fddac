"""The office's tasks: task `index` of a split and seed is a question, a crew with cards, and what a right answer earns.

Invariants: a task is a function of (distribution, split, seed, index); its `Task` holds neither the answer nor anything
of the truth about its workers; training never meets a held-out author, of questions or of cards. Every pool ends with a
real counter of votes. `draw_evidence` gives what a journal would know after so many outcomes, and nothing else.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count as counting
from itertools import islice
from typing import TypeVar

from shikisha.core.budget import Price
from shikisha.core.task import Task
from shikisha.engine.pool import Member, Pool
from shikisha.engine.worker import Card
from shikisha.workers.vote import VoteWorker
from shikisha_train.office.company import WorkKind
from shikisha_train.office.questions import (
    NO_NOISE,
    STAKES,
    AuthorSplit,
    OfficeNoise,
    OfficeQuestion,
    draw_question,
    office_authors,
)
from shikisha_train.office.seeded_random import seeded_generator
from shikisha_train.office.simulated_staff import SimulatedStaff
from shikisha_train.office.staff import FEATURES, KINDS, Crew, CrewDistribution, WordingFeature, draw_crew

Key = TypeVar("Key")
VOTE_CARD = "counts the votes of several results and returns the most common one."
VOTE_NAME = "votes"


@dataclass(frozen=True, slots=True)
class OfficeDistribution:
    """How tasks are drawn: weights of 1 to 6 parts, shares with a condition and with a stated value, noise, crews."""

    parts: tuple[float, ...] = (0.22, 0.24, 0.22, 0.16, 0.1, 0.06)
    conditional: float = 0.25
    stakes: float = 0.3
    noise: OfficeNoise = NO_NOISE
    crew: CrewDistribution = field(default_factory=CrewDistribution)


OFFICE = OfficeDistribution(noise=OfficeNoise())
QUIET_OFFICE = OfficeDistribution()


@dataclass(frozen=True, slots=True)
class OfficeTask:
    """A task with everything that the simulation needs; conductors and workers see only `task` and `pool`."""

    task: Task
    question: OfficeQuestion
    crew: Crew
    value: float
    luck: int

    @property
    def pool(self) -> Pool:
        """The crew as a pool, and a counter of votes after it."""
        return office_pool(self.crew, self.question, self.task.id, self.luck)

    def grade(self, answer: str | None) -> bool:
        """Whether the answer is right."""
        return answer is not None and answer.strip().rstrip(".") == self.question.answer

    def with_crew(self, crew: Crew, luck: int | None = None) -> "OfficeTask":
        """Return the same question for another crew."""
        return replace(self, crew=crew, luck=self.luck if luck is None else luck)


def office_pool(crew: Crew, question: OfficeQuestion, task_id: str, luck: int) -> Pool:
    """Return a crew at work on one question as a pool."""
    members = [
        Member(
            Card(member.name, card, "simulated", Price(call=member.price), max_output_tokens=32),
            SimulatedStaff(member, question, task_id, luck),
        )
        for member, card in zip(crew.members, crew.cards, strict=True)
    ]
    return Pool([*members, Member(Card(VOTE_NAME, VOTE_CARD, "vote"), VoteWorker())])


def office_task(split: AuthorSplit, seed: int, index: int, distribution: OfficeDistribution = OFFICE) -> OfficeTask:
    """Return task `index` of a split and seed."""
    rng = seeded_generator("office", split, seed, index)
    crew = draw_crew(distribution.crew, split, rng)
    count = rng.choices(range(1, len(distribution.parts) + 1), distribution.parts)[0]
    question = draw_question(count, rng, office_authors(split), distribution.noise, distribution.conditional)
    value, stated = rng.choice(STAKES[1:]) if rng.random() < distribution.stakes else STAKES[0]
    text = f"{question.text} {stated}" if stated else question.text
    task = Task(text, id=f"office/{split}/{seed}/{index}", domain=f"{count} parts" if count > 1 else "1 part")
    return OfficeTask(task, question, crew, value, luck=seed)


def office_tasks(
    split: AuthorSplit, seed: int, distribution: OfficeDistribution = OFFICE, count: int | None = None
) -> Iterator[OfficeTask]:
    """Yield the split's tasks, `count` of them or without end."""
    return islice((office_task(split, seed, index, distribution) for index in counting()), count)


# What was asked for: a kind of work and the features said.
_Asked = tuple[WorkKind, frozenset[WordingFeature]]


@dataclass(frozen=True)
class StaffEvidence:
    """What outcomes said so far: (tries, right) by worker, kind and features said."""

    by_wording: tuple[dict[_Asked, tuple[int, int]], ...]

    @cached_property
    def by_kind(self) -> tuple[dict[WorkKind, tuple[int, int]], ...]:
        """(tries, right) by worker and kind."""
        return tuple(_add_up(found, lambda asked: [asked[0]]) for found in self.by_wording)

    @cached_property
    def by_feature(self) -> tuple[dict[tuple[WordingFeature, bool], tuple[int, int]], ...]:
        """(tries, right) by worker, feature and whether it was said."""
        return tuple(
            _add_up(found, lambda asked: [(feature, feature in asked[1]) for feature in FEATURES])
            for found in self.by_wording
        )

    def mean(self, worker: int, kind: WorkKind, prior: float = 0.5, weight: float = 2.0) -> float:
        """Return the posterior mean of a worker's success at a kind of work, under a prior of so many outcomes."""
        tries, right = self.by_kind[worker].get(kind, (0, 0))
        return (right + prior * weight) / (tries + weight)


def _add_up(
    found: Mapping[_Asked, tuple[int, int]], keys: Callable[[_Asked], Iterable[Key]]
) -> dict[Key, tuple[int, int]]:
    sums: dict[Key, tuple[int, int]] = {}
    for asked, (tries, right) in found.items():
        for key in keys(asked):
            tries_so_far, right_so_far = sums.get(key, (0, 0))
            sums[key] = (tries_so_far + tries, right_so_far + right)
    return sums


def draw_evidence(crew: Crew, outcomes: int, rng: random.Random) -> StaffEvidence:
    """Return what `outcomes` single-part outcomes a worker say, kinds and wordings drawn evenly."""
    by_wording = []
    for member in crew.members:
        found: dict[_Asked, tuple[int, int]] = {}
        for _ in range(outcomes):
            kind = rng.choice(KINDS)
            said = frozenset(feature for feature in FEATURES if rng.random() < 0.5)
            right = rng.random() < member.levels[kind] * member.wording_factor(said)
            tries, so_far = found.get((kind, said), (0, 0))
            found[kind, said] = (tries + 1, so_far + right)
        by_wording.append(found)
    return StaffEvidence(tuple(by_wording))
