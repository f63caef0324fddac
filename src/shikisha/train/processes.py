"""What the processes of one training tell each other: what their completions came to, and gradients.

Invariant: every process hears the same, in the same order, so that all compare with all and go on alike. Deliberately
absent: Python objects (they would be pickled), so what workers answered stays with the process that asked them.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Protocol, cast

import torch
from torch import Tensor

from shikisha.train.batch import Group
from shikisha.train.crew import Crew
from shikisha.train.scoring import Scored


class Peers(Protocol):
    """What `accelerate.Accelerator` does between processes."""

    def reduce(self, tensor: Tensor, reduction: str = "sum") -> Tensor:
        """Return the sum or mean over processes."""
        ...


@dataclass(frozen=True, slots=True)
class Heard:
    """Of a group: whose it is, whether it is a second round, whether the answer at hand was right, what it came to."""

    rank: int
    second: bool
    at_hand: bool
    found: tuple[Scored, ...]
    tokens: int
    task: str = ""

    @property
    def right(self) -> float:
        """The share of right answers."""
        return sum(one.right for one in self.found) / len(self.found)


def everyones(crew: Crew, groups: Sequence[Group]) -> list[Heard]:
    """Return the groups of all processes, by rank."""
    if crew.count == 1:
        return [_heard(0, group, group.found) for group in groups]
    said = [[_said(one) for one in group.found] for group in groups]
    facts = [{**asdict(_heard(0, group, ())), "found": found} for group, found in zip(groups, said, strict=True)]
    return [
        Heard(**{**fact, "rank": rank, "found": tuple(map(_scored, fact["found"]))})
        for rank, text in enumerate(crew.texts(json.dumps(facts)))
        for fact in json.loads(text)
    ]


def most(crew: Crew, count: int) -> int:
    """Return the largest of the processes' numbers."""
    return max(int(each) for each in crew.texts(str(count)))


def mean_gradients(peers: Peers, parameters: Iterable[torch.nn.Parameter]) -> None:
    """Replace gradients by their means over the processes; whoever has none has contributed zero."""
    trained = [each for each in parameters if each.requires_grad]
    flat = torch.cat([(torch.zeros_like(each) if each.grad is None else each.grad).flatten() for each in trained])
    means, place = peers.reduce(flat, reduction="mean"), 0
    for each in trained:
        each.grad = means[place : place + each.numel()].view_as(each).clone()
        place += each.numel()


def _heard(rank: int, group: Group, found: tuple[Scored, ...]) -> Heard:
    return Heard(
        rank, bool(group.asked.rounds), bool(group.asked.right), found, int(group.real.sum()), group.asked.item.task.id
    )


def _said(one: Scored) -> dict[str, object]:
    """Return what can be told of it: all but its rounds."""
    told = {each.name: getattr(one, each.name) for each in fields(one) if each.name != "rounds"}
    return {**told, "parts": dict(one.parts)}


def _scored(said: dict[str, object]) -> Scored:
    made = cast("Callable[..., Scored]", Scored)
    lists = {name: tuple(cast("list[object]", said[name])) for name in ("workers", "ranks")}
    return made(**{**said, **lists})
