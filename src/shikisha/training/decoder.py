"""A batch decoder with a KV cache in which completions that are equal so far are one branch.

A branch is what some completions hold so far. Its newest token is read once, for all of them; where they continue
differently it divides. Keys and values of prompts are shared by their branches. Those of later tokens lie in a slot for
each branch; slots that are free are taken by others, so branches are always the first slots.

Invariant: logits are those of reading each text for itself, up to rounding. Deliberately absent: drawing tokens, and
the end of a text (`rollout`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name that torch's documentation uses
from torch import Tensor

from shikisha.training.qwen2 import Qwen2Forward, build_prefix_tree, forward_tree

_MASKED = -1e30
# Are read together: products of fewer rows differ between one thread and several.
_MIN_BRANCHES = 16


@dataclass(frozen=True, slots=True)
class PromptCache:
    """The KV cache of prompts: keys [B * A, D, P] and values [B * A, P, D] of each layer; `lengths` [B].

    `mask` [B * A, 1, P] is as good as minus infinity where a prompt is over.
    """

    keys: list[Tensor]
    values: list[Tensor]
    mask: Tensor
    lengths: Tensor


@dataclass(slots=True)
class BranchLayout:
    """Where branches [R] are when those of a prompt stand together: [B, A, U], U of the prompt that has most.

    `grid` [B * A * U] says which branch's head is there (any, where there is none), `back` [R * A] where each one is.
    A are the key-value heads, each with T query heads.
    """

    most: int
    grid: Tensor
    back: Tensor


class BatchDecoder:
    """Completions of prompts, at most `count` for each, of `longest` tokens at most."""

    def __init__(self, forward: Qwen2Forward, prompts: Sequence[Sequence[int]], count: int, longest: int) -> None:
        self._forward, self._prompts = forward, _prefill(forward, [prompt[:-1] for prompt in prompts])
        self._rotary = forward.rotary(int(self._prompts.lengths.max()) + longest)
        self._prompt_of = torch.arange(len(prompts), device=forward.device)
        self._last = torch.tensor([prompt[-1] for prompt in prompts], device=forward.device)
        self._used = 0
        heads, dtype = forward.heads, self._rotary[0].dtype
        shape = (max(_MIN_BRANCHES, len(prompts) * count), heads.num_kv_heads, longest, heads.head_dim)
        self._keys = [torch.empty(shape, dtype=dtype, device=forward.device) for _ in forward.layers]
        self._values = [torch.empty(shape, dtype=dtype, device=forward.device) for _ in forward.layers]

    @property
    def count(self) -> int:
        """How many branches there are, R."""
        return len(self._last)

    def read(self) -> Tensor:
        """Read the newest token of every branch; return the logits [R, V] of the next."""
        more = (0, max(0, _MIN_BRANCHES - self.count))
        last, prompt_of = F.pad(self._last, more), F.pad(self._prompt_of, more)
        hidden = self._forward.embed(last)
        positions = self._prompts.lengths[prompt_of] + self._used
        rotary = self._rotary[0].index_select(0, positions), self._rotary[1].index_select(0, positions)
        layout = self._layout(prompt_of)
        for number, layer in enumerate(self._forward.layers):
            query, key, value = layer.qkv(hidden, rotary)
            self._keys[number][: len(hidden), :, self._used] = key
            self._values[number][: len(hidden), :, self._used] = value
            hidden = layer.attn_out_and_mlp(hidden, self._attend(query, number, layout).view(len(hidden), -1))
        self._used += 1
        return self._forward.logits(hidden)[: self.count]

    def grow(self, branch: Tensor, tokens: Tensor, vocabulary: int) -> Tensor:
        """Let completions [M], which are at these branches, continue with these tokens; return each one's branch now.

        Branches that no completion is at any more are gone.
        """
        found, which = torch.unique(branch * vocabulary + tokens, return_inverse=True)
        parent, token = found // vocabulary, found % vocabulary
        # The first child of a parent stays in its slot; the others are copied to slots that are free.
        stays = (parent < len(found)) & (parent != torch.cat([parent.new_full((1,), -1), parent[:-1]]))
        free = torch.ones(len(found), dtype=torch.bool, device=found.device)
        free[parent[stays]] = False
        moved, to = (~stays).nonzero()[:, 0], free.nonzero()[:, 0]
        slots, source = parent.index_copy(0, moved, to), parent[moved]
        for cache in (*self._keys, *self._values) if len(to) else ():
            written = cache[:, :, : self._used]
            written.index_copy_(0, to, written.index_select(0, source))
        prompt_of = self._prompt_of[parent]
        self._prompt_of, self._last = torch.empty_like(prompt_of), torch.empty_like(token)
        self._prompt_of[slots], self._last[slots] = prompt_of, token
        now: Tensor = slots[which]
        return now

    def _attend(self, query: Tensor, layer: int, layout: BranchLayout) -> Tensor:
        """Return what each head attends to [R * A, T, D] in its prompt and in what was written."""
        prompts, used, head_dim = self._prompts, self._used + 1, query.shape[-1]
        groups = self._forward.heads.num_key_value_groups
        together = (len(prompts.mask), layout.most * groups, -1)
        alone = (len(prompts.mask) * layout.most, groups, -1)
        queries = query.reshape(-1, groups, head_dim) * head_dim**-0.5
        keys, values = (each[layer].flatten(0, 1)[: len(queries), :used] for each in (self._keys, self._values))
        grid = queries.index_select(0, layout.grid).view(together)
        to_prompt = torch.baddbmm(prompts.mask, grid, prompts.keys[layer]).view(alone).index_select(0, layout.back)
        to_written = torch.bmm(queries, keys.transpose(1, 2))
        weights = torch.cat([to_prompt, to_written], dim=-1).softmax(dim=-1)
        length = to_prompt.shape[-1]
        grid = weights[..., :length].index_select(0, layout.grid).view(together)
        from_prompt = torch.bmm(grid, prompts.values[layer]).view(alone).index_select(0, layout.back)
        return from_prompt + torch.bmm(weights[..., length:], values)

    def _layout(self, prompt_of: Tensor) -> BranchLayout:
        heads = torch.arange(self._forward.heads.num_kv_heads, device=prompt_of.device)
        order = prompt_of.argsort(stable=True)
        counts = prompt_of.bincount(minlength=len(self._prompts.lengths))
        first = counts.cumsum(0) - counts
        most = int(counts.max())
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order), device=prompt_of.device) - first[prompt_of[order]]
        back = ((prompt_of[:, None] * len(heads) + heads) * most + rank[:, None]).flatten()
        grid = torch.zeros(len(counts) * len(heads) * most, dtype=torch.long, device=prompt_of.device)
        grid[back] = torch.arange(len(back), device=prompt_of.device)
        return BranchLayout(most, grid, back)


def _prefill(forward: Qwen2Forward, prompts: Sequence[Sequence[int]]) -> PromptCache:
    tree, nodes = build_prefix_tree(prompts)
    output, device = forward_tree(forward, tree.to(forward.device)), forward.device
    longest = max(map(len, nodes))
    lengths = torch.tensor([len(each) for each in nodes], device=device)
    which = torch.tensor([[*each, *[0] * (longest - len(each))] for each in nodes], dtype=torch.long, device=device)
    keys, values = (
        [each.index_select(0, which.flatten()).view(*which.shape, *each.shape[1:]) for each in layers]
        for layers in (output.keys, output.values)
    )
    over = torch.arange(longest, device=device) >= lengths[:, None]
    over = over.repeat_interleave(forward.heads.num_kv_heads, dim=0)
    mask = torch.zeros(over.shape, dtype=output.states.dtype, device=device).masked_fill_(over, _MASKED)[:, None]
    return PromptCache(
        [each.permute(0, 2, 3, 1).flatten(0, 1).contiguous() for each in keys],
        [each.transpose(1, 2).flatten(0, 1).contiguous() for each in values],
        mask,
        lengths,
    )
