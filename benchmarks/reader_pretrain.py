"""Pretrain the task reader's tagger on what people wrote: words that are hidden, sentences that begin.

    python benchmarks/reader_pretrain.py texts.txt.xz trunk.safetensors [--minutes 7] [--batch 512] [--device cuda]

The texts are those of `reader_corpus.py`. Half a night on two cores, some minutes on a GPU. No label of ours: from the
text around it the network tells one word in seven (hidden, or mistyped), where sentences begin once full stops and
capitals are taken away, and which mark was there. Rates fall to 0 by the clock. The file holds every weight but the
last layers', in 8 bits a number. At the end it prints the same figures for texts that training does not see (the last
1 %).
"""

import argparse
import lzma
import multiprocessing
import random
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from shikisha.conductors.part_tagger import (
    END_MARKS,
    LINE_BEGINS,
    TAG_HIDDEN,
    TEXT_BEGINS,
    TOKEN_BUCKETS,
    WORD_HIDDEN,
    bucket_of,
    trunk_sizes,
    word_buckets,
)
from shikisha_train.task_reader_fit import encode_bags, first_weights, write_trunk

LENGTH, TOLD_WORDS, MOST_FEATURES = 256, 16_384, 28
HIDDEN_SHARE, MISTYPED_SHARE, RATE, WARM_UP = 0.14, 0.04, 2e-3, 300
TAILS = ("", ".", "?", "!", ",", ";", ":")
_SENTENCE = re.compile(r"[.!?][\"')]*$")
_EDGES = END_MARKS + ",\"'()[]-_/"


def mistype(word: str, rng: random.Random) -> str:
    """Return the word with two letters swapped, one lost, one doubled or one replaced."""
    if len(word) < 4 or not word[1:-1].isalpha():
        return word
    at = rng.randrange(len(word) - 2)
    return rng.choice((
        word[:at] + word[at + 1] + word[at] + word[at + 2 :], word[:at] + word[at + 1 :], word[: at + 1] + word[at:],
        word[:at] + rng.choice("aeiourtnsl") + word[at + 1 :],
    ))  # fmt: skip


@dataclass
class Words:
    """The stream of words [N] by number, where a sentence begins, where a text does; and of each word its variants."""

    stream: np.ndarray
    begins: np.ndarray
    texts: np.ndarray
    stripped: np.ndarray  # by word: the same without its last mark
    lowered: np.ndarray
    mistyped: np.ndarray
    told: np.ndarray  # by word: its number among those that are told, or -1
    tail: np.ndarray  # by word: which mark it ends in
    features: np.ndarray  # by word [V, MOST_FEATURES], padded with TOKEN_BUCKETS


def _padded(words: list[str]) -> np.ndarray:
    found = np.full((len(words), MOST_FEATURES), TOKEN_BUCKETS, np.int32)
    for at, word in enumerate(words):
        row = word_buckets(word)[:MOST_FEATURES]
        found[at, : len(row)] = row
    return found


def read_words(file: Path, processes: int) -> Words:
    """Read texts, a text on each line."""
    rng, number = random.Random(0), dict[str, int]()
    stream, begins, starts = list[int](), bytearray(), bytearray()
    with lzma.open(file, "rt", encoding="utf-8") as opened:
        for line in opened:
            before = ""
            for word in line.split():
                new = not before or (_SENTENCE.search(before) is not None and not word[0].islower())
                stream.append(number.setdefault(word, len(number)))
                begins.append(new)
                starts.append(not before)
                before = word
    counts = np.bincount(stream, minlength=len(number))
    seen = list(number)
    variants = {"stripped": list[int](), "lowered": list[int](), "mistyped": list[int]()}

    def known(word: str) -> int:
        return number.setdefault(word, len(number))

    for word in seen:
        bare = word.rstrip(",.!?;:") or word
        low = word[0].lower() + word[1:] if word[1:].islower() or len(word) == 1 else word
        variants["stripped"].append(known(bare))
        variants["lowered"].append(known(low))
        variants["mistyped"].append(known(mistype(word, rng)))
        bare_low = bare[0].lower() + bare[1:] if bare[1:].islower() or len(bare) == 1 else bare
        known(bare_low)
    words = list(number)
    # Variants of variants: only what is stripped is then lowered.
    stripped = np.arange(len(words), dtype=np.int32)
    lowered, mistyped = stripped.copy(), stripped.copy()
    for array, name in ((stripped, "stripped"), (lowered, "lowered"), (mistyped, "mistyped")):
        array[: len(seen)] = variants[name]
    for at in range(len(seen), len(words)):
        word = words[at]
        low = word[0].lower() + word[1:] if word[1:].islower() or len(word) == 1 else word
        lowered[at] = number.get(low, at)
    cores = [word.strip(_EDGES).removesuffix("'s").lower() or word for word in words]
    by_core = Counter[str]()
    for at, count in enumerate(counts):
        by_core[re.sub(r"\d+", "0", cores[at])] += int(count)
    place = {core: at for at, (core, _) in enumerate(by_core.most_common(TOLD_WORDS))}
    told = np.array([place.get(re.sub(r"\d+", "0", core), -1) for core in cores], np.int32)
    tail = np.array([TAILS.index(word[-1]) if word[-1] in TAILS[1:] and len(word) > 1 else 0 for word in words])
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        parts = pool.map(_padded, [words[at : at + 20_000] for at in range(0, len(words), 20_000)])
    print(
        f"  {len(stream)} words, {len(seen)} different, {len(words)} with variants; {sum(begins)} sentences", flush=True
    )
    return Words(
        np.array(stream, np.int32), np.array(begins, np.uint8), np.array(starts, np.uint8),
        stripped, lowered, mistyped, told, tail.astype(np.int32), np.concatenate(parts),
    )  # fmt: skip


class Pretraining:
    """The weights, and one batch after another."""

    def __init__(self, words: Words, device: str, batch: int, seed: int) -> None:
        torch.manual_seed(seed)
        rng = np.random.default_rng(seed)
        self.device, self.batch = device, batch
        self.held = int(len(words.stream) * 0.99)
        self.on = {
            name: torch.from_numpy(np.ascontiguousarray(array)).to(device) for name, array in vars(words).items()
        }
        self.counts = (self.on["features"] < TOKEN_BUCKETS).sum(1)
        self.trunk = {
            name: torch.nn.Parameter(one.to(device)) for name, one in first_weights(trunk_sizes(), rng).items()
        }
        self.heads = {
            "told": torch.nn.Linear(TAG_HIDDEN, TOLD_WORDS, device=device),
            "begins": torch.nn.Linear(TAG_HIDDEN, 1, device=device),
            "tail": torch.nn.Linear(TAG_HIDDEN, len(TAILS), device=device),
        }
        every = [*self.trunk.values(), *(one for head in self.heads.values() for one in head.parameters())]
        self.every = every
        fused = device == "cuda"
        self.optimizer = torch.optim.AdamW(every, lr=RATE, betas=(0.9, 0.98), weight_decay=0.01, fused=fused)

    def loss(self, *, held: bool = False) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """Return the loss of a random batch, and its parts."""
        device, on = self.device, self.on
        low, high = (self.held, len(on["stream"])) if held else (0, self.held)
        at = torch.randint(low, high - LENGTH, (self.batch, 1), device=device) + torch.arange(LENGTH, device=device)
        ids, begins, starts = on["stream"][at].long(), on["begins"][at].float(), on["texts"][at].bool()
        begins[:, 0] = 1.0
        tail = on["tail"][ids].long()
        wide = (self.batch, 1)

        def chance(*shape: int) -> torch.Tensor:
            return torch.rand(shape, device=device)

        ends = torch.cat([begins[:, 1:] > 0, torch.ones(wide, dtype=torch.bool, device=device)], 1)
        bare = chance(*wide) < 0.65
        strip = bare & ends & (chance(*ids.shape) < torch.where(chance(*wide) < 0.5, 0.8, 1.0))
        strip |= bare & (chance(*wide) < 0.4) & (chance(*ids.shape) < 0.9)
        said = torch.where(strip, on["stripped"][ids].long(), ids)
        small = (bare & (chance(*wide) < 0.6) & (begins > 0) & (chance(*ids.shape) < 0.9)) | (chance(*wide) < 0.05)
        said = torch.where(small, on["lowered"][said].long(), said)
        draw = chance(*ids.shape)
        mistyped = draw < MISTYPED_SHARE
        said = torch.where(mistyped, on["mistyped"][said].long(), said)
        hidden = (draw >= MISTYPED_SHARE) & (draw < MISTYPED_SHARE + HIDDEN_SHARE)
        lines = starts & (chance(*wide) < 0.3)
        flags = torch.where(lines, bucket_of(LINE_BEGINS), -1)
        flags[:, 0] = torch.where(chance(self.batch) < 0.7, bucket_of(TEXT_BEGINS), -1)
        different, back = torch.unique(said, return_inverse=True)
        table = torch.cat([self.trunk["words"], torch.zeros_like(self.trunk["words"][:1])])
        bags = torch.nn.functional.embedding_bag(on["features"][different].long(), table, mode="sum")
        count = self.counts[different][back].float()
        flagged = flags >= 0
        x = bags[back] + torch.nn.functional.embedding(flags.clamp(min=0), self.trunk["words"]) * flagged[..., None]
        x = x / (count + flagged)[..., None].sqrt()
        x = torch.where(hidden[..., None], self.trunk["words"][bucket_of(WORD_HIDDEN)], x)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            h = encode_bags(self.trunk, x, None, 0.0)
            target = on["told"][ids].long()
            asked = (hidden | mistyped) & (target >= 0)
            told = torch.nn.functional.cross_entropy(self.heads["told"](h[asked]).float(), target[asked])
            score = self.heads["begins"](h)[..., 0].float()
            open_places = torch.ones_like(begins, dtype=torch.bool)
            open_places[:, 0] = False
            starting = torch.nn.functional.binary_cross_entropy_with_logits(score[open_places], begins[open_places])
            marks = torch.nn.functional.cross_entropy(self.heads["tail"](h[strip]).float(), tail[strip])
        loss = told + 3 * starting + 0.3 * marks
        seen = bare.expand_as(begins) & open_places
        found = (score > 0)[seen] & (begins[seen] > 0)
        figures = {
            "told": told, "begins": starting, "marks": marks,
            "recall": found.sum() / (begins[seen] > 0).sum(),
            "precision": found.sum() / (score[seen] > 0).sum().clamp(min=1),
        }  # fmt: skip
        return loss, {name: value.detach() for name, value in figures.items()}

    def step(self, share: float, number: int) -> Mapping[str, torch.Tensor]:
        """Learn from one batch; `share` of the time is over."""
        for group in self.optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (number + 1) / WARM_UP) * (1 - share)
        loss, figures = self.loss()
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.every, 1.0)
        self.optimizer.step()
        return figures


def main() -> None:
    """Pretrain and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=7)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    begun = time.monotonic()
    words = read_words(arguments.texts, arguments.processes)
    torch.set_float32_matmul_precision("high")
    training = Pretraining(words, arguments.device, arguments.batch, arguments.seed)
    print(f"  read: {time.monotonic() - begun:.0f} s", flush=True)
    begun, number = time.monotonic(), 0
    while (share := (time.monotonic() - begun) / (60 * arguments.minutes)) < 1:
        figures = training.step(share, number)
        number += 1
        if number in (1, 20) or number % 500 == 0:
            said = ", ".join(f"{name} {float(value):.3f}" for name, value in figures.items())
            rate = number * arguments.batch * LENGTH / (time.monotonic() - begun)
            print(f"  step {number}: {said}; {rate / 1e6:.2f} M words/s", flush=True)
    with torch.no_grad():
        rows = [training.loss(held=True)[1] for _ in range(8)]
    means = {name: np.mean([float(row[name]) for row in rows]) for name in rows[0]}
    print(f"  held out after {number} steps: " + ", ".join(f"{name} {value:.3f}" for name, value in means.items()))
    write_trunk(arguments.file, {name: one.detach().cpu().numpy() for name, one in training.trunk.items()})
    print(f"  {arguments.file}: {arguments.file.stat().st_size} bytes; {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
