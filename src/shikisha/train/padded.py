"""TRL's batches: rows of a prompt, padded on the left, and a completion, padded on the right; our own pass over them.

Invariants: rows of equal prompt and completion are read by the model once, rows that weigh nothing not at all, and the
numbers are those of reading each; what is joined or folded can be told apart again. Deliberately absent: rewards, and
TRL's own pass.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor

from shikisha.train import loss
from shikisha.train.rollout import Sampled, planted

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM

Held = Callable[[Sequence[Sequence[int]], Tensor, Tensor], Tensor]
"""What the reference makes of prompts and tokens [B, G, C], as far as they are real: log-probabilities [B, G, C, V]."""

Rows = Mapping[str, Tensor]
"""TRL's names: prompt_ids and prompt_mask [N, P], completion_ids and completion_mask [N, C], more of [N, C] or [N]."""


@dataclass(frozen=True, slots=True)
class Folded:
    """The different prompts [B], their different completions `tokens`, as far as they are `real` [B, G, C].

    `prompt` and `completion` [N] say where each row is of them.
    """

    prompts: list[list[int]]
    tokens: Tensor
    real: Tensor
    prompt: Tensor
    completion: Tensor

    def unfolded(self, values: Tensor) -> Tensor:
        """Return the values [B, G, ...] of each row [N, ...]."""
        return values[self.prompt, self.completion]


@dataclass(frozen=True, slots=True)
class Pass:
    """What a pass over rows has found: log-probabilities [N, C], and a batch's weighted means of KL and entropy."""

    logprobs: Tensor
    kl: Tensor
    entropy: Tensor


def passed(model: "Qwen2ForCausalLM", rows: Rows, temperature: float, held: Held | None) -> Pass:
    """Read rows that have `weights` [N] and `old_per_token_logps` [N, C] too; what weighs nothing keeps the latter."""
    old, counted = rows["old_per_token_logps"], rows["weights"].nonzero()[:, 0]
    if not len(counted):
        return Pass(old.clone().requires_grad_(), torch.zeros(()), torch.zeros(()))
    kept = {name: each[counted] for name, each in rows.items() if each.dim()}
    ones = folded(kept)
    tree = planted(ones.prompts, ones.tokens, ones.real)
    spread = tree.scores(model, temperature)

    def mean(values: Tensor) -> Tensor:
        real = kept["completion_mask"]
        each = (ones.unfolded(values) * real).sum(-1) / real.sum(-1).clamp(min=1)
        return (each * kept["weights"]).sum() / len(old)

    kl = torch.zeros(())
    if held is not None:
        with torch.no_grad():
            reference = held(ones.prompts, ones.tokens, ones.real)
        kl = mean(tree.each(loss.divergence(spread, tree.once(reference))))
    found = ones.unfolded(tree.chosen(spread))
    return Pass(old.index_copy(0, counted, found), kl, mean(tree.each(loss.entropy(spread))))


def in_rows(prompts: Sequence[list[int]], drawn: Sampled) -> dict[str, Sequence[object]]:
    """Return samples as TRL wants them: lists, a row for each completion, without padding."""
    lengths = drawn.real.sum(-1).flatten().tolist()
    written, likely = drawn.tokens.flatten(0, 1).tolist(), drawn.logprobs.flatten(0, 1).tolist()
    return {
        "prompt_ids": [prompt for prompt in prompts for _ in range(drawn.tokens.shape[1])],
        "completion_ids": [row[:length] for row, length in zip(written, lengths, strict=True)],
        "logprobs": [row[:length] for row, length in zip(likely, lengths, strict=True)],
    }


def folded(rows: Rows) -> Folded:
    """Return rows as prompts with the completions of each."""
    prompts: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
    numbers: dict[tuple[int, ...], int] = {}
    places: list[tuple[int, int, int]] = []
    given, written = (unpadded(rows[f"{each}_ids"], rows[f"{each}_mask"]) for each in ("prompt", "completion"))
    for row, (prompt, completion) in enumerate(zip(map(tuple, given), map(tuple, written), strict=True)):
        known = prompts.setdefault(prompt, {})
        number = numbers.setdefault(prompt, len(numbers))
        places.append((number, known.setdefault(completion, len(known)), row))
    which = torch.full((len(prompts), max(map(len, prompts.values()))), -1)
    for number, place, row in places:
        which[number, place] = row
    real = rows["completion_mask"][which].float() * (which >= 0)[..., None]
    at = torch.tensor(places)
    return Folded(list(map(list, prompts)), rows["completion_ids"][which], real, at[:, 0], at[:, 1])


def unpadded(tokens: Tensor, mask: Tensor) -> list[list[int]]:
    """Return each row's tokens without padding."""
    kept = zip(tokens.tolist(), mask.tolist(), strict=True)
    return [[token for token, real in zip(row, reals, strict=True) if real] for row, reals in kept]


def joined(batches: Sequence[Rows], multiple: int) -> dict[str, Tensor]:
    """Return batches as one; copies of its last row fill it up to a multiple."""
    more = -sum(len(batch["prompt_ids"]) for batch in batches) % multiple
    found: dict[str, Tensor] = {}
    for name, first in batches[0].items():
        parts = [batch[name] for batch in batches]
        if first.dim() == 0:
            found[name] = torch.stack(parts).sum()
            continue
        if first.dim() > 1:
            parts = _even(parts, left=name.startswith("prompt"))
        found[name] = torch.cat([*parts, parts[-1][-1:].expand(more, *parts[-1].shape[1:])])
    return found


def _even(parts: Sequence[Tensor], left: bool) -> list[Tensor]:
    """Return parts [., T] padded to the same T; what is masked may hold anything."""
    longest = max(part.shape[1] for part in parts)
    missing = [longest - part.shape[1] for part in parts]
    return [F.pad(part, (lack, 0) if left else (0, lack)) for part, lack in zip(parts, missing, strict=True)]
