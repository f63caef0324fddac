"""A model from scratch, in the layout of Qwen2: small enough to learn on two cores, loadable by all that loads Qwen2.

Invariant: the same seed gives the same weights. Deliberately absent: an architecture of our own.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM


@dataclass(frozen=True, slots=True)
class Size:
    """Layers, width, heads, the feed-forward's width, and the longest text in tokens."""

    layers: int = 3
    width: int = 128
    heads: int = 4
    inner: int = 384
    longest: int = 512


def fresh(vocabulary: int, size: Size = Size(), seed: int = 0) -> "Qwen2ForCausalLM":
    """Return a model with random weights; padding is token 0 and the end token 1 (`words`)."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=vocabulary,
                hidden_size=size.width,
                intermediate_size=size.inner,
                num_hidden_layers=size.layers,
                num_attention_heads=size.heads,
                num_key_value_heads=size.heads,
                max_position_embeddings=size.longest,
                tie_word_embeddings=True,
                use_cache=True,
                attention_dropout=0.0,
                pad_token_id=0,
                eos_token_id=1,
                bos_token_id=None,
            )
        )
