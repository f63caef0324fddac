"""What a conductor of this world may think before it writes its lists: kinds of work, and who is fit for each.

    strong 5
    weak -
    judge 4
    work fact 3 then date 0, none -

`strong`, `weak` and `judge` name the models and the judge; `work` has the kinds of work in order (`then` where one takes
up the one before, `and` where they are independent), each with the worker that does it and little else, and is filled up
to the same length, so that whoever is named there stands at the same distance from the lists whatever the question is.
Invariant: `thought_of` says what a careful reader finds in the words of the question and of the descriptions, and
nothing about what to do with it: how many steps, who gets which, whether to vote. No parser and no reward reads it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shikisha.orchestra.cast import GENERALIST, JUDGE, NOVICE, PROFILES
from shikisha.orchestra.pools import Casting
from shikisha.orchestra.shapes import Shape

NOBODY = "-"
SLOTS = 3  # kinds of work that there is room for


@dataclass(frozen=True, slots=True)
class Thought:
    """`kinds` in order of work, `joined` where the last brings the others together, ordinals (None: nobody)."""

    kinds: tuple[str, ...]
    joined: bool
    can: tuple[int | None, ...]
    strong: int | None = None
    weak: int | None = None
    judge: int | None = None

    def text(self) -> str:
        """Write it down; ends with a line break, after which the lists follow."""
        work = ""
        for place, (kind, ordinal) in enumerate(zip(self.kinds, self.can, strict=True)):
            parallel = self.joined and place < len(self.kinds) - 1
            work += ("" if not place else " and " if parallel else " then ") + f"{kind} {_said(ordinal)}"
        work += f", none {NOBODY}" * (SLOTS - len(self.kinds))
        return f"strong {_said(self.strong)}\nweak {_said(self.weak)}\njudge {_said(self.judge)}\nwork {work}\n"

    @property
    def uses(self) -> tuple[tuple[int, ...], ...]:
        """Which earlier kinds each takes up."""
        last = len(self.kinds) - 1
        if self.joined:
            return (*((),) * last, tuple(range(last)))
        return tuple((place - 1,) if place else () for place in range(last + 1))


def thought_of(shape: Shape, casting: Casting) -> Thought:
    """Return what a careful reader of a question of this shape, and of this pool's descriptions, finds in them."""
    names = [name for name, _ in casting]
    return Thought(
        shape.families,
        shape.operations[-1].joins,
        tuple(fit_for(family, names) for family in shape.families),
        *(names.index(name) if name in names else None for name in (GENERALIST, NOVICE, JUDGE)),
    )


def fit_for(family: str, names: Sequence[str]) -> int | None:
    """Return who does this kind of work and little else: fewest kinds, first in the pool."""
    able = [(len(PROFILES[name].skills), place) for place, name in enumerate(names) if family in PROFILES[name].skills]
    return min(able)[1] if able else None


def _said(ordinal: int | None) -> str:
    return NOBODY if ordinal is None else str(ordinal)
