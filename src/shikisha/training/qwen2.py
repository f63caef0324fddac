"""Qwen2's forward pass over a prefix tree: what several texts begin with alike is read once, with gradients.

`transformers` reads every text for itself; the completions of a group share their prompt, and most of them a long
beginning. Nodes stand in depth-first order, so a node's descendants follow it. They are cut into blocks, whose nodes
attend to the path down to its first node and to the block itself.

Invariants: a node attends to itself and to the nodes before it in its text; the numbers are those of `transformers`,
up to rounding, gradients included (tests compare them). Deliberately absent: other layouts than Qwen2's, dropout,
sliding windows; TRL trains models that have those.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - the name that torch's documentation uses
from torch import Tensor
from torch.nn import Linear, Module

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM
    from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RMSNorm

TensorMap = Callable[[Tensor], Tensor]
Rotary = tuple[Tensor, Tensor]
"""Cosine and sine [N, 1, D] of the rotary embedding at each token's position."""

# Nodes; smaller blocks repeat more of their paths, larger ones attend to more that they mask.
BLOCK_SIZE = 64
_MASKED = -1e30


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """The nodes' `tokens` and `positions` in their texts [N]; N is a multiple of a block's size, W.

    `keys` [N / W, K] are the nodes that a block attends to; `mask` [N / W, 1, W, K] is 0 where a node may, else as good
    as minus infinity.
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
    positions: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # one past a node's last descendant
    block_paths: list[list[int]] = field(default_factory=list)  # of each block: the nodes above its first one
    path: list[int] = field(default_factory=list)  # from a root to the last node

    def truncate(self, length: int) -> None:
        """Leave only so many nodes of the path."""
        for node in self.path[length:]:
            self.ends[node] = len(self.tokens)
        del self.path[length:]

    def add(self, token: int) -> None:
        """Add a node below the path."""
        if len(self.tokens) % BLOCK_SIZE == 0:
            self.block_paths.append(list(self.path))
        self.positions.append(len(self.path))
        self.path.append(len(self.tokens))
        self.tokens.append(token)
        self.ends.append(0)

    def shared_prefix(self, text: Sequence[int]) -> int:
        """Return how many nodes of the path this text goes through."""
        for place, (node, token) in enumerate(zip(self.path, text, strict=False)):
            if self.tokens[node] != token:
                return place
        return min(len(self.path), len(text))

    def finish(self) -> PrefixTree:
        """Return the tree of what was added."""
        own = torch.arange(len(self.tokens)).view(-1, BLOCK_SIZE)
        longest = max(map(len, self.block_paths))
        paths = [[*path, *[-1] * (longest - len(path))] for path in self.block_paths]
        keys = torch.cat([torch.tensor(paths, dtype=torch.long), own], dim=-1)
        ends = torch.tensor(self.ends)[keys][:, None]
        visible = (keys[:, None] >= 0) & (keys[:, None] <= own[..., None]) & (own[..., None] < ends)
        mask = torch.zeros(visible.shape).masked_fill_(~visible, _MASKED)[:, None]
        return PrefixTree(torch.tensor(self.tokens), torch.tensor(self.positions), keys.clamp(min=0), mask)


def build_prefix_tree(texts: Sequence[Sequence[int]]) -> tuple[PrefixTree, list[list[int]]]:
    """Return the tree of these texts, and each text's nodes."""
    builder = _TreeBuilder()
    nodes: list[list[int]] = [[] for _ in texts]
    for row in sorted(range(len(texts)), key=lambda row: list(texts[row])):
        builder.truncate(builder.shared_prefix(texts[row]))
        for token in texts[row][len(builder.path) :]:
            builder.add(token)
        nodes[row] = list(builder.path)
    for _ in range(-len(builder.tokens) % BLOCK_SIZE if builder.tokens else BLOCK_SIZE):
        builder.truncate(0)
        builder.add(0)
    builder.truncate(0)
    return builder.finish(), nodes


@dataclass(frozen=True, slots=True)
class AttentionHeads:
    """How many heads have queries, how many have keys and values, and their width D."""

    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def num_key_value_groups(self) -> int:
        """How many query heads share a key and value head."""
        return self.num_heads // self.num_kv_heads


@dataclass(frozen=True, slots=True)
class Qwen2Layer:
    """A decoder layer in as few matrix products as it has inputs: q, k, v are one, and so are gate and up."""

    heads: AttentionHeads
    input_norm: TensorMap
    qkv_proj: TensorMap
    o_proj: TensorMap
    post_attn_norm: TensorMap
    gate_up_proj: TensorMap
    act: TensorMap
    down_proj: TensorMap

    def qkv(self, hidden: Tensor, rotary: Rotary) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries [N, H, D] of hidden states [N, W], and keys and values [N, A, D] of the A key-value heads."""
        heads = self.heads
        qkv = self.qkv_proj(self.input_norm(hidden)).view(len(hidden), -1, heads.head_dim)
        rotated = _apply_rotary(qkv[:, : heads.num_heads + heads.num_kv_heads], rotary)
        return (
            rotated[:, : heads.num_heads],
            rotated[:, heads.num_heads :],
            qkv[:, heads.num_heads + heads.num_kv_heads :],
        )

    def attn_out_and_mlp(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """Return the hidden states [N, W] after the layer, given what its heads attended to [N, H * D]."""
        hidden = hidden + self.o_proj(attended)
        gate, up = self.gate_up_proj(self.post_attn_norm(hidden)).chunk(2, dim=-1)
        return hidden + self.down_proj(self.act(gate) * up)


@dataclass(frozen=True, slots=True)
class Qwen2Forward:
    """A model ready to read: for one pass with gradients, or as long as its weights stay as they are."""

    model: "Qwen2ForCausalLM"
    heads: AttentionHeads
    layers: tuple[Qwen2Layer, ...]

    @classmethod
    def of(cls, model: "Qwen2ForCausalLM") -> "Qwen2Forward":
        """Return a model's forward pass."""
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
        device: torch.device = self.model.lm_head.weight.device
        return device

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the hidden states [N, W] of tokens [N] before the first layer."""
        hidden: Tensor = self.model.model.embed_tokens(tokens)
        return hidden

    def rotary(self, count: int) -> Rotary:
        """Return the rotary embedding at the first so many positions."""
        positions = torch.arange(count, device=self.device)[None]
        cosine, sine = self.model.model.rotary_emb(self.model.lm_head.weight, positions)
        # So that `_apply_rotary` needs no negation.
        sine[..., : self.heads.head_dim // 2].neg_()
        return cosine[0][:, None], sine[0][:, None]

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits [N, V] after hidden states [N, W]."""
        logits: Tensor = self.model.lm_head(_rms_norm(self.model.model.norm)(hidden))
        return logits.float()


@dataclass(frozen=True, slots=True)
class TreeOutput:
    """A tree's hidden states [N, W] after the last layer, and the keys and values [N, A, D] of each layer."""

    states: Tensor
    keys: list[Tensor]
    values: list[Tensor]


def forward_tree(forward: Qwen2Forward, tree: PrefixTree) -> TreeOutput:
    """Read every node of a tree once; the tree is on the model's device."""
    hidden = forward.embed(tree.tokens)
    cosine, sine = forward.rotary(int(tree.positions.max()) + 1)
    rotary = cosine.index_select(0, tree.positions), sine.index_select(0, tree.positions)
    mask, blocks = tree.mask.to(hidden.dtype), tree.keys.shape
    all_keys, all_values = list[Tensor](), list[Tensor]()
    for layer in forward.layers:
        query, key, value = layer.qkv(hidden, rotary)
        all_keys.append(key)
        all_values.append(value)
        queries = query.reshape(blocks[0], -1, *query.shape[1:]).transpose(1, 2)
        keys, values = (_repeat_kv(_gather_kv(each, tree.keys).transpose(1, 2), layer.heads) for each in (key, value))
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        hidden = layer.attn_out_and_mlp(hidden, attended.transpose(1, 2).reshape(len(hidden), -1))
    return TreeOutput(hidden, all_keys, all_values)


def _repeat_kv(each: Tensor, heads: AttentionHeads) -> Tensor:
    """Return keys or values [B, H, K, D], repeated for the query heads that share them, of [B, A, K, D]."""
    groups = heads.num_key_value_groups
    return each if groups == 1 else each.repeat_interleave(groups, dim=1)


def _gather_kv(each: Tensor, nodes: Tensor) -> Tensor:
    """Return the keys or values [..., A, D] of these nodes [...]."""
    return each.reshape(len(each), -1).index_select(0, nodes.flatten()).view(*nodes.shape, *each.shape[1:])


def _make_layer(layer: "Qwen2DecoderLayer", heads: AttentionHeads) -> Qwen2Layer:
    attention, mlp = layer.self_attn, layer.mlp
    return Qwen2Layer(
        heads,
        input_norm=_rms_norm(layer.input_layernorm),
        qkv_proj=_fuse_linear(attention.q_proj, attention.k_proj, attention.v_proj),
        o_proj=_fuse_linear(attention.o_proj),
        post_attn_norm=_rms_norm(layer.post_attention_layernorm),
        gate_up_proj=_fuse_linear(mlp.gate_proj, mlp.up_proj),
        act=mlp.act_fn,
        down_proj=_fuse_linear(mlp.down_proj),
    )


def _fuse_linear(*modules: Module) -> TensorMap:
    """Return modules of one input as one; those that are not plain linear layers (adapters) are called one by one."""
    plain = [each for each in modules if type(each) is Linear]
    if len(plain) < len(modules):
        return lambda hidden: torch.cat([each(hidden) for each in modules], dim=-1)
    biases: list[Tensor] = [each.bias for each in plain if each.bias is not None]
    weights: list[Tensor] = [each.weight for each in plain]
    return partial(F.linear, weight=torch.cat(weights), bias=torch.cat(biases) if biases else None)


def _rms_norm(norm: "Qwen2RMSNorm") -> TensorMap:
    weight = norm.weight
    return partial(F.rms_norm, normalized_shape=tuple(weight.shape), weight=weight, eps=norm.variance_epsilon)


def _apply_rotary(heads: Tensor, rotary: Rotary) -> Tensor:
    return torch.addcmul(heads * rotary[0], heads.roll(heads.shape[-1] // 2, dims=-1), rotary[1])
