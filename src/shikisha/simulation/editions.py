"""Editions: which families, workers and lengths of questions a family of tasks draws from.

SMALL is what the shipped conductor was trained on. LARGE has twice as many families, questions of up to five parts, and
pools of up to ten with three-skilled and irrelevant workers, for models that a GPU trains. Invariant: the draws of an
edition depend on nothing outside it, so an addition to one edition changes no other; lookups by name (`ALL_PROFILES`,
the families) hold both.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

from shikisha.simulation.question_families import Operation
from shikisha.simulation.questions import FAMILIES, OPERATIONS, SMALL_FAMILY_NAMES
from shikisha.simulation.seeded_random import shuffle_by_hash
from shikisha.simulation.vocabulary import WordingSplit
from shikisha.simulation.worker_profiles import (
    GENERALIST,
    HELD_OUT_PAIRS,
    IRRELEVANT_WORKERS,
    NOVICE,
    PROFILES,
    SPECIALISTS,
    TRAINING_PAIRS,
    WorkerProfile,
    tool_profile,
)

# Of 66 pairs and 220 triples of families; the other 22 pairs are new in the held-out split.
_TRAINING_TWO_FAMILY, _TRAINING_THREE_FAMILY, _HELD_OUT_THREE_FAMILY = 44, 24, 12


@dataclass(frozen=True, eq=False)
class Edition:
    """Everything that tasks are drawn from. `parts` are weights of questions' lengths; `sizes` those of pools.

    `known` and `new` are workers of several skills, the new ones only in the held-out split; `extras` do no work,
    and `extra` are weights of how many a pool has. `held_out` are pairs of families that training never sees in
    one question. `listed`: compositions are few enough to list them all.
    """

    name: str
    families: tuple[str, ...]
    specialists: tuple[WorkerProfile, ...]
    known: tuple[WorkerProfile, ...]
    new: tuple[WorkerProfile, ...]
    generalist: str
    novice: str
    held_out: tuple[frozenset[str], ...]
    slots: int
    parts: tuple[float, ...]
    sizes: tuple[int, ...]
    single: float
    extras: tuple[WorkerProfile, ...] = ()
    extra: tuple[float, ...] = (1.0,)
    listed: bool = True

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """The operations that questions are made of."""
        return tuple(operation for operation in OPERATIONS.values() if operation.family in self.families)

    @cached_property
    def new_names(self) -> frozenset[str]:
        """The workers that training never meets."""
        return frozenset(profile.name for profile in self.new)

    @cached_property
    def everyone(self) -> tuple[WorkerProfile, ...]:
        """All workers of the edition."""
        models = tuple(ALL_PROFILES[name] for name in ("judge", self.generalist, self.novice))
        return (*self.specialists, *self.known, *self.new, *models, *self.extras)

    def skilled(self, split: WordingSplit) -> tuple[WorkerProfile, ...]:
        """Return the workers of several skills that a split knows."""
        return (*self.known, *self.new) if split is WordingSplit.HELDOUT else self.known

    def holds_out(self, families: frozenset[str]) -> bool:
        """Whether only the held-out split may have these in one question."""
        return any(pair <= families for pair in self.held_out)


SMALL = Edition(
    name="small",
    families=SMALL_FAMILY_NAMES,
    specialists=SPECIALISTS,
    known=TRAINING_PAIRS,
    new=HELD_OUT_PAIRS,
    generalist=GENERALIST,
    novice=NOVICE,
    held_out=(frozenset({"text", "date"}),),
    slots=3,
    parts=(0.4, 0.35, 0.25),
    sizes=(4, 5, 6),
    single=0.65,
)

LARGE_GENERALIST, LARGE_NOVICE = f"{GENERALIST}-large", f"{NOVICE}-large"
_TWO_FAMILY_TOOLS = shuffle_by_hash(list(combinations(FAMILIES, 2)), "two-skilled workers, large")
_THREE_FAMILY_TOOLS = shuffle_by_hash(list(combinations(FAMILIES, 3)), "three-skilled workers")
_LARGE_MODELS = (
    replace(PROFILES[GENERALIST], name=LARGE_GENERALIST, skill_by_parts=(0.80, 0.55, 0.35, 0.20, 0.10)),
    replace(PROFILES[NOVICE], name=LARGE_NOVICE, skill_by_parts=(0.50, 0.20, 0.08, 0.03, 0.01)),
)


def _tool_profiles(*skilled: tuple[str, ...]) -> tuple[WorkerProfile, ...]:
    return tuple(PROFILES.get("-".join(families)) or tool_profile(*families) for families in skilled)


LARGE = Edition(
    name="large",
    families=tuple(FAMILIES),
    specialists=_tool_profiles(*((name,) for name in FAMILIES)),
    known=_tool_profiles(*_TWO_FAMILY_TOOLS[:_TRAINING_TWO_FAMILY], *_THREE_FAMILY_TOOLS[:_TRAINING_THREE_FAMILY]),
    new=_tool_profiles(
        *_TWO_FAMILY_TOOLS[_TRAINING_TWO_FAMILY:],
        *_THREE_FAMILY_TOOLS[_TRAINING_THREE_FAMILY : _TRAINING_THREE_FAMILY + _HELD_OUT_THREE_FAMILY],
    ),
    generalist=LARGE_GENERALIST,
    novice=LARGE_NOVICE,
    held_out=(frozenset({"text", "date"}), frozenset({"unit", "numeral"}), frozenset({"cipher", "week"})),
    slots=5,
    parts=(0.2, 0.2, 0.2, 0.2, 0.2),
    sizes=(4, 5, 6, 7, 8),
    single=0.4,
    extras=IRRELEVANT_WORKERS,
    extra=(0.4, 0.4, 0.2),
    listed=False,
)
EDITIONS = {edition.name: edition for edition in (SMALL, LARGE)}
ALL_PROFILES: dict[str, WorkerProfile] = {
    profile.name: profile
    for profile in (
        *PROFILES.values(),
        *LARGE.specialists,
        *LARGE.known,
        *LARGE.new,
        *_LARGE_MODELS,
        *IRRELEVANT_WORKERS,
    )
}
