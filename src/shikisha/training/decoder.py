"""Texts that are being written, many after each of some prompts, token by token; those that are equal so far are one.

A branch is what some texts hold so far. Its newest token is read once, for all of them; when they go on differently it
divides. Keys and values of prompts are shared by their branches, those of what was written after them lie in a slot
for each branch, and slots that nobody is in any more are taken by others: branches are always the first slots.
Invariant: logits are those of reading each text for itself, up to rounding. Deliberately absent: chance, and ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor

from shikisha.training.qwen2 import Qwen2Forward, build_prefix_tree, forward_tree

_MASKED = -1e30
_MIN_BRANCHES = (
    16  # branches that are read together: of fewer, products come out otherwise in several threads than in one
)


@dataclass(frozen=True, slots=True)
class PromptCache:
    """What was read of prompts: keys [B * A, D, P] and values [B * A, P, D] of each layer; `lengths` [B].

    `mask` [B * A, 1, P] is as good as minus infinity where a prompt is over.
    """

    keys: list[Tensor]
    values: list[Tensor]
    mask: Tensor
    lengths: Tensor


@dataclass(slots=True)
class BranchLayout:
    """Where branches [R] are when those of a prompt stand together: [B, A, U], U of the prompt that has most.

    `grid` [B * A * U] says which branch's head is there (any, where there is none), `back` [R * A] where each one is;
    A are the heads that are asked, each by T others.
    """

    most: int
    grid: Tensor
    back: Tensor


class BatchDecoder:
    """What is being written after prompts, at most `count` texts after each, of `longest` tokens at most."""

    def __init__(self, reader: Qwen2Forward, prompts: Sequence[Sequence[int]], count: int, longest: int) -> None:
        self._reader, self._prompts = reader, _prefill(reader, [prompt[:-1] for prompt in prompts])
        self._turns = reader.rotary(int(self._prompts.lengths.max()) + longest)
        self._owner = torch.arange(len(prompts), device=reader.device)
        self._last = torch.tensor([prompt[-1] for prompt in prompts], device=reader.device)
        self._used = 0
        heads, kind = reader.heads, self._turns[0].dtype
        room = (max(_MIN_BRANCHES, len(prompts) * count), heads.num_kv_heads, longest, heads.head_dim)
        self._keys = [torch.empty(room, dtype=kind, device=reader.device) for _ in reader.layers]
        self._values = [torch.empty(room, dtype=kind, device=reader.device) for _ in reader.layers]

    @property
    def count(self) -> int:
        """How many branches there are, R."""
        return len(self._last)

    def read(self) -> Tensor:
        """Read the newest token of every branch; return the logits [R, V] of the next."""
        more = (0, max(0, _MIN_BRANCHES - self.count))
        last, owner = F.pad(self._last, more), F.pad(self._owner, more)
        state = self._reader.embed(last)
        places = self._prompts.lengths[owner] + self._used
        turn = self._turns[0].index_select(0, places), self._turns[1].index_select(0, places)
        layout = self._layout(owner)
        for place, layer in enumerate(self._reader.layers):
            query, key, value = layer.qkv(state, turn)
            self._keys[place][: len(state), :, self._used] = key
            self._values[place][: len(state), :, self._used] = value
            state = layer.attn_out_and_mlp(state, self._seen(query, place, layout).view(len(state), -1))
        self._used += 1
        return self._reader.logits(state)[: self.count]

    def grow(self, whose: Tensor, tokens: Tensor, vocabulary: int) -> Tensor:
        """Let texts [M], which are at branches `whose`, go on with these tokens; return which branch each is now.

        Branches that no text is at any more are gone.
        """
        found, which = torch.unique(whose * vocabulary + tokens, return_inverse=True)
        above, token = found // vocabulary, found % vocabulary
        stays = (above < len(found)) & (above != torch.cat([above.new_full((1,), -1), above[:-1]]))
        free = torch.ones(len(found), dtype=torch.bool, device=found.device)
        free[above[stays]] = False
        moved, to = (~stays).nonzero()[:, 0], free.nonzero()[:, 0]
        slots, source = above.index_copy(0, moved, to), above[moved]
        for kept in (*self._keys, *self._values) if len(to) else ():
            written = kept[:, :, : self._used]
            written.index_copy_(0, to, written.index_select(0, source))
        owner = self._owner[above]
        self._owner, self._last = torch.empty_like(owner), torch.empty_like(token)
        self._owner[slots], self._last[slots] = owner, token
        now: Tensor = slots[which]
        return now

    def _seen(self, query: Tensor, place: int, layout: BranchLayout) -> Tensor:
        """Return what each head sees [R * A, T, D] of its prompt and of what was written."""
        prompts, used, width = self._prompts, self._used + 1, query.shape[-1]
        together = (len(prompts.mask), layout.most * self._reader.heads.num_key_value_groups, -1)
        alone = (len(prompts.mask) * layout.most, self._reader.heads.num_key_value_groups, -1)
        asking = query.reshape(-1, self._reader.heads.num_key_value_groups, width) * width**-0.5
        keys, values = (each[place].flatten(0, 1)[: len(asking), :used] for each in (self._keys, self._values))
        grid = asking.index_select(0, layout.grid).view(together)
        before = torch.baddbmm(prompts.mask, grid, prompts.keys[place]).view(alone).index_select(0, layout.back)
        own = torch.bmm(asking, keys.transpose(1, 2))
        weights = torch.cat([before, own], dim=-1).softmax(dim=-1)
        length = before.shape[-1]
        grid = weights[..., :length].index_select(0, layout.grid).view(together)
        first = torch.bmm(grid, prompts.values[place]).view(alone).index_select(0, layout.back)
        return first + torch.bmm(weights[..., length:], values)

    def _layout(self, owner: Tensor) -> BranchLayout:
        heads = torch.arange(self._reader.heads.num_kv_heads, device=owner.device)
        order = owner.argsort(stable=True)
        counts = owner.bincount(minlength=len(self._prompts.lengths))
        first = counts.cumsum(0) - counts
        most = int(counts.max())
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order), device=owner.device) - first[owner[order]]
        back = ((owner[:, None] * len(heads) + heads) * most + rank[:, None]).flatten()
        grid = torch.zeros(len(counts) * len(heads) * most, dtype=torch.long, device=owner.device)
        grid[back] = torch.arange(len(back), device=owner.device)
        return BranchLayout(most, grid, back)


def _prefill(reader: Qwen2Forward, prompts: Sequence[Sequence[int]]) -> PromptCache:
    tree, nodes = build_prefix_tree(prompts)
    found, device = forward_tree(reader, tree.to(reader.device)), reader.device
    longest = max(map(len, nodes))
    lengths = torch.tensor([len(each) for each in nodes], device=device)
    which = torch.tensor([[*each, *[0] * (longest - len(each))] for each in nodes], dtype=torch.long, device=device)
    keys, values = (
        [each.index_select(0, which.flatten()).view(*which.shape, *each.shape[1:]) for each in layers]
        for layers in (found.keys, found.values)
    )
    hidden = (torch.arange(longest, device=device) >= lengths[:, None]).repeat_interleave(
        reader.heads.num_kv_heads, dim=0
    )
    mask = torch.zeros(hidden.shape, dtype=found.states.dtype, device=device).masked_fill_(hidden, _MASKED)[:, None]
    return PromptCache(
        [each.permute(0, 2, 3, 1).flatten(0, 1).contiguous() for each in keys],
        [each.transpose(1, 2).flatten(0, 1).contiguous() for each in values],
        mask,
        lengths,
    )
