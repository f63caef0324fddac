"""Qwen2's forward pass over a tree of tokens: what several texts begin with alike is read once, with gradients.

`transformers` reads every text for itself; a group's completions share their prompt, and most of them long beginnings.
Invariant: the numbers are those of `transformers`' own pass, up to rounding, with gradients (tests compare them).
Deliberately absent: other layouts than Qwen2's, dropout, sliding windows; whoever trains those uses TRL.

Texts as one tree of tokens: what some of them begin with alike is there once, and so has to be read once.

Nodes stand in the order of a walk down and along the branches, so a node's descendants are the nodes right after it.
They are cut into blocks of `WIDTH`; all that a block's nodes attend to is the way down to its first node and the block
itself. Invariant: a node attends to the nodes of its own text before it, and to itself. Deliberately absent: models.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor
from torch.nn import Linear, Module

BLOCK_SIZE = (
    64  # nodes of a block: with fewer, ways down weigh more; with more, what the nodes of a block do not share does
)
_MASKED = -1e30


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """The nodes' `tokens` and `places` in their texts [N]; N is a multiple of a block's width, W.

    `keys` [N / W, K] are the nodes that a block attends to, `mask` [N / W, 1, W, K] is 0 where a node may, and else as
    good as minus infinity.
    """

    tokens: Tensor
    positions: Tensor
    keys: Tensor
    mask: Tensor

    def to(self, device: torch.device) -> "PrefixTree":
        """Return the tree on a device."""
        return PrefixTree(*(each.to(device) for each in (self.tokens, self.positions, self.keys, self.mask)))


@dataclass(slots=True)
class _TreeBuilder:
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
        if len(self.tokens) % BLOCK_SIZE == 0:
            self.down.append(list(self.path))
        self.places.append(len(self.path))
        self.path.append(len(self.tokens))
        self.tokens.append(token)
        self.ends.append(0)


def build_prefix_tree(texts: Sequence[Sequence[int]]) -> tuple[PrefixTree, list[list[int]]]:
    """Return the tree of these texts, and of each text its nodes."""
    growing = _TreeBuilder()
    found: list[list[int]] = [[] for _ in texts]
    for row in sorted(range(len(texts)), key=lambda row: list(texts[row])):
        growing.cut(_shared_prefix(growing, texts[row]))
        for token in texts[row][len(growing.path) :]:
            growing.add(token)
        found[row] = list(growing.path)
    for _ in range(-len(growing.tokens) % BLOCK_SIZE if growing.tokens else BLOCK_SIZE):
        growing.cut(0)
        growing.add(0)
    growing.cut(0)
    return _finish_tree(growing), found


def _shared_prefix(growing: _TreeBuilder, text: Sequence[int]) -> int:
    """Return how many nodes of the path this text goes through."""
    for place, (node, token) in enumerate(zip(growing.path, text, strict=False)):
        if growing.tokens[node] != token:
            return place
    return min(len(growing.path), len(text))


def _finish_tree(growing: _TreeBuilder) -> PrefixTree:
    own = torch.arange(len(growing.tokens)).view(-1, BLOCK_SIZE)
    longest = max(map(len, growing.down))
    down = torch.tensor([[*path, *[-1] * (longest - len(path))] for path in growing.down], dtype=torch.long)
    keys = torch.cat([down, own], dim=-1)
    ends = torch.tensor(growing.ends)[keys][:, None]
    seen = (keys[:, None] >= 0) & (keys[:, None] <= own[..., None]) & (own[..., None] < ends)
    mask = torch.zeros(seen.shape).masked_fill_(~seen, _MASKED)[:, None]
    return PrefixTree(torch.tensor(growing.tokens), torch.tensor(growing.places), keys.clamp(min=0), mask)


if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM
    from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RMSNorm

TensorMap = Callable[[Tensor], Tensor]
Rotary = tuple[Tensor, Tensor]
"""Cosine and sine [N, 1, D] of the rotation at each token's place."""


@dataclass(frozen=True, slots=True)
class AttentionHeads:
    """How many heads ask, how many are asked (each by as many of the others), and their width D."""

    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def num_key_value_groups(self) -> int:
        """How many heads ask the same one."""
        return self.num_heads // self.num_kv_heads


@dataclass(frozen=True, slots=True)
class Qwen2Layer:
    """A layer in as few products as there are inputs: `project` to queries, keys and values, `widen` to gate and up."""

    heads: AttentionHeads
    input_norm: TensorMap
    qkv_proj: TensorMap
    o_proj: TensorMap
    post_attn_norm: TensorMap
    gate_up_proj: TensorMap
    act: TensorMap
    down_proj: TensorMap

    def qkv(self, state: Tensor, turn: Rotary) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries [N, H, D] of states [N, W], and keys and values [N, A, D] of the heads that are asked."""
        heads = self.heads
        found = self.qkv_proj(self.input_norm(state)).view(len(state), -1, heads.head_dim)
        turned = _apply_rotary(found[:, : heads.num_heads + heads.num_kv_heads], turn)
        return (
            turned[:, : heads.num_heads],
            turned[:, heads.num_heads :],
            found[:, heads.num_heads + heads.num_kv_heads :],
        )

    def attn_out_and_mlp(self, state: Tensor, seen: Tensor) -> Tensor:
        """Return the states [N, W] after the layer, given what its heads saw [N, H * D]."""
        state = state + self.o_proj(seen)
        gate, up = self.gate_up_proj(self.post_attn_norm(state)).chunk(2, dim=-1)
        return state + self.down_proj(self.act(gate) * up)


@dataclass(frozen=True, slots=True)
class Qwen2Forward:
    """A model made ready to read: use it for one pass with gradients, or as long as its weights stay as they are."""

    model: "Qwen2ForCausalLM"
    heads: AttentionHeads
    layers: tuple[Qwen2Layer, ...]

    @classmethod
    def of(cls, model: "Qwen2ForCausalLM") -> "Qwen2Forward":
        """Return a model's reader."""
        config = model.config
        heads = AttentionHeads(
            config.num_attention_heads,
            config.num_key_value_heads or config.num_attention_heads,
            model.model.layers[0].self_attn.head_dim,
        )
        return cls(model, heads, tuple(_make_layer(layer, heads) for layer in model.model.layers))

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        found: torch.device = self.model.lm_head.weight.device
        return found

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the states [N, W] of tokens [N] before the first layer."""
        found: Tensor = self.model.model.embed_tokens(tokens)
        return found

    def rotary(self, count: int) -> Rotary:
        """Return the rotations at the first so many places."""
        cosine, sine = self.model.model.rotary_emb(
            self.model.lm_head.weight, torch.arange(count, device=self.device)[None]
        )
        sine[..., : self.heads.head_dim // 2].neg_()
        return cosine[0][:, None], sine[0][:, None]

    def logits(self, state: Tensor) -> Tensor:
        """Return the logits [N, V] after states [N, W]."""
        found: Tensor = self.model.lm_head(_rms_norm(self.model.model.norm)(state))
        return found.float()


@dataclass(frozen=True, slots=True)
class TreeOutput:
    """What was read of a tree: states [N, W] after the last layer, keys and values [N, A, D] of each layer."""

    states: Tensor
    keys: list[Tensor]
    values: list[Tensor]


def forward_tree(reader: Qwen2Forward, tree: PrefixTree) -> TreeOutput:
    """Read every node of a tree, which is where the model is, once."""
    state = reader.embed(tree.tokens)
    turn = _rotary_at(reader.rotary(int(tree.positions.max()) + 1), tree.positions)
    mask, blocks = tree.mask.to(state.dtype), tree.keys.shape
    found = TreeOutput(state, [], [])
    for layer in reader.layers:
        query, key, value = layer.qkv(state, turn)
        found.keys.append(key)
        found.values.append(value)
        own = query.reshape(blocks[0], -1, *query.shape[1:]).transpose(1, 2)
        keys, values = (_repeat_kv(_gather_kv(each, tree.keys).transpose(1, 2), layer.heads) for each in (key, value))
        seen = F.scaled_dot_product_attention(own, keys, values, attn_mask=mask)
        state = layer.attn_out_and_mlp(state, seen.transpose(1, 2).reshape(len(state), -1))
    return TreeOutput(state, found.keys, found.values)


def _repeat_kv(each: Tensor, heads: AttentionHeads) -> Tensor:
    """Return keys or values [B, H, K, D], as often as they are asked, of [B, A, K, D]."""
    return each if heads.num_key_value_groups == 1 else each.repeat_interleave(heads.num_key_value_groups, dim=1)


def _gather_kv(each: Tensor, nodes: Tensor) -> Tensor:
    """Return keys or values [..., A, D] of these nodes [...]."""
    return each.reshape(len(each), -1).index_select(0, nodes.flatten()).view(*nodes.shape, *each.shape[1:])


def _rotary_at(turns: Rotary, places: Tensor) -> Rotary:
    return turns[0].index_select(0, places), turns[1].index_select(0, places)


def _make_layer(layer: "Qwen2DecoderLayer", heads: AttentionHeads) -> Qwen2Layer:
    attention, forward = layer.self_attn, layer.mlp
    return Qwen2Layer(
        heads,
        _rms_norm(layer.input_layernorm),
        _fuse_linear(attention.q_proj, attention.k_proj, attention.v_proj),
        _fuse_linear(attention.o_proj),
        _rms_norm(layer.post_attention_layernorm),
        _fuse_linear(forward.gate_proj, forward.up_proj),
        forward.act_fn,
        _fuse_linear(forward.down_proj),
    )


def _fuse_linear(*maps: Module) -> TensorMap:
    """Return maps of one input as one; what is no plain product (an adapter may sit on it) is asked by itself."""
    plain = [each for each in maps if type(each) is Linear]
    if len(plain) < len(maps):
        return lambda state: torch.cat([each(state) for each in maps], dim=-1)
    biases: list[Tensor] = [each.bias for each in plain if each.bias is not None]
    weights: list[Tensor] = [each.weight for each in plain]
    return partial(F.linear, weight=torch.cat(weights), bias=torch.cat(biases) if biases else None)


def _rms_norm(norm: "Qwen2RMSNorm") -> TensorMap:
    weight = norm.weight
    return partial(F.rms_norm, normalized_shape=tuple(weight.shape), weight=weight, eps=norm.variance_epsilon)


def _apply_rotary(state: Tensor, turn: Rotary) -> Tensor:
    return torch.addcmul(state * turn[0], state.roll(state.shape[-1] // 2, dims=-1), turn[1])
