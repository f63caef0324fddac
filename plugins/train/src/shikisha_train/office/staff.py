"""What the simulated workers of the office can really do, and what their cards claim.

A worker has a level for each kind of work, belongs to a family (whose workers do not know the same things), wants to
be told some things (`WordingFeature`), and has a price a call. A level is split: what a worker does not know
it never knows, and its whole family answers the same wrong thing; a slip is its own, and another attempt may do better.

Invariants: a crew is a function of its generator; a card holds no level, and what it claims may be false; names say
nothing. This module holds the truth: only the simulated workers, the optimum and tests may read it. What a conductor is
taught from never does.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from shikisha_train.office.cards import card_authors, card_texts
from shikisha_train.office.company import WorkKind
from shikisha_train.office.questions import AuthorSplit

KINDS = tuple(WorkKind)
# Share of a level (as an exponent) that is not known rather than slipped: a meter is read wrong, a policy is not known.
IGNORANCE: Mapping[WorkKind, float] = {
    WorkKind.PEOPLE: 0.7,
    WorkKind.INVOICES: 0.6,
    WorkKind.ARITHMETIC: 0.15,
    WorkKind.CALENDAR: 0.3,
    WorkKind.METERS: 0.0,
    WorkKind.POLICIES: 0.85,
}
# How often a check finds a wrong result, times the checker's level; and what a check costs, of the price of a call.
CHECK_POWER: Mapping[WorkKind, float] = {
    WorkKind.PEOPLE: 0.8,
    WorkKind.INVOICES: 0.85,
    WorkKind.ARITHMETIC: 0.97,
    WorkKind.CALENDAR: 0.95,
    WorkKind.METERS: 0.3,
    WorkKind.POLICIES: 0.5,
}
CHECK_COST: Mapping[WorkKind, float] = {
    WorkKind.PEOPLE: 0.5,
    WorkKind.INVOICES: 0.4,
    WorkKind.ARITHMETIC: 0.25,
    WorkKind.CALENDAR: 0.3,
    WorkKind.METERS: 1.0,
    WorkKind.POLICIES: 1.0,
}
CHECK_KEEPS = 0.98  # how often a check leaves a right result alone
WANT_MISSED = 0.75  # what a wanted feature is worth if it is missing
RANDOM_WORDING_FACTOR = 0.79  # about what a wording drawn at random leaves of a level
EXTRA_SAID = 0.96  # what an unwanted feature costs
IRRELEVANT_SHOWN = 0.93  # what each granted result costs that the work does not need
MORE_PARTS = 0.9  # what each further part in one call costs
FAMILIES = ("north", "east", "south", "west")
_NAMES = (
    "Alder", "Birch", "Cedar", "Doum", "Elm", "Fir", "Gingko", "Hazel", "Ivy", "Juniper", "Kapok", "Larch", "Maple",
    "Nutmeg", "Oak", "Pine", "Quince", "Rowan", "Spruce", "Teak", "Upas", "Vine", "Willow", "Yew",
)  # fmt: skip


class WordingFeature(StrEnum):
    """What a subtask may say besides the part itself. Workers differ in what they want to be told."""

    FORMAT = "format"
    UNIT = "unit"
    EXAMPLE = "example"
    CHECK = "check"


FEATURES = tuple(WordingFeature)


class CardHonesty(StrEnum):
    """How a card relates to the truth."""

    TRUE = "true"
    VAGUE = "vague"
    BOASTFUL = "boastful"
    OUTDATED = "outdated"
    BLANK = "blank"
    SWAPPED = "swapped"


@dataclass(frozen=True, eq=False)
class StaffMember:
    """One simulated worker: its level (0 to 1) by kind of work, what it wants, dollars a call and seconds a call."""

    name: str
    family: str
    levels: Mapping[WorkKind, float]
    wants: frozenset[WordingFeature]
    price: float
    seconds: float
    generalist: bool = False

    @property
    def strong(self) -> tuple[WorkKind, ...]:
        """The kinds of work that an honest card names."""
        return tuple(kind for kind in KINDS if self.levels[kind] >= 0.5)

    def knows(self, kind: WorkKind) -> float:
        """Return how often it knows what a part of this kind needs; the same for each of its attempts at the part."""
        return float(self.levels[kind] ** IGNORANCE[kind])

    def steady(self, kind: WorkKind) -> float:
        """Return how often it does not slip at a part whose needs it knows, at the best wording."""
        return float(self.levels[kind] ** (1 - IGNORANCE[kind]))

    def wording_factor(self, features: frozenset[WordingFeature]) -> float:
        """Return what a wording with these features leaves of its steadiness."""
        return float(WANT_MISSED ** len(self.wants - features) * EXTRA_SAID ** len(features - self.wants))

    def changed(self, kind: WorkKind, level: float) -> "StaffMember":
        """Return the worker after its level at one kind of work became another."""
        return replace(self, levels={**self.levels, kind: level})


@dataclass(frozen=True, eq=False)
class Crew:
    """The workers of one pool in its order, their cards, how honest each is, and what each claims to do."""

    members: tuple[StaffMember, ...]
    cards: tuple[str, ...]
    honesty: tuple[CardHonesty, ...]
    claims: tuple[frozenset[WorkKind], ...]

    def __len__(self) -> int:
        return len(self.members)


@dataclass(frozen=True, slots=True)
class CrewDistribution:
    """How crews are drawn: `sizes`, how often a generalist is there, and how often a card is of each honesty."""

    sizes: tuple[int, ...] = (4, 5, 6)
    generalist: float = 0.7
    honesty: Mapping[CardHonesty, float] = field(
        default_factory=lambda: {
            CardHonesty.TRUE: 0.4,
            CardHonesty.VAGUE: 0.12,
            CardHonesty.BOASTFUL: 0.16,
            CardHonesty.OUTDATED: 0.12,
            CardHonesty.BLANK: 0.1,
            CardHonesty.SWAPPED: 0.1,
        }
    )


def draw_crew(distribution: CrewDistribution, split: AuthorSplit, rng: random.Random) -> Crew:
    """Draw a crew and its cards. At four kinds of work or more, one of its members is strong."""
    size = rng.choice(distribution.sizes)
    while True:
        members = [_draw_specialist(name, rng) for name in rng.sample(_NAMES, size)]
        if rng.random() < distribution.generalist:
            members[0] = _draw_generalist(members[0].name, rng)
        if len({kind for member in members for kind in member.strong}) >= 4:
            break
    rng.shuffle(members)
    return write_cards(tuple(members), distribution, split, rng)


def _draw_specialist(name: str, rng: random.Random) -> StaffMember:
    strong = rng.sample(KINDS, rng.choice((1, 2, 2, 3)))
    levels = {kind: rng.uniform(0.75, 0.99) if kind in strong else rng.uniform(0.02, 0.2) for kind in KINDS}
    price = 0.001 * 2 ** rng.uniform(-1, 1)
    return StaffMember(name, rng.choice(FAMILIES), levels, _draw_wants(rng), price, rng.uniform(0.02, 0.3))


def _draw_generalist(name: str, rng: random.Random) -> StaffMember:
    levels = {kind: rng.uniform(0.55, 0.85) for kind in KINDS}
    price = 0.005 * 2 ** rng.uniform(-0.5, 0.5)
    wants = _draw_wants(rng)
    return StaffMember(name, rng.choice(FAMILIES), levels, wants, price, rng.uniform(0.2, 0.8), generalist=True)


def _draw_wants(rng: random.Random) -> frozenset[WordingFeature]:
    return frozenset(rng.sample(FEATURES, rng.choice((1, 1, 2))))


def write_cards(
    members: tuple[StaffMember, ...], distribution: CrewDistribution, split: AuthorSplit, rng: random.Random
) -> Crew:
    """Return these workers as a crew, with cards by authors of the split."""
    kinds = tuple(distribution.honesty)
    honesty = rng.choices(kinds, [distribution.honesty[kind] for kind in kinds], k=len(members))
    own = [_claims(member, how, rng) for member, how in zip(members, honesty, strict=True)]
    for place, how in enumerate(honesty):
        if how is CardHonesty.SWAPPED:
            other = rng.choice([at for at in range(len(members)) if at != place])
            own[place] = frozenset(members[other].strong)
    cards = tuple(_write_card(how, claimed, split, rng) for how, claimed in zip(honesty, own, strict=True))
    return Crew(members, cards, tuple(honesty), tuple(own))


def _claims(member: StaffMember, honesty: CardHonesty, rng: random.Random) -> frozenset[WorkKind]:
    strong, weak = list(member.strong), [kind for kind in KINDS if kind not in member.strong]
    match honesty:
        case CardHonesty.VAGUE | CardHonesty.BLANK:
            return frozenset()
        case CardHonesty.BOASTFUL:
            return frozenset(strong + rng.sample(weak, min(len(weak), rng.choice((1, 2, 3)))))
        case CardHonesty.OUTDATED:
            kept = rng.sample(strong, len(strong) - 1) if strong else []
            return frozenset(kept + rng.sample(weak, min(len(weak), 1)))
        case _:
            return frozenset(strong)


def _write_card(honesty: CardHonesty, claimed: frozenset[WorkKind], split: AuthorSplit, rng: random.Random) -> str:
    author = rng.choice(card_authors(split))
    if honesty is CardHonesty.BLANK:
        return ""
    if honesty is CardHonesty.VAGUE:
        return rng.choice(card_texts()["vague"][author])
    if len(claimed) == len(KINDS):
        return rng.choice(card_texts()["generalist"][author])
    order = sorted(sorted(claimed), key=lambda _: rng.random())  # a set's own order differs from process to process
    said = [rng.choice(card_texts()[kind][author]) for kind in order]
    return " ".join(f"{text[0].upper()}{text[1:]}" for text in said)
