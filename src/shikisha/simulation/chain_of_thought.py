"""The chain of thought that a trained conductor writes before its lists: which kinds of work, and who can do each.

    0=date
    1=fact+text
    2=judge
    3=strong
    strong=3
    weak=-
    judge=2
    work fact=1 then date=0, none=-, last alone
    so 2, in a row, steady

The first lines say what each worker's description offers, then which ordinals are the models and the judge. `work` has
the kinds of work in order (`then` where one uses the one before, `and` where they are independent), each with the most
specialized worker for it. It is padded to one length, so that a worker named there stands at the same distance from the
lists whatever the question is, and ends with the kinds that the last kind's worker does too ("last with 1"). `so` sums
up: how many kinds, how they are connected, and which of them are noisy and can be voted on ("noisy 2"; "dear 2" where
the reader does other work too and costs more). It is one token right before the plan, because the plan's form depends
on it.

Invariant: `true_chain_of_thought` says what a careful reader finds in the question and the descriptions, and nothing
about what to do with it: how many steps, which worker gets which, whether to vote. No parser and no reward reads it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations

from shikisha.simulation.editions import ALL_PROFILES, EDITIONS, SMALL, Edition
from shikisha.simulation.questions import FAMILIES
from shikisha.simulation.task_generator import PoolWorkers, QuestionShape
from shikisha.simulation.worker_profiles import JUDGE

NOBODY, NONE = "-", "none"
# Kinds of work that there is room for.
SLOTS = SMALL.slots
STRONG, WEAK, VOTES = "strong", "weak", "judge"
_SUMMARY_PREFIX = "so "
_ALONE, _IN_A_ROW, _JOINED = ", alone", ", in a row", ", joined"
_NOISY, _STEADY, _EXPENSIVE = ", noisy", ", steady", ", dear"
_LAST_ALONE, _LAST_WITH = ", last alone", ", last with"
_LABELS = {
    JUDGE: VOTES,
    **{edition.generalist: STRONG for edition in EDITIONS.values()},
    **{edition.novice: WEAK for edition in EDITIONS.values()},
}


@dataclass(frozen=True, slots=True)
class ChainOfThought:
    """`roll`: what each worker does; `kinds` in order of work, `joined` where the last combines the others.

    `can` is the best worker for each kind; it and `strong`, `weak`, `judge` are ordinals (None: no worker). `arm` is
    how many kinds the first of two arms has.
    """

    roll: tuple[tuple[str, ...], ...]
    kinds: tuple[str, ...]
    joined: bool
    can: tuple[int | None, ...]
    strong: int | None = None
    weak: int | None = None
    judge: int | None = None
    edition: Edition = SMALL
    arm: int = 1

    @property
    def slots(self) -> int:
        """How many kinds of work the text has room for."""
        return self.edition.slots

    @property
    def known(self) -> tuple[str, ...]:
        """All kinds of work of the edition."""
        return self.edition.families

    def text(self) -> str:
        """Return the text; it ends with a line break, and the lists follow."""
        work = "".join(chain.from_iterable(self._work()))
        work += f", {NONE}={NOBODY}" * (self.slots - len(self.kinds))
        summary = f"{_SUMMARY_PREFIX}{len(self.kinds)}{self._linked()}{self._noise()}"
        return f"{self._roles()}{work}{self._together()}\n{summary}\n"

    @property
    def votable(self) -> list[int]:
        """Return the places of noisy kinds that a worker of the pool reads and a judge can vote on."""
        if self.judge is None:
            return []
        read = (
            (place, kind)
            for place, (kind, who) in enumerate(zip(self.kinds, self.can, strict=True), 1)
            if who is not None
        )
        return [place for place, kind in read if FAMILIES[kind].noisy]

    def before(self, place: int) -> tuple[str, str]:
        """Return the text before the kind of work at this place, and that kind with its worker."""
        work = self._work()
        link, kind = work[place]
        return self._roles() + "".join(chain.from_iterable(work[:place])) + link, kind

    def _roles(self) -> str:
        """Return the lines before the kinds of work."""
        roll = "".join(f"{ordinal}={'+'.join(said)}\n" for ordinal, said in enumerate(self.roll))
        labels = ((STRONG, self.strong), (WEAK, self.weak), (VOTES, self.judge))
        models = "".join(f"{label}={_ordinal_text(who)}\n" for label, who in labels)
        return f"{roll}{models}work "

    def _work(self) -> list[tuple[str, str]]:
        """Return each kind of work with its worker, after the word that links it to the one before."""
        after = (" and " if self.joined and place == self.arm else " then " for place in range(1, len(self.kinds)))
        said = (f"{kind}={_ordinal_text(who)}" for kind, who in zip(self.kinds, self.can, strict=True))
        return list(zip(("", *after), said, strict=True))

    def _linked(self) -> str:
        if len(self.kinds) == 1:
            return _ALONE
        return _JOINED if self.joined else _IN_A_ROW

    def _noise(self) -> str:
        places = self.votable[: _noisy_family_count(self.edition)]
        if not places:
            return _STEADY
        dear = any(who is not None and len(self.roll[who]) > 1 for who in (self.can[place - 1] for place in places))
        return _numbered(_EXPENSIVE if dear else _NOISY, places)

    def _together(self) -> str:
        *others, last = self.can
        along = [place for place, who in enumerate(others, 1) if who == last is not None]
        return _numbered(_LAST_WITH, along) if along else _LAST_ALONE


def true_chain_of_thought(shape: QuestionShape, workers: PoolWorkers, edition: Edition = SMALL) -> ChainOfThought:
    """Return what a careful reader of a question of this shape, and of this pool's descriptions, finds in them."""
    names = [name for name, _ in workers]
    return ChainOfThought(
        tuple(_families_described(name, description) for name, description in workers),
        shape.families,
        shape.operations[-1].joins,
        tuple(best_worker_for(family, names) for family in shape.families),
        strong=_index_of(edition.generalist, names),
        weak=_index_of(edition.novice, names),
        judge=_index_of(JUDGE, names),
        edition=edition,
        arm=shape.uses[-1][0] + 1 if shape.operations[-1].joins else 1,
    )


def best_worker_for(family: str, names: Sequence[str]) -> int | None:
    """Return the most specialized worker for a family: fewest families, first in the pool."""
    able = [
        (len(ALL_PROFILES[name].skills), place)
        for place, name in enumerate(names)
        if family in ALL_PROFILES[name].skills
    ]
    return min(able)[1] if able else None


def _noisy_family_count(edition: Edition) -> int:
    """Return how many families are noisy; no question has more noisy parts."""
    return sum(FAMILIES[kind].noisy for kind in edition.families)


def _numbered(what: str, places: Sequence[int]) -> str:
    return " ".join((what, *map(str, places)))


def _numbered_variants(what: str, count: int, most: int) -> Iterator[str]:
    """Yield the text for every choice of up to `most` of the first `count` places."""
    for several in range(1, most + 1):
        yield from (_numbered(what, places) for places in combinations(range(1, count + 1), several))


def thought_tokens(edition: Edition = SMALL) -> tuple[str, ...]:
    """Return the texts that thoughts are made of, for a tokenizer that keeps each as one token."""
    labels = (*edition.families, STRONG, WEAK, VOTES, NONE)
    numbers = [str(ordinal) for ordinal in range(10)]
    heads = [f"{number}=" for number in numbers] + [f"\n{number}=" for number in numbers]
    lines = (f"\n{STRONG}=", f"\n{WEAK}=", f"\n{VOTES}=", "\nwork ", "\n")
    so = (
        f"\n{_SUMMARY_PREFIX}{count}{link}{noise}"  # one token, right before the plan that depends on it
        for count in range(1, edition.slots + 1)
        for link in ((_IN_A_ROW, _JOINED) if count > 1 else (_ALONE,))
        for noise in (
            _STEADY,
            *(
                told
                for what in (_NOISY, _EXPENSIVE)
                for told in _numbered_variants(what, count, _noisy_family_count(edition))
            ),
        )
    )
    together = (_LAST_ALONE, *_numbered_variants(_LAST_WITH, edition.slots - 1, edition.slots - 1))
    # Right after a kind of work: one token.
    does = [f"={who}" for who in (*numbers, NOBODY)]
    return (*labels, *numbers, *heads, *does, *lines, *so, *together, "=", "+", " then ", " and ", ", ", NOBODY)


@lru_cache(maxsize=1 << 15)
def _families_described(name: str, description: str) -> tuple[str, ...]:
    """Return a worker's families in the order of its description."""
    profile = ALL_PROFILES[name]
    if name in _LABELS or not profile.skills:
        return (_LABELS.get(name, NONE),)
    places = {
        family: min(description.find(words) for words in offer.all if words in description)
        for family, offer in zip(profile.skills, profile.descriptions, strict=True)
    }
    return tuple(sorted(places, key=lambda family: places[family]))


def _index_of(name: str, names: Sequence[str]) -> int | None:
    return names.index(name) if name in names else None


def _ordinal_text(ordinal: int | None) -> str:
    return NOBODY if ordinal is None else str(ordinal)
