"""Texts as one tree of tokens: what some of them begin with alike is there once, and so has to be read once.

Nodes stand in the order of a walk down and along the branches, so a node's descendants are the nodes right after it.
They are cut into blocks of `WIDTH`; all that a block's nodes attend to is the way down to its first node and the block
itself. Invariant: a node attends to the nodes of its own text before it, and to itself. Deliberately absent: models.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

WIDTH = 64  # nodes of a block: with fewer, ways down weigh more; with more, what the nodes of a block do not share does
_NEVER = -1e30


@dataclass(frozen=True, slots=True)
class Tree:
    """The nodes' `tokens` and `places` in their texts [N]; N is a multiple of a block's width, W.

    `keys` [N / W, K] are the nodes that a block attends to, `mask` [N / W, 1, W, K] is 0 where a node may, and else as
    good as minus infinity.
    """

    tokens: Tensor
    places: Tensor
    keys: Tensor
    mask: Tensor

    def to(self, device: torch.device) -> "Tree":
        """Return the tree on a device."""
        return Tree(*(each.to(device) for each in (self.tokens, self.places, self.keys, self.mask)))


@dataclass(slots=True)
class _Growing:
    tokens: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # one past a node's last descendant
    down: list[list[int]] = field(default_factory=list)  # of each block: the nodes above its first one
    path: list[int] = field(default_factory=list)  # from a root to the last node

    def cut(self, length: int) -> None:
        """Leave only so many nodes of the path."""
        for node in self.path[length:]:
            self.ends[node] = len(self.tokens)
        del self.path[length:]

    def add(self, token: int) -> None:
        """Add a node below the path."""
        if len(self.tokens) % WIDTH == 0:
            self.down.append(list(self.path))
        self.places.append(len(self.path))
        self.path.append(len(self.tokens))
        self.tokens.append(token)
        self.ends.append(0)


def grown(texts: Sequence[Sequence[int]]) -> tuple[Tree, list[list[int]]]:
    """Return the tree of these texts, and of each text its nodes."""
    growing = _Growing()
    found: list[list[int]] = [[] for _ in texts]
    for row in sorted(range(len(texts)), key=lambda row: list(texts[row])):
        growing.cut(_shared(growing, texts[row]))
        for token in texts[row][len(growing.path) :]:
            growing.add(token)
        found[row] = list(growing.path)
    for _ in range(-len(growing.tokens) % WIDTH if growing.tokens else WIDTH):
        growing.cut(0)
        growing.add(0)
    growing.cut(0)
    return _tree(growing), found


def _shared(growing: _Growing, text: Sequence[int]) -> int:
    """Return how many nodes of the path this text goes through."""
    for place, (node, token) in enumerate(zip(growing.path, text, strict=False)):
        if growing.tokens[node] != token:
            return place
    return min(len(growing.path), len(text))


def _tree(growing: _Growing) -> Tree:
    own = torch.arange(len(growing.tokens)).view(-1, WIDTH)
    longest = max(map(len, growing.down))
    down = torch.tensor([[*path, *[-1] * (longest - len(path))] for path in growing.down], dtype=torch.long)
    keys = torch.cat([down, own], dim=-1)
    ends = torch.tensor(growing.ends)[keys][:, None]
    seen = (keys[:, None] >= 0) & (keys[:, None] <= own[..., None]) & (own[..., None] < ends)
    mask = torch.zeros(seen.shape).masked_fill_(~seen, _NEVER)[:, None]
    return Tree(torch.tensor(growing.tokens), torch.tensor(growing.places), keys.clamp(min=0), mask)
