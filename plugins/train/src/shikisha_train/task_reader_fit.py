"""Teaches a task reader from lessons in language: a tagger over words, and logistic regressions over whole stretches.

Invariant: the reader is a function of the lessons and the seed. Deliberately absent: where lessons come from.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from shikisha.core.errors import ConfigError
from shikisha.routing.arrays import Floats32, Ints
from shikisha_train.pointer.part_tagger import (
    HEAD_SLOPES,
    SMALLEST,
    TAG_HIDDEN,
    TAG_LAYERS,
    far_bias,
    tagger_sizes,
    token_features,
    trunk_sizes,
)
from shikisha_train.pointer.task_reader import (
    BROKEN,
    CLAIM_ALL,
    CLAIM_NONE,
    OTHER_ROLES,
    REFERENCES,
    WORDS_BUCKETS,
    TaskReader,
    word_features,
)
from shikisha_train.pointer.weight_file import open_weights, write_weights

_BATCH, _RATE = 256, 0.02
_TAG_BATCH, _TAG_RATE, _WARM_UP, _DROPPED, _SMOOTHED = 32, 5e-4, 200, 0.1, 0.02
_SORTED = 16  # batches whose texts are sorted by length, so that little is padded
_IN_LINES = 0.12  # texts with each sentence on a line of its own
_IGNORED = -100
_REPORTS = 20
TRUNK_FORMAT = "shikisha-reader-trunk/1"


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
    tag_epochs: int = 1,
    trunk: Mapping[str, Floats32] | None = None,
    device: str = "cpu",
    report: Callable[[float], None] | None = None,
) -> TaskReader:
    """Fit a reader to texts, each as its sentences with role and uses, and to cards' sentences with claims.

    `trunk`: weights of the tagger that were pretrained; without them it begins at random. `report` is told the share
    of the tagger's lessons that are done, twenty times.
    """
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
    tagger = _fit_tagger(texts, roles, kinds, (seed, tag_epochs), trunk or {}, device, report)
    return TaskReader(kinds, tagger, words, bias)


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
    labels = torch.tensor([[-100 if one is None else one for one in (e.role, e.uses, e.claim)] for e in labeled])
    optimizer = torch.optim.Adam([table.weight, bias], lr=_RATE)
    steps, done = epochs * (len(labeled) // _BATCH + 1), 0
    for _ in range(epochs):
        order = torch.randperm(len(labeled))
        for batch in torch.split(order, _BATCH):
            given = [torch.from_numpy(word_features(labeled[at].text)) for at in batch.tolist()]
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
    texts: Sequence[Sequence[tuple[str, str, int]]],
    roles: Sequence[str],
    kinds: Sequence[str],
    settings: tuple[int, int],
    trunk: Mapping[str, Floats32],
    device: str,
    report: Callable[[float], None] | None,
) -> dict[str, Floats32]:
    """Fit the tagger to words of whole texts, batches of like length together."""
    seed, epochs = settings
    rng = np.random.default_rng(seed)
    first = first_weights(tagger_sizes(len(roles), len(REFERENCES)), rng)
    first |= {name: torch.from_numpy(np.array(array, np.float32)) for name, array in trunk.items()}
    weights = {name: torch.nn.Parameter(array.to(device)) for name, array in first.items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=_TAG_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    steps, done = epochs * -(-len(texts) // _TAG_BATCH), 0
    warm_up = min(_WARM_UP, steps // 4 + 1)
    for _ in range(epochs):
        order = rng.permutation(len(texts))
        for block in np.split(order, range(_SORTED * _TAG_BATCH, len(order), _SORTED * _TAG_BATCH)):
            rows = sorted((_tagged(texts[at], roles, kinds, rng) for at in block), key=lambda row: len(row.begins))
            for batch in rng.permutation(-(-len(rows) // _TAG_BATCH)):
                chosen = rows[batch * _TAG_BATCH : (batch + 1) * _TAG_BATCH]
                for group in optimizer.param_groups:
                    group["lr"] = _TAG_RATE * min(1.0, (done + 1) / warm_up) * (1 - done / steps)
                loss = _tag_loss(weights, chosen, len(roles), device)
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
                optimizer.step()
                done += 1
                if report is not None and done % max(1, steps // _REPORTS) == 0:
                    report(done / steps)
    return {name: weight.detach().cpu().numpy().copy() for name, weight in weights.items()}


def write_trunk(file: Path, weights: Mapping[str, Floats32]) -> None:
    """Write what pretraining fitted."""
    packed = {name for name, array in weights.items() if np.ndim(array) > 1}
    write_weights(file, weights, {"format": TRUNK_FORMAT}, packed)


@cache
def read_trunk(file: Path) -> Mapping[str, Floats32]:
    """Return what pretraining fitted; ConfigError where the file holds none."""
    held = open_weights(file, "pretrained reader")
    try:
        if held.metadata["format"] != TRUNK_FORMAT:
            raise ConfigError(f"{file}: expected the format {TRUNK_FORMAT}, found {held.metadata['format']!r}")
        return {name: held.read(name, shape) for name, shape in trunk_sizes().items()}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: no pretrained reader: {type(error).__name__}: {error}") from None


def first_weights(sizes: Mapping[str, tuple[int, ...]], rng: np.random.Generator) -> dict[str, torch.Tensor]:
    """Return weights at random: small where a layer adds to what is there, one for norms, zero for biases."""
    found = {}
    for name, shape in sizes.items():
        if name.endswith("norm"):
            array = np.ones(shape)
        else:
            scale = 0.1 if name == "words" else 0.0 if name.endswith("bias") else shape[0] ** -0.5
            scale *= (2 * TAG_LAYERS) ** -0.5 if name.endswith(".out") else 1.0
            array = rng.standard_normal(shape) * scale
        found[name] = torch.from_numpy(array.astype(np.float32))
    return found


@dataclass(frozen=True, slots=True)
class _TaggedText:
    """A text's words as features [T], whether a sentence begins at each, and stretches: start, end, role, uses."""

    features: list[Ints]
    begins: list[float]
    stretches: list[tuple[int, int, int, int]]


def _tagged(
    sentences: Sequence[tuple[str, str, int]], roles: Sequence[str], kinds: Sequence[str], rng: np.random.Generator
) -> _TaggedText:
    lines = rng.random() < _IN_LINES
    text, spans = "", list[tuple[int, int]]()
    begins, stretches = list[float](), list[tuple[int, int, int, int]]()
    for sentence, role, uses in sentences:
        text += ("\n" if lines else " ") if text else ""
        start = len(spans)
        for at, word in enumerate(sentence.split()):
            text += " " if at else ""
            spans.append((len(text), len(text) + len(word)))
            text += word
            begins.append(float(at == 0))
        stretches.append((start, len(spans), roles.index(role), uses if role in kinds else _IGNORED))
    broken = [(one, two, len(roles) - 1, _IGNORED) for one, two in _broken_places(stretches, rng)]
    return _TaggedText(token_features(text, spans), begins, [*stretches, *broken])


def _broken_places(
    stretches: Sequence[tuple[int, int, int, int]], rng: np.random.Generator
) -> Iterator[tuple[int, int]]:
    """Yield stretches that are no sentence: two in one, a half, one some words too early or late."""
    words = stretches[-1][1]
    for at, (start, end, _, _) in enumerate(stretches):
        if at + 1 < len(stretches):
            yield start, stretches[at + 1][1]
        if at + 2 < len(stretches) and rng.random() < 0.3:
            yield start, stretches[at + 2][1]
        if end - start > 1:
            cut = int(rng.integers(start + 1, end))
            yield start, cut
            yield cut, end
        for _ in range(2):
            one, two = start + int(rng.integers(-4, 5)), end + int(rng.integers(-4, 5))
            one, two = (start, two) if rng.random() < 0.4 else (one, end) if rng.random() < 0.6 else (one, two)
            if 0 <= one < two <= words and (one, two) != (start, end):
                yield one, two


def _tag_loss(
    weights: Mapping[str, torch.Tensor], texts: Sequence[_TaggedText], roles: int, device: str
) -> torch.Tensor:
    longest = max(len(each.begins) for each in texts)
    used = torch.tensor([[at < len(each.begins) for at in range(longest)] for each in texts], device=device)
    h = encode_texts(weights, [each.features for each in texts], used, _DROPPED)
    begins = torch.tensor([one for each in texts for one in each.begins], device=device)
    places = torch.tensor(
        [(row, start, end) for row, each in enumerate(texts) for start, end, _, _ in each.stretches], device=device
    )
    by_role, by_uses = (
        torch.tensor([one[at] for each in texts for one in each.stretches], device=device) for at in (2, 3)
    )
    functional = torch.nn.functional
    loss = 2 * functional.binary_cross_entropy_with_logits(tag_begins(weights, h)[used], begins)
    scores = tag_stretches(weights, h, places, _DROPPED)
    loss = loss + functional.cross_entropy(scores[:, :roles], by_role, label_smoothing=_SMOOTHED)
    if (by_uses != _IGNORED).any():
        loss = loss + 0.5 * functional.cross_entropy(scores[:, roles:], by_uses, ignore_index=_IGNORED)
    return loss


def tag_begins(weights: Mapping[str, torch.Tensor], h: torch.Tensor) -> torch.Tensor:
    """Return what `score_begins` gives for each text [N, T]."""
    return (h @ weights["begins.weight"] + weights["begins.bias"])[..., 0]


def tag_stretches(
    weights: Mapping[str, torch.Tensor], h: torch.Tensor, places: torch.Tensor, dropped: float = 0.0
) -> torch.Tensor:
    """Return what `score_stretches` gives for stretches [S, (text, start, end)]."""
    row, start, end = places.T
    wide = torch.nn.functional.pad(h, (0, 0, 0, 1))
    sums = torch.nn.functional.pad(h.cumsum(1), (0, 0, 1, 0))
    mean = (sums[row, end] - sums[row, start]) / (end - start)[:, None]
    x = torch.cat([mean, h[row, start], h[row, end - 1], wide[row, end]], 1)
    hidden = (torch.nn.functional.dropout(x, dropped) @ weights["stretch.weight"] + weights["stretch.bias"]).relu()
    return hidden @ weights["roles.weight"] + weights["roles.bias"]


def encode_texts(
    weights: Mapping[str, torch.Tensor], texts: Sequence[Sequence[Ints]], used: torch.Tensor, dropped: float = 0.0
) -> torch.Tensor:
    """Return what `encode_words` gives for each text [N, T, TAG_HIDDEN] (0 where no word is used)."""
    rows = [row for features in texts for row in features]
    device = used.device
    lengths = torch.tensor([len(row) for row in rows], device=device)
    places = torch.from_numpy(np.concatenate(rows)).to(device)
    bags = torch.nn.functional.embedding_bag(places, weights["words"], lengths.cumsum(0) - lengths, mode="sum")
    x = torch.zeros((*used.shape, bags.shape[1]), device=device)
    x[used] = bags / lengths[:, None] ** 0.5
    return encode_bags(weights, x, used, dropped) * used[..., None]


def encode_bags(
    weights: Mapping[str, torch.Tensor], x: torch.Tensor, used: torch.Tensor | None, dropped: float = 0.0
) -> torch.Tensor:
    """Return what `encode_words` gives [N, T, TAG_HIDDEN] for words as sums of their rows [N, T, TOKEN_WIDTH].

    `used` [N, T] says which places hold a word; None: all.
    """
    heads, count = len(HEAD_SLOPES), x.shape[1]
    bias = torch.from_numpy(far_bias(count)).to(x.device)[None]
    if used is not None:
        bias = bias.masked_fill(~used[:, None, None, :], -1e9)
    mask = None if used is None else used[..., None].float()

    def drop(given: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(given, dropped) if dropped else given

    def normed(name: str, given: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(given, (TAG_HIDDEN,), weights[name], SMALLEST)

    x = drop(x) @ weights["first.weight"] + weights["first.bias"]
    x = x if mask is None else x * mask
    wide = torch.nn.functional.pad(x, (0, 0, 1, 1))
    near = torch.cat([wide[:, :-2], x, wide[:, 2:]], -1)
    h = x + drop((near @ weights["beside.weight"] + weights["beside.bias"]).relu())
    for at in range(TAG_LAYERS):
        asked = normed(f"look{at}.norm", h) @ weights[f"look{at}.in"]
        query, key, value = asked.view(*x.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
        seen = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias.to(query.dtype))
        h = h + drop(seen.transpose(1, 2).reshape(x.shape) @ weights[f"look{at}.out"])
        thought = (normed(f"think{at}.norm", h) @ weights[f"think{at}.in"] + weights[f"think{at}.bias"]).relu()
        h = h + drop(thought @ weights[f"think{at}.out"])
    return normed("norm", h)
