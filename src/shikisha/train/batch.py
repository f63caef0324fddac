"""A batch of GRPO: prompts, what was sampled for each, and what goes through the model once more.

Invariants: a second round's prompt shows a first round that was really performed; equal completions of a group are one
row, which counts for as many as they are; a completion without advantage is left out. Deliberately absent: models.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shikisha.brief import brief
from shikisha.errors import ConfigError
from shikisha.run import Performed
from shikisha.taskset import Item
from shikisha.train.advantage import Floats
from shikisha.train.progress import Sample
from shikisha.train.rollout import Sampled
from shikisha.train.scoring import Scored


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt: its item, and the rounds that it shows, with the texts that planned them.

    `right` says whether the answer at hand was right (None: there is none yet).
    """

    item: Item
    rounds: tuple[Performed, ...] = ()
    texts: tuple[str, ...] = ()
    right: bool | None = None

    def prompt(self) -> str:
        """Return the text that the model reads."""
        if self.item.pool is None:
            raise ConfigError(f"task {self.item.task.id}: no pool to plan for")
        return brief(self.item.task, self.item.pool.cards, self.rounds)


@dataclass(frozen=True, slots=True)
class Group:
    """What was sampled for a prompt: `tokens` and `real` [G, C], `logprobs` [G, C], and what each came to."""

    asked: Asked
    prompt: list[int]
    tokens: Tensor
    real: Tensor
    logprobs: Tensor
    texts: tuple[str, ...]
    found: tuple[Scored, ...]

    @property
    def right(self) -> float:
        """The share of right answers."""
        return float(np.mean([one.right for one in self.found]))

    def shown(self) -> Sample:
        """Return one of its completions."""
        one = self.found[0]
        return Sample(self.asked.item.task.prompt, self.texts[0], one.total, one.shape, one.right)


@dataclass(frozen=True, slots=True)
class Batch:
    """Prompts [B], and for each the different completions that count: `tokens`, `real`, `sampled` [B, G, C].

    `wished` [B, G] are their advantages, `counts` [B, G] how many equal ones each stands for (0: padding).
    """

    prompts: list[list[int]]
    tokens: Tensor
    real: Tensor
    sampled: Tensor
    wished: Tensor
    counts: Tensor

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""
        moved = (each.to(device) for each in (self.tokens, self.real, self.sampled, self.wished, self.counts))
        return Batch(self.prompts, *moved)


def grouped(
    asked: Sequence[Asked],
    prompts: Sequence[list[int]],
    drawn: Sampled,
    texts: Sequence[Sequence[str]],
    found: Sequence[Sequence[Scored]],
) -> Iterator[Group]:
    """Yield the groups of one call of the sampler."""
    for place, one in enumerate(asked):
        yield Group(
            one,
            prompts[place],
            drawn.tokens[place],
            drawn.real[place],
            drawn.logprobs[place],
            tuple(texts[place]),
            tuple(found[place]),
        )


def gone_on(group: Group, most: int, scouts: int = 0) -> Iterator[Asked]:
    """Yield prompts for a second round: after different first ones, those that went wrong before those that did not.

    The last `scouts` of the group are left out: their first rounds are not what the policy comes to.
    """
    found = list(zip(group.texts, group.found, strict=True))[: len(group.texts) - scouts]
    pairs = {text: one for text, one in found if one.rounds and one.total is not None}
    ordered = sorted(pairs.items(), key=lambda pair: pair[1].right)
    half = most // 2
    for text, one in [*ordered[:half], *ordered[half:][-(most - half) :]]:
        yield Asked(group.asked.item, one.rounds, (text,), one.right)


def merged(groups: Sequence[Group], wished: Floats) -> Batch | None:
    """Return what is to be run over with gradients; None where nothing has an advantage."""
    rows: list[tuple[Group, list[tuple[int, float, int]]]] = []
    first = 0
    for group in groups:
        own = wished[first : first + len(group.texts)]
        first += len(group.texts)
        places: dict[str, list[int]] = {}
        for place in np.flatnonzero(own).tolist():
            places.setdefault(group.texts[place], []).append(place)
        if places:
            rows.append((group, [(same[0], float(own[same].mean()), len(same)) for same in places.values()]))
    return _stacked(rows) if rows else None


def _stacked(rows: Sequence[tuple[Group, list[tuple[int, float, int]]]]) -> Batch:
    width = max(len(kept) for _, kept in rows)
    longest = max(int(group.real.sum(-1).max()) for group, _ in rows)
    tokens = torch.zeros(len(rows), width, longest, dtype=torch.long)
    real, sampled = torch.zeros(len(rows), width, longest), torch.zeros(len(rows), width, longest)
    wished, counts = torch.zeros(len(rows), width), torch.zeros(len(rows), width)
    for row, (group, kept) in enumerate(rows):
        places = torch.tensor([place for place, _, _ in kept])
        count = min(longest, group.tokens.shape[-1])
        tokens[row, : len(kept), :count] = group.tokens[places, :count]
        real[row, : len(kept), :count] = group.real[places, :count].float()
        sampled[row, : len(kept), :count] = group.logprobs[places, :count]
        wished[row, : len(kept)] = torch.tensor([advantage for _, advantage, _ in kept])
        counts[row, : len(kept)] = torch.tensor([float(times) for _, _, times in kept])
    return Batch([group.prompt for group, _ in rows], tokens, real, sampled, wished, counts)
