"""Which data a worker may see: labels on tasks, joined along the plan, against what each worker is cleared for.

Invariant: a call is refused unless the worker is cleared for every guarded label of everything that it would be shown.
The labels of a step's answer are the join of what its worker read and what the worker adds (a store of confidential
files adds "confidential" to all it says); so a label follows the data through steps, rounds, checks and child runs, and
nothing that a model writes can take one off (5). Labels that are not guarded are names for rules, and hinder nobody.
Deliberately absent: degrees. A label is a set's member; whoever needs levels gives a worker several labels.
"""

from collections.abc import Iterable

from shikisha.call import Card
from shikisha.errors import FaultKind, WorkerError

Labels = frozenset[str]
NONE: Labels = frozenset()


def join(*labels: Iterable[str]) -> Labels:
    """Return all labels of these data together."""
    return NONE.union(*labels)


def cleared(card: Card, labels: Iterable[str], guarded: Labels) -> bool:
    """Whether the worker may see data with these labels."""
    return not missing(card, labels, guarded)


def missing(card: Card, labels: Iterable[str], guarded: Labels) -> tuple[str, ...]:
    """Return the guarded labels that the worker is not cleared for, in order."""
    return tuple(sorted(guarded.intersection(labels).difference(card.sees)))


def admit(card: Card, labels: Iterable[str], guarded: Labels) -> None:
    """Let the worker see data with these labels; WorkerError (NOT_CLEARED) names those that it may not see."""
    if lacking := missing(card, labels, guarded):
        raise WorkerError(FaultKind.NOT_CLEARED, f"{card.name} may not see what is labelled {', '.join(lacking)}")
