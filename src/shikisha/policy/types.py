"""Task types: which type a task is of, and in which canonical form answers of that type are compared.

A type is the task's own domain; where a log has none, it is the nearest of some clusters of hashed words. Invariant: a
task is of a type that the log had, or of an unknown one (-1), and never of a guessed domain. Deliberately absent:
finding the clusters (`learn`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shikisha.grade.canon import Form, canonical
from shikisha.outcomes import marked
from shikisha.policy.arrays import Floats, Ints
from shikisha.policy.words import SIZE, hashed

UNKNOWN = -1
OPEN = "open"  # answers have no canonical form: they agree by nothing


@dataclass(frozen=True, slots=True)
class Types:
    """The types' names, the form (a Form, or OPEN) of each, and of tasks of unknown type.

    `centres` [D, SIZE], rows of length 1, are there where types are clusters.
    """

    names: tuple[str, ...]
    forms: tuple[str, ...]
    form: str = Form.TEXT
    centres: Floats = field(default_factory=lambda: np.zeros((0, SIZE)))

    def of(self, domains: Sequence[str], prompts: Sequence[str]) -> Ints:
        """Return [T]: each task's type."""
        if len(self.centres):
            nearest: Ints = hashed(prompts).times(self.centres.T).argmax(axis=1).astype(np.int64)
            return nearest
        places = {name: place for place, name in enumerate(self.names)}
        return np.array([places.get(domain, UNKNOWN) for domain in domains], np.int64)

    def form_of(self, kind: int) -> str:
        """Return the form in which answers to tasks of this type are compared."""
        return self.form if kind == UNKNOWN else self.forms[kind]

    def canonical(self, answer: str | None, kind: int) -> str | None:
        """Return an answer's canonical form, or None where there is no answer in it.

        Answers of an open type are themselves, or what is marked at their end: two agree only to the letter.
        """
        if answer is None:
            return None
        form = self.form_of(kind)
        return (marked(answer.strip()).strip() or None) if form == OPEN else canonical(answer, Form(form))


def coded(answers: Sequence[str | None], nothing: int) -> list[int]:
    """Return codes that are equal where answers are, by first appearance; `nothing` for None."""
    known: dict[str, int] = {}
    return [nothing if answer is None else known.setdefault(answer, len(known)) for answer in answers]
