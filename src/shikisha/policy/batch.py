"""States: tasks, and what their workers have said so far, many at once.

T tasks, J workers in the policy's order. Invariant: an answer is known by its canonical form alone, as a code that is
the same for answers that agree within a task and means nothing beyond it; what has not been asked is NOT_ASKED and is
told apart from NOTHING, an asked worker without an answer. Deliberately absent: right answers, scores and costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.shapes import cut, shapes
from shikisha.policy.words import Words, grams, hashed

NOT_ASKED, NOTHING = -2, -1
SHIP = -1  # the act of asking nobody
NOBODY = -1
_SIGNS = "\\^="


@dataclass(frozen=True)
class Batch:
    """Tasks before anyone is asked: prompts and types ([T], -1 unknown)."""

    prompts: tuple[str, ...]
    types: Ints

    def __len__(self) -> int:
        return len(self.prompts)

    @cached_property
    def shape(self) -> Floats:
        """[T, 4]: log length, share of digits, whether there are formulas, how many lettered options; each about 1."""
        return np.array([_shape(prompt) for prompt in self.prompts], float).reshape(len(self), 4)

    @cached_property
    def words(self) -> Words:
        """The hashed words of the prompts."""
        return hashed(self.prompts)

    @cached_property
    def looks(self) -> Floats:
        """[T, SHAPES]: what the prompts look like (`shapes`)."""
        return shapes(self.prompts)

    @cached_property
    def grams(self) -> Words:
        """The words, numbers and marks near the prompts' ends, and the pairs of them."""
        return grams([cut(prompt) for prompt in self.prompts])

    def at(self, rows: Ints | Flags) -> "Batch":
        """Return these tasks; what was computed for the whole is not computed again."""
        places = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        part = Batch(tuple(self.prompts[place] for place in places), self.types[places])
        for name in ("shape", "words", "looks", "grams"):
            if name in self.__dict__:
                known = self.__dict__[name]
                part.__dict__[name] = known[places] if isinstance(known, np.ndarray) else known.at(places)
        return part


@dataclass(frozen=True, slots=True)
class Seen:
    """A batch and what has been seen of it.

    `codes` [T, J] say which answers agree, `lengths` [T, J] how many characters an answer has, `tokens` [T, J] what was
    written for it (NaN: unknown), `tells` [T, J] how sure it sounds (`hearing`; None: nobody listened). `may_ask` [J]
    are the workers that are there.
    """

    batch: Batch
    codes: Ints
    lengths: Ints
    tokens: Floats
    may_ask: Flags
    tells: Floats | None = None

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def asked(self) -> Flags:
        """[T, J]: who has been asked."""
        asked: Flags = self.codes != NOT_ASKED
        return asked

    def at(self, rows: Ints | Flags) -> "Seen":
        """Return these tasks."""
        tells = None if self.tells is None else self.tells[rows]
        return Seen(self.batch.at(rows), self.codes[rows], self.lengths[rows], self.tokens[rows], self.may_ask, tells)

    def told(self, worker: int) -> Floats:
        """[T]: how sure this worker's answer sounds; 0 where nobody listened."""
        return np.zeros(len(self)) if self.tells is None else self.tells[:, worker]


@dataclass(frozen=True, slots=True)
class Acts:
    """What to do for each task: `ask` [T] a worker, or SHIP; `ship` [T] whose answer is shipped then, or NOBODY."""

    ask: Ints
    ship: Ints


def by_asked(seen: Seen) -> list[tuple[tuple[int, ...], Ints]]:
    """Return the rows of each set of workers that have been asked."""
    if len(seen) == 1:
        return [(tuple(np.flatnonzero(seen.asked[0]).tolist()), np.zeros(1, np.int64))]
    sets, places = np.unique(seen.asked, axis=0, return_inverse=True)
    flat = places.reshape(-1)
    return [(tuple(np.flatnonzero(one).tolist()), np.flatnonzero(flat == place)) for place, one in enumerate(sets)]


def supporter(seen: Seen, among: Sequence[int], code: Ints) -> Ints:
    """Return [T] who of these gave the answer of this code in the fewest characters; the first of equals, or NOBODY."""
    if not among:
        return np.full(len(seen), NOBODY, np.int64)
    columns = np.array(among)
    said = (seen.codes[:, columns] == code[:, None]) & (code >= 0)[:, None]
    lengths = np.where(said, seen.lengths[:, columns], np.iinfo(np.int64).max)
    return np.where(said.any(axis=1), columns[lengths.argmin(axis=1)], NOBODY)


def _shape(prompt: str) -> tuple[float, float, float, float]:
    size = len(prompt)
    digits = _digits(prompt) / max(size, 1)
    options = sum(prompt.count(f"\n{letter}. ") for letter in "ABCDEFGHIJ")
    return float(np.log1p(size)) - 6.0, 10 * digits, float(any(sign in prompt for sign in _SIGNS)), options / 10


def _digits(prompt: str) -> int:
    if prompt.isascii():  # the same, and many times as quick
        return sum(map(prompt.count, "0123456789"))
    return sum(map(str.isdigit, prompt))
