"""Who plays: every worker's profile, with its nominal skill, price and the ways to describe it.

Invariant: a profile is what a worker can do, and the optimal policy and the tests hold the workers to it. Tools are
specialists of one family, or two; the gauge reader reads with noise; the judge takes the most common result and
sometimes spoils it, so a needless re-check is not free. The two models are simulated and named so: their skill depends
on how many parts they do in one call, and asking one again in the same run brings the same answer. Slips of all of
them are drawn (`chance`) on top of honest work by real tools. Deliberately absent: names in descriptions, and who of
the cast an edition draws (`edition`).
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

from shikisha.budget import Price
from shikisha.orchestra.chance import shuffled
from shikisha.orchestra.families import FAMILIES, FIRST
from shikisha.orchestra.wording import Wordings, wordings

SPECIALIST, TWO_SKILLED, THREE_SKILLED, READER = 0.98, 0.96, 0.94, 0.68
JUDGE = "judge"
GENERALIST = "simulated-generalist"
NOVICE = "simulated-novice"
_SKILLS, _PRICES = (SPECIALIST, TWO_SKILLED, THREE_SKILLED), (0.001, 0.0012, 0.0014)  # by number of families
_PAIRS_IN_TRAINING = 9  # of the 15 pairs of families; two-skilled workers of the others are new in the held-out split


@dataclass(frozen=True, eq=False)
class Profile:
    """A worker's nominal skill: by family (tools) or by number of parts (models); `vote`, at taking the majority.

    `seconds` is how long a call takes where calls are made to take time (the demo).
    """

    name: str
    offers: tuple[Wordings, ...]
    price: Price
    skills: dict[str, float] = field(default_factory=dict)
    whole: tuple[float, ...] = ()
    vote: float = 0.0
    seconds: float = 0.0

    @cached_property
    def is_model(self) -> bool:
        """Whether it is a simulated language model."""
        return bool(self.whole)

    def skill(self, families: tuple[str, ...]) -> float:
        """Return the nominal chance to get these parts right in one call, given right inputs."""
        if self.whole:
            return self.whole[min(len(families), len(self.whole)) - 1]
        chance = 1.0
        for family in families:
            chance *= self.skills.get(family, 0.0)
        return chance


def tool(*families: str) -> Profile:
    """Return the worker of these kinds of work."""
    skill = _SKILLS[len(families) - 1]
    skills = {name: READER if FAMILIES[name].noisy else skill for name in families}
    only_reads = all(FAMILIES[name].noisy for name in families)
    return Profile(
        name="-".join(families),
        offers=tuple(_OFFERS[name] for name in families),
        price=Price(call=0.0004 if only_reads else _PRICES[len(families) - 1]),
        skills=skills,
        seconds=0.02,
    )


_OFFERS = {name: wordings(*family.offers) for name, family in FAMILIES.items()}
_JUDGE = Profile(
    name=JUDGE,
    offers=(
        wordings(
            "(takes|picks|returns) the (most common|majority) (result|answer|value) (of several|among many)",
            "(settles|decides) by (vote|majority) (of several|among many) (results|answers)",
        ),
    ),
    price=Price(call=0.0004),
    vote=0.95,
    seconds=0.02,
)
_GENERALIST = Profile(
    name=GENERALIST,
    offers=(
        wordings(
            "a (strong|capable) and (dear|costly) (general|all-round) model",
            "(a dear|a costly) model that (answers|tries) (anything|everything) and is often right",
        ),
    ),
    price=Price(input=60.0, output=240.0),
    whole=(0.80, 0.45, 0.20, 0.08),
    vote=0.90,
    seconds=0.12,
)
_NOVICE = Profile(
    name=NOVICE,
    offers=(
        wordings(
            "a (weak|small) and (cheap|thrifty) (general|all-round) model",
            "(a cheap|a thrifty) model that (answers|tries) (anything|everything) and is often wrong",
        ),
    ),
    price=Price(input=2.0, output=8.0),
    whole=(0.50, 0.15, 0.03, 0.01),
    vote=0.50,
    seconds=0.04,
)

SPECIALISTS = tuple(tool(name) for name in FIRST)
_PAIRS = shuffled(list(combinations(FIRST, 2)), "two-skilled workers")
KNOWN_PAIRS = tuple(tool(*pair) for pair in _PAIRS[:_PAIRS_IN_TRAINING])
NEW_PAIRS = tuple(tool(*pair) for pair in _PAIRS[_PAIRS_IN_TRAINING:])
NEW_NAMES = frozenset(profile.name for profile in NEW_PAIRS)
PROFILES: dict[str, Profile] = {
    profile.name: profile for profile in (*SPECIALISTS, *KNOWN_PAIRS, *NEW_PAIRS, _JUDGE, _GENERALIST, _NOVICE)
}
