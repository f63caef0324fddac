"""Profiles of all simulated workers: nominal skill, price and the ways to describe each.

A profile is what a worker can do; the optimal conductor and the tests rely on it. Tools are specialists of one to three
families. Gauge and sensor readers are noisy. The judge takes the most common result and sometimes spoils it, so a vote
is not free. Two simulated language models try everything: their skill depends on how many parts they do in one call,
and the same question in the same run brings the same answer. A third group has trades that no question needs.

Invariants: no description contains a worker's name, and no word of an irrelevant worker is a keyword of a family.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

from shikisha.core.budget import Price
from shikisha.simulation.questions import FAMILIES, SMALL_FAMILY_NAMES
from shikisha.simulation.seeded_random import shuffle_by_hash
from shikisha.simulation.vocabulary import Paraphrases

SPECIALIST_SKILL, TWO_FAMILY_SKILL, THREE_FAMILY_SKILL, READER_SKILL = 0.98, 0.96, 0.94, 0.68
JUDGE = "judge"
GENERALIST = "simulated-generalist"
NOVICE = "simulated-novice"
# Both by number of families.
_SKILLS = (SPECIALIST_SKILL, TWO_FAMILY_SKILL, THREE_FAMILY_SKILL)
_PRICES = (0.001, 0.0012, 0.0014)
# There are 15 pairs of families; two-skilled workers of the other 6 are new in the held-out split.
_TRAINING_PAIR_COUNT = 9


@dataclass(frozen=True, eq=False)
class WorkerProfile:
    """A worker's nominal skill: by family (tools) or by number of parts (models); `vote`: at taking the majority.

    `seconds` is how long a call takes where time passes (in the demo).
    """

    name: str
    descriptions: tuple[Paraphrases, ...]
    price: Price
    skills: dict[str, float] = field(default_factory=dict)
    skill_by_parts: tuple[float, ...] = ()
    vote: float = 0.0
    seconds: float = 0.0

    @cached_property
    def is_model(self) -> bool:
        """Whether it is a simulated language model."""
        return bool(self.skill_by_parts)

    def skill(self, families: tuple[str, ...]) -> float:
        """Return the nominal probability that one call gets these parts right, given right inputs."""
        if self.skill_by_parts:
            return self.skill_by_parts[min(len(families), len(self.skill_by_parts)) - 1]
        chance = 1.0
        for family in families:
            chance *= self.skills.get(family, 0.0)
        return chance


def tool_profile(*families: str) -> WorkerProfile:
    """Return the profile of a tool for these families."""
    skill = _SKILLS[len(families) - 1]
    skills = {name: READER_SKILL if FAMILIES[name].noisy else skill for name in families}
    only_reads = all(FAMILIES[name].noisy for name in families)
    return WorkerProfile(
        name="-".join(families),
        descriptions=tuple(_DESCRIPTIONS[name] for name in families),
        price=Price(call=0.0004 if only_reads else _PRICES[len(families) - 1]),
        skills=skills,
        seconds=0.02,
    )


_DESCRIPTIONS = {name: Paraphrases.of(*family.descriptions) for name, family in FAMILIES.items()}
_JUDGE = WorkerProfile(
    name=JUDGE,
    descriptions=(
        Paraphrases.of(
            "(takes|picks|returns) the (most common|majority) (result|answer|value) (of several|among many)",
            "(settles|decides) by (vote|majority) (of several|among many) (results|answers)",
        ),
    ),
    price=Price(call=0.0004),
    vote=0.95,
    seconds=0.02,
)
_GENERALIST = WorkerProfile(
    name=GENERALIST,
    descriptions=(
        Paraphrases.of(
            "a (strong|capable) and (dear|costly) (general|all-round) model",
            "(a dear|a costly) model that (answers|tries) (anything|everything) and is often right",
        ),
    ),
    price=Price(input=60.0, output=240.0),
    skill_by_parts=(0.80, 0.45, 0.20, 0.08),
    vote=0.90,
    seconds=0.12,
)
_NOVICE = WorkerProfile(
    name=NOVICE,
    descriptions=(
        Paraphrases.of(
            "a (weak|small) and (cheap|thrifty) (general|all-round) model",
            "(a cheap|a thrifty) model that (answers|tries) (anything|everything) and is often wrong",
        ),
    ),
    price=Price(input=2.0, output=8.0),
    skill_by_parts=(0.50, 0.15, 0.03, 0.01),
    vote=0.50,
    seconds=0.04,
)

SPECIALISTS = tuple(tool_profile(name) for name in SMALL_FAMILY_NAMES)
_PAIRS = shuffle_by_hash(list(combinations(SMALL_FAMILY_NAMES, 2)), "two-skilled workers")
TRAINING_PAIRS = tuple(tool_profile(*pair) for pair in _PAIRS[:_TRAINING_PAIR_COUNT])
HELD_OUT_PAIRS = tuple(tool_profile(*pair) for pair in _PAIRS[_TRAINING_PAIR_COUNT:])
HELD_OUT_NAMES = frozenset(profile.name for profile in HELD_OUT_PAIRS)
PROFILES: dict[str, WorkerProfile] = {
    profile.name: profile for profile in (*SPECIALISTS, *TRAINING_PAIRS, *HELD_OUT_PAIRS, _JUDGE, _GENERALIST, _NOVICE)
}


_IRRELEVANT_TRADES: dict[str, tuple[float, tuple[str, ...]]] = {  # dollars a call, and descriptions
    "painter": (
        0.001,
        (
            "(paints|draws) (pictures|portraits) of (people|landscapes)",
            "(makes|sketches) (pictures|drawings) (by hand|in oil)",
        ),
    ),
    "singer": (0.0004, ("(sings|hums) (songs|tunes) (aloud|on request)", "(a voice|a choir) for (songs|tunes)")),
    "travel-agent": (
        0.0012,
        ("books (trips|flights|hotels) (abroad|at home)", "(plans|arranges) (trips|journeys) (abroad|at home)"),
    ),
    "cook": (
        0.001,
        ("(cooks|prepares) (meals|soups) (for guests|at home)", "(invents|collects) recipes for (meals|soups)"),
    ),
    "gardener": (
        0.0004,
        ("(waters|prunes) (plants|trees|roses)", "(grows|tends) (plants|trees|roses) in the garden"),
    ),
    "translator": (
        0.004,
        (
            "(translates|renders) (poems|novels) into (french|latin)",
            "(speaks|understands) (french|latin) like a native",
        ),
    ),
    "coach": (
        0.002,
        ("(trains|coaches) (runners|swimmers)", "gives (fitness|swimming) (lessons|advice) to (beginners|runners)"),
    ),
    "tailor": (0.0012, ("(sews|mends) (coats|dresses|shirts)", "(cuts|fits) (coats|dresses|shirts) to measure")),
}

IRRELEVANT_WORKERS = tuple(
    WorkerProfile(name, (Paraphrases.of(*said),), Price(call=dollars), seconds=0.02)
    for name, (dollars, said) in _IRRELEVANT_TRADES.items()
)
