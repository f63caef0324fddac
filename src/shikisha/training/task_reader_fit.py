"""Teaches a task reader from lessons in language: a tagger over words, and logistic regressions over whole stretches.

Invariant: the reader is a function of the lessons and the seed. Deliberately absent: where lessons come from.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from shikisha.conductors.part_tagger import DILATIONS, tagger_sizes, token_features
from shikisha.conductors.task_reader import (
    BROKEN,
    CLAIM_ALL,
    CLAIM_NONE,
    OTHER_ROLES,
    REFERENCES,
    WORDS_BUCKETS,
    TaskReader,
    word_features,
)
from shikisha.routing.arrays import Floats32, Ints

_BATCH, _RATE = 256, 0.02
_TAG_BATCH, _TAG_RATE, _WARM_UP, _DROPPED = 32, 4e-3, 100, 0.15
_SORTED = 16  # batches whose texts are sorted by length, so that little is padded
_IN_LINES = 0.12  # texts with each sentence on a line of its own
_IGNORED = -100


@dataclass(frozen=True, slots=True)
class LabeledSentence:
    """A sentence with the number of its label among the roles, of its references, or of its claim (None: not said)."""

    text: str
    role: int | None = None
    uses: int | None = None
    claim: int | None = None


def fit_task_reader(
    kinds: tuple[str, ...],
    texts: Sequence[Sequence[tuple[str, str, int]]],
    cards: Sequence[tuple[str, str]],
    seed: int = 0,
    epochs: int = 1,
    tag_epochs: int = 2,
) -> TaskReader:
    """Fit a reader to texts, each as its sentences with role and uses, and to cards' sentences with claims."""
    torch.manual_seed(seed)
    roles, claims = [*kinds, *OTHER_ROLES], [*kinds, CLAIM_ALL, CLAIM_NONE]
    labeled = [
        LabeledSentence(text, roles.index(role), uses if role in kinds else None)
        for sentences in texts
        for text, role, uses in sentences
    ]
    labeled += [LabeledSentence(text, roles.index(BROKEN)) for text in _broken(texts, seed)]
    repeats = max(1, len(labeled) // (4 * max(1, len(cards))))
    labeled += [LabeledSentence(text, claim=claims.index(claim)) for text, claim in cards] * repeats
    words, bias = _fit_words(labeled, (len(roles), len(REFERENCES), len(claims)), epochs)
    return TaskReader(kinds, _fit_tagger(texts, roles[:-1], kinds, seed, tag_epochs), words, bias)


def _broken(texts: Sequence[Sequence[tuple[str, str, int]]], seed: int) -> Iterator[str]:
    """Yield pieces that are no sentence: the half of one, two in one, one and a half."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    for sentences in texts:
        words = [text.split() for text, _, _ in sentences]
        for one, two in pairwise(words):
            cut = rng.randrange(1, len(two) + 1)
            yield " ".join([*one, *two[:cut]] if rng.random() < 0.7 else [*one[rng.randrange(len(one)) :], *two[:cut]])
        if len(words[0]) > 2:
            long = rng.choice(words)
            cut = rng.randrange(1, max(2, len(long)))
            yield " ".join(long[:cut] if rng.random() < 0.5 else long[cut:] or long[:cut])


def _fit_words(
    labeled: Sequence[LabeledSentence], sizes: tuple[int, int, int], epochs: int
) -> tuple[np.ndarray, np.ndarray]:
    table = torch.nn.EmbeddingBag(WORDS_BUCKETS, sum(sizes), mode="sum")
    torch.nn.init.zeros_(table.weight)
    bias = torch.nn.Parameter(torch.zeros(sum(sizes)))
    rows = [torch.from_numpy(word_features(each.text)) for each in labeled]
    labels = torch.tensor([[-100 if one is None else one for one in (e.role, e.uses, e.claim)] for e in labeled])
    optimizer = torch.optim.Adam([table.weight, bias], lr=_RATE)
    steps, done = epochs * (len(rows) // _BATCH + 1), 0
    for _ in range(epochs):
        order = torch.randperm(len(rows))
        for batch in torch.split(order, _BATCH):
            given = [rows[at] for at in batch.tolist()]
            lengths = torch.tensor([len(row) for row in given])
            offsets = torch.cumsum(lengths, 0) - lengths
            scores = table(torch.cat(given), offsets) / lengths.clamp(min=1)[:, None] ** 0.5 + bias
            loss = torch.zeros(())
            for at, part in enumerate(torch.split(scores, list(sizes), 1)):
                if (labels[batch, at] >= 0).any():
                    loss = loss + torch.nn.functional.cross_entropy(part, labels[batch, at], label_smoothing=0.05)
            loss = loss + 1e-5 * (table.weight**2).sum()
            for group in optimizer.param_groups:
                group["lr"] = _RATE * (1 - done / steps)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            done += 1
    return table.weight.detach().numpy().copy(), bias.detach().numpy().copy()


def _fit_tagger(
    texts: Sequence[Sequence[tuple[str, str, int]]], roles: Sequence[str], kinds: Sequence[str], seed: int, epochs: int
) -> dict[str, Floats32]:
    """Fit the tagger to words of whole texts, batches of like length together."""
    rng = np.random.default_rng(seed)
    weights = {name: torch.nn.Parameter(array) for name, array in _first_weights(len(roles), rng).items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=_TAG_RATE, weight_decay=0.01)
    rows = [_tagged(sentences, roles, kinds, rng) for sentences in texts]
    steps, done = epochs * -(-len(rows) // _TAG_BATCH), 0
    for _ in range(epochs):
        order = rng.permutation(len(rows))
        for block in np.split(order, range(_SORTED * _TAG_BATCH, len(order), _SORTED * _TAG_BATCH)):
            by_length = sorted(block, key=lambda at: len(rows[at].begins))
            for batch in rng.permutation(-(-len(by_length) // _TAG_BATCH)):
                chosen = [rows[at] for at in by_length[batch * _TAG_BATCH : (batch + 1) * _TAG_BATCH]]
                for group in optimizer.param_groups:
                    group["lr"] = _TAG_RATE * min(1.0, (done + 1) / _WARM_UP) * (1 - done / steps)
                loss = _tag_loss(weights, chosen, len(roles))
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
                optimizer.step()
                done += 1
    return {name: weight.detach().numpy().copy() for name, weight in weights.items()}


def _first_weights(roles: int, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    found = {}
    for name, shape in tagger_sizes(roles, len(REFERENCES)).items():
        scale = 0.1 if name == "words" else 0.0 if name.endswith("bias") else (2.0 / shape[0]) ** 0.5
        found[name] = torch.from_numpy((rng.standard_normal(shape) * scale).astype(np.float32))
    return found


@dataclass(frozen=True, slots=True)
class _TaggedText:
    """A text's words as features [T], whether a sentence begins at each, its role, and how many results it uses."""

    features: list[Ints]
    begins: list[float]
    roles: list[int]
    uses: list[int]


def _tagged(
    sentences: Sequence[tuple[str, str, int]], roles: Sequence[str], kinds: Sequence[str], rng: np.random.Generator
) -> _TaggedText:
    lines = rng.random() < _IN_LINES
    text, spans = "", list[tuple[int, int]]()
    begins, by_role, by_uses = list[float](), list[int](), list[int]()
    for sentence, role, uses in sentences:
        text += ("\n" if lines else " ") if text else ""
        for at, word in enumerate(sentence.split()):
            text += " " if at else ""
            spans.append((len(text), len(text) + len(word)))
            text += word
            begins.append(float(at == 0))
            by_role.append(roles.index(role))
            by_uses.append(uses if role in kinds else _IGNORED)
    return _TaggedText(token_features(text, spans), begins, by_role, by_uses)


def _tag_loss(weights: Mapping[str, torch.Tensor], texts: Sequence[_TaggedText], roles: int) -> torch.Tensor:
    longest = max(len(each.begins) for each in texts)
    used = torch.tensor([[at < len(each.begins) for at in range(longest)] for each in texts])
    scores = tag_batch(weights, [each.features for each in texts], used, _DROPPED)[used]
    begins = torch.tensor([one for each in texts for one in each.begins])
    by_role = torch.tensor([one for each in texts for one in each.roles])
    by_uses = torch.tensor([one for each in texts for one in each.uses])
    loss = 2 * torch.nn.functional.binary_cross_entropy_with_logits(scores[:, 0], begins)
    loss = loss + torch.nn.functional.cross_entropy(scores[:, 1 : 1 + roles], by_role, label_smoothing=0.02)
    if (by_uses != _IGNORED).any():
        loss = loss + 0.5 * torch.nn.functional.cross_entropy(scores[:, 1 + roles :], by_uses, ignore_index=_IGNORED)
    return loss


def tag_batch(
    weights: Mapping[str, torch.Tensor], texts: Sequence[Sequence[Ints]], used: torch.Tensor, dropped: float = 0.0
) -> torch.Tensor:
    """Return what `score_words` gives for each text [N, T, tags], with a share of the features dropped."""
    rows = [row for features in texts for row in features]
    lengths = torch.tensor([len(row) for row in rows])
    places = torch.from_numpy(np.concatenate(rows))
    bags = torch.nn.functional.embedding_bag(places, weights["words"], lengths.cumsum(0) - lengths, mode="sum")
    x = torch.zeros((*used.shape, bags.shape[1]))
    x[used] = bags / lengths[:, None] ** 0.5
    mask = used[..., None].float()

    def dense(name: str, given: torch.Tensor) -> torch.Tensor:
        return given @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def drop(given: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(given, dropped) if dropped else given

    h = dense("first", drop(x)).clip(0) * mask
    h = (h + dense("manner", h.sum(1, keepdim=True) / mask.sum(1, keepdim=True)).clip(0)) * mask
    for at, apart in enumerate(DILATIONS):
        wide = torch.nn.functional.pad(h, (0, 0, apart, apart))
        near = torch.cat([wide[:, : h.shape[1]], h, wide[:, 2 * apart :]], -1)
        h = (h + drop(dense(f"around{at}", near).clip(0))) * mask
    return dense("tags", h)
