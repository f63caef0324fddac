"""Teaches a task reader from lessons in language: logistic regressions over hashed features, fitted by Adam.

Invariant: the reader is a function of the lessons and the seed. Deliberately absent: where lessons come from.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from shikisha.conductors.task_reader import (
    BROKEN,
    CLAIM_ALL,
    CLAIM_NONE,
    OTHER_ROLES,
    PLACE_BUCKETS,
    REFERENCES,
    WORDS_BUCKETS,
    TaskReader,
    place_features,
    word_features,
)

_BATCH, _RATE = 256, 0.02


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
    epochs: int = 2,
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
    starts, starts_bias = _fit_starts(texts, epochs)
    return TaskReader(kinds, starts, starts_bias, words, bias)


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


def _fit_starts(texts: Sequence[Sequence[tuple[str, str, int]]], epochs: int) -> tuple[np.ndarray, float]:
    places, labels = list[list[int]](), list[float]()
    for sentences in texts:
        text, spans, begins = "", list[tuple[int, int]](), list[bool]()
        for sentence, _, _ in sentences:
            text += " " if text else ""
            for at, word in enumerate(sentence.split()):
                text += " " if at else ""
                spans.append((len(text), len(text) + len(word)))
                begins.append(at == 0)
                text += word
        places += place_features(text, spans)[1:]
        labels += [float(one) for one in begins[1:]]
    table = torch.nn.Parameter(torch.zeros(PLACE_BUCKETS))
    bias = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.Adam([table, bias], lr=_RATE)
    rows, wanted = torch.tensor(places), torch.tensor(labels)
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(rows)), 4 * _BATCH):
            scores = table[rows[batch]].sum(1) + bias
            loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, wanted[batch])
            loss = loss + 1e-5 * (table**2).sum()
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
    return table.detach().numpy().copy(), float(bias.detach())
