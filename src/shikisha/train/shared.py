"""Qwen2's forward pass for groups: many completions of one prompt attend to its keys and values without copies of them.

`transformers` copies a prompt's keys and values for every completion and again for every token, which on a processor
takes far longer than the arithmetic. Here a batch is [B, G, C]: prompts, completions of each, tokens of each.
Invariant: the numbers are those of `transformers`' own pass, up to rounding, with gradients (tests compare them).
Deliberately absent: other layouts than Qwen2's, dropout, sliding windows; whoever trains those uses TRL.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM
    from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

_NEVER = -1e30


@dataclass(slots=True)
class Prefix:
    """What has been read of prompts: keys and values of each layer [B, H, P, D], `hidden` [B, P], `lengths` [B]."""

    keys: list[Tensor]
    values: list[Tensor]
    hidden: Tensor
    lengths: Tensor

    def of(self, rows: Tensor) -> "Prefix":
        """Return it with a copy of its prompt for each of these rows [N]."""
        keys, values = ([layer.index_select(0, rows) for layer in each] for each in (self.keys, self.values))
        return Prefix(keys, values, self.hidden[rows], self.lengths[rows])


@dataclass(slots=True)
class Suffix:
    """Keys and values of what was written so far, of each layer [B, G, H, C, D]; `used` of C are."""

    keys: list[Tensor]
    values: list[Tensor]
    used: int = 0

    @classmethod
    def empty(cls, model: "Qwen2ForCausalLM", rows: tuple[int, int], longest: int) -> "Suffix":
        """Return room for so many tokens."""
        config = model.config
        depth = config.hidden_size // config.num_attention_heads
        shape = (*rows, config.num_key_value_heads or config.num_attention_heads, longest, depth)
        layers = range(config.num_hidden_layers)
        return cls([torch.empty(shape) for _ in layers], [torch.empty(shape) for _ in layers])


def read(model: "Qwen2ForCausalLM", prompts: Sequence[Sequence[int]]) -> Prefix:
    """Read all but the last token of each prompt."""
    lengths = torch.tensor([len(prompt) - 1 for prompt in prompts])
    longest = int(lengths.max())
    tokens = torch.zeros(len(prompts), 1, longest, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        tokens[row, 0, : len(prompt) - 1] = torch.tensor(prompt[:-1])
    places = torch.arange(longest)[None, None].expand(len(prompts), 1, longest)
    hidden = torch.arange(longest)[None] >= lengths[:, None]
    keys: list[Tensor] = []
    values: list[Tensor] = []
    state = model.model.embed_tokens(tokens)
    turn = _rotation(model, places)
    for layer in model.model.layers:
        query, key, value = _projected(layer, state, turn)
        keys.append(key[:, 0])
        values.append(value[:, 0])
        seen = F.scaled_dot_product_attention(
            query[:, 0], _shared(key[:, 0], query), _shared(value[:, 0], query), is_causal=True
        )
        state = _after(layer, state, seen[:, None])
    return Prefix(keys, values, hidden, lengths)


def follow(model: "Qwen2ForCausalLM", prefix: Prefix, tokens: Tensor) -> Tensor:
    """Return the logits [B, G, C, V] of completions [B, G, C], the first token of which ends the prompt."""
    count = tokens.shape[2]
    places = prefix.lengths[:, None, None] + torch.arange(count)[None, None]
    causal = torch.full((count, count), _NEVER).triu(1)
    state = model.model.embed_tokens(tokens)
    turn = _rotation(model, places.expand(tokens.shape))
    for place, layer in enumerate(model.model.layers):
        query, key, value = _projected(layer, state, turn)
        state = _after(layer, state, _attended(query, prefix, place, (key, value), causal))
    return _logits(model, state)


def step(model: "Qwen2ForCausalLM", prefix: Prefix, suffix: Suffix, tokens: Tensor) -> Tensor:
    """Return the logits [B, G, V] after one more token each [B, G]; `suffix` grows by it."""
    at = suffix.used
    places = (prefix.lengths[:, None, None] + at).expand(*tokens.shape, 1)
    state = model.model.embed_tokens(tokens[:, :, None])
    turn = _rotation(model, places)
    for place, layer in enumerate(model.model.layers):
        query, key, value = _projected(layer, state, turn)
        suffix.keys[place][:, :, :, at : at + 1] = key
        suffix.values[place][:, :, :, at : at + 1] = value
        written = (suffix.keys[place][:, :, :, : at + 1], suffix.values[place][:, :, :, : at + 1])
        state = _after(layer, state, _attended(query, prefix, place, written, None))
    suffix.used += 1
    return _logits(model, state)[:, :, 0]


def _attended(
    query: Tensor, prefix: Prefix, layer: int, written: tuple[Tensor, Tensor], causal: Tensor | None
) -> Tensor:
    """Attend to the prompt [B, H, P, D], which a group shares, and to what each wrote [B, G, H, C, D]."""
    batch, group, heads, count, depth = query.shape
    key, value = _shared(prefix.keys[layer], query), _shared(prefix.values[layer], query)
    own_key, own_value = (_shared(each, query) for each in written)
    scaled = query * depth**-0.5
    flat = scaled.transpose(1, 2).reshape(batch, heads, group * count, depth)
    before = (flat @ key.transpose(-1, -2)).masked_fill(prefix.hidden[:, None, None], _NEVER)
    before = before.view(batch, heads, group, count, -1).transpose(1, 2)
    own = scaled @ own_key.transpose(-1, -2)
    if causal is not None:
        own = own + causal
    weights = torch.cat([before, own], dim=-1).softmax(dim=-1)
    length = before.shape[-1]
    first = weights[..., :length].transpose(1, 2).reshape(batch, heads, group * count, length) @ value
    return first.view(batch, heads, group, count, depth).transpose(1, 2) + weights[..., length:] @ own_value


def _projected(layer: "Qwen2DecoderLayer", state: Tensor, turn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value [B, G, H, C, D] of a layer."""
    attention = layer.self_attn
    normed = layer.input_layernorm(state)
    shape = (*state.shape[:-1], -1, attention.head_dim)
    query, key, value = (
        each(normed).view(shape).transpose(-2, -3) for each in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    return _rotated(query, turn), _rotated(key, turn), value


def _after(layer: "Qwen2DecoderLayer", state: Tensor, seen: Tensor) -> Tensor:
    """Return the state after a layer, given what its heads saw [B, G, H, C, D]."""
    state = state + layer.self_attn.o_proj(seen.transpose(-2, -3).flatten(-2))
    after: Tensor = state + layer.mlp(layer.post_attention_layernorm(state))
    return after


def _logits(model: "Qwen2ForCausalLM", state: Tensor) -> Tensor:
    logits: Tensor = model.lm_head(model.model.norm(state))
    return logits.float()


def _rotation(model: "Qwen2ForCausalLM", places: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine [B, G, 1, C, D] of each place's rotation."""
    flat = places.reshape(-1, places.shape[-1])
    cosine, sine = model.model.rotary_emb(torch.empty(0), flat)
    shape = (*places.shape[:2], 1, places.shape[-1], cosine.shape[-1])
    return cosine.view(shape), sine.view(shape)


def _rotated(state: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    half = state.shape[-1] // 2
    other = torch.cat([-state[..., half:], state[..., :half]], dim=-1)
    return state * turn[0] + other * turn[1]


def _shared(each: Tensor, query: Tensor) -> Tensor:
    """Repeat the heads of keys or values for the queries' heads that share them."""
    heads = query.shape[2] if query.dim() == 5 else query.shape[1]
    times = heads // each.shape[-3]
    return each if times == 1 else each.repeat_interleave(times, dim=-3)
