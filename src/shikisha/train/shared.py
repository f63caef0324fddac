"""Qwen2's forward pass over a tree of tokens: what several texts begin with alike is read once, with gradients.

`transformers` reads every text for itself; a group's completions share their prompt, and most of them long beginnings.
Invariant: the numbers are those of `transformers`' own pass, up to rounding, with gradients (tests compare them).
Deliberately absent: other layouts than Qwen2's, dropout, sliding windows; whoever trains those uses TRL.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor
from torch.nn import Linear, Module

from shikisha.train.tree import Tree

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM
    from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RMSNorm

Map = Callable[[Tensor], Tensor]
Turn = tuple[Tensor, Tensor]
"""Cosine and sine [N, 1, D] of the rotation at each token's place."""


@dataclass(frozen=True, slots=True)
class Heads:
    """How many heads ask, how many are asked (each by as many of the others), and their width D."""

    count: int
    asked: int
    width: int

    @property
    def times(self) -> int:
        """How many heads ask the same one."""
        return self.count // self.asked


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer in as few products as there are inputs: `project` to queries, keys and values, `widen` to gate and up."""

    heads: Heads
    enter: Map
    project: Map
    leave: Map
    pause: Map
    widen: Map
    bend: Map
    narrow: Map

    def asked(self, state: Tensor, turn: Turn) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries [N, H, D] of states [N, W], and keys and values [N, A, D] of the heads that are asked."""
        heads = self.heads
        found = self.project(self.enter(state)).view(len(state), -1, heads.width)
        turned = _rotated(found[:, : heads.count + heads.asked], turn)
        return turned[:, : heads.count], turned[:, heads.count :], found[:, heads.count + heads.asked :]

    def after(self, state: Tensor, seen: Tensor) -> Tensor:
        """Return the states [N, W] after the layer, given what its heads saw [N, H * D]."""
        state = state + self.leave(seen)
        gate, up = self.widen(self.pause(state)).chunk(2, dim=-1)
        return state + self.narrow(self.bend(gate) * up)


@dataclass(frozen=True, slots=True)
class Reader:
    """A model made ready to read: use it for one pass with gradients, or as long as its weights stay as they are."""

    model: "Qwen2ForCausalLM"
    heads: Heads
    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, model: "Qwen2ForCausalLM") -> "Reader":
        """Return a model's reader."""
        config = model.config
        heads = Heads(
            config.num_attention_heads,
            config.num_key_value_heads or config.num_attention_heads,
            model.model.layers[0].self_attn.head_dim,
        )
        return cls(model, heads, tuple(_layer(layer, heads) for layer in model.model.layers))

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        found: torch.device = self.model.lm_head.weight.device
        return found

    def begun(self, tokens: Tensor) -> Tensor:
        """Return the states [N, W] of tokens [N] before the first layer."""
        found: Tensor = self.model.model.embed_tokens(tokens)
        return found

    def turns(self, count: int) -> Turn:
        """Return the rotations at the first so many places."""
        cosine, sine = self.model.model.rotary_emb(
            self.model.lm_head.weight, torch.arange(count, device=self.device)[None]
        )
        sine[..., : self.heads.width // 2].neg_()
        return cosine[0][:, None], sine[0][:, None]

    def logits(self, state: Tensor) -> Tensor:
        """Return the logits [N, V] after states [N, W]."""
        found: Tensor = self.model.lm_head(_normed(self.model.model.norm)(state))
        return found.float()


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of a tree: states [N, W] after the last layer, keys and values [N, A, D] of each layer."""

    states: Tensor
    keys: list[Tensor]
    values: list[Tensor]


def read(reader: Reader, tree: Tree) -> Read:
    """Read every node of a tree, which is where the model is, once."""
    state = reader.begun(tree.tokens)
    turn = _at(reader.turns(int(tree.places.max()) + 1), tree.places)
    mask, blocks = tree.mask.to(state.dtype), tree.keys.shape
    found = Read(state, [], [])
    for layer in reader.layers:
        query, key, value = layer.asked(state, turn)
        found.keys.append(key)
        found.values.append(value)
        own = query.reshape(blocks[0], -1, *query.shape[1:]).transpose(1, 2)
        keys, values = (_repeated(_gathered(each, tree.keys).transpose(1, 2), layer.heads) for each in (key, value))
        seen = F.scaled_dot_product_attention(own, keys, values, attn_mask=mask)
        state = layer.after(state, seen.transpose(1, 2).reshape(len(state), -1))
    return Read(state, found.keys, found.values)


def _repeated(each: Tensor, heads: Heads) -> Tensor:
    """Return keys or values [B, H, K, D], as often as they are asked, of [B, A, K, D]."""
    return each if heads.times == 1 else each.repeat_interleave(heads.times, dim=1)


def _gathered(each: Tensor, nodes: Tensor) -> Tensor:
    """Return keys or values [..., A, D] of these nodes [...]."""
    return each.reshape(len(each), -1).index_select(0, nodes.flatten()).view(*nodes.shape, *each.shape[1:])


def _at(turns: Turn, places: Tensor) -> Turn:
    return turns[0].index_select(0, places), turns[1].index_select(0, places)


def _layer(layer: "Qwen2DecoderLayer", heads: Heads) -> Layer:
    attention, forward = layer.self_attn, layer.mlp
    return Layer(
        heads,
        _normed(layer.input_layernorm),
        _together(attention.q_proj, attention.k_proj, attention.v_proj),
        _together(attention.o_proj),
        _normed(layer.post_attention_layernorm),
        _together(forward.gate_proj, forward.up_proj),
        forward.act_fn,
        _together(forward.down_proj),
    )


def _together(*maps: Module) -> Map:
    """Return maps of one input as one; what is no plain product (an adapter may sit on it) is asked by itself."""
    plain = [each for each in maps if type(each) is Linear]
    if len(plain) < len(maps):
        return lambda state: torch.cat([each(state) for each in maps], dim=-1)
    biases: list[Tensor] = [each.bias for each in plain if each.bias is not None]
    weights: list[Tensor] = [each.weight for each in plain]
    return partial(F.linear, weight=torch.cat(weights), bias=torch.cat(biases) if biases else None)


def _normed(norm: "Qwen2RMSNorm") -> Map:
    weight = norm.weight
    return partial(F.rms_norm, normalized_shape=tuple(weight.shape), weight=weight, eps=norm.variance_epsilon)


def _rotated(state: Tensor, turn: Turn) -> Tensor:
    return torch.addcmul(state * turn[0], state.roll(state.shape[-1] // 2, dims=-1), turn[1])
