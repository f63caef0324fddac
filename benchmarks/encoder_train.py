"""Train the text encoder on pairs of texts (`encoder_corpus.py`) and write it as one ONNX file with 8-bit rows.

    python benchmarks/encoder_train.py pairs.tsv encoder.onnx [--steps 3000] [--seed 0]
    python benchmarks/encoder_train.py pairs.tsv better.onnx --start encoder.onnx --rate 0.5 --steps 800

Each batch is 512 pairs of one source; a text's other half is to be nearer than all others of the batch (InfoNCE, both
ways), but for those of its own group. Half of the texts get typing errors and lose words, and one word in ten loses its
own row, so that runs of letters learn to say it. Rates fall to 0 in a line; `--start` goes on from a file, at a share
of the rates. Every 500 steps it prints what held-out intents and providers come to.
"""

import argparse
import random
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional

from shikisha.retrieval.text_encoder import FORMAT, WordTable, split_words, word_units

WIDTH, HEADS, KERNEL = 128, 8, 3
WORDS, RUNS = 26_000, 21_000
BATCH, LONGEST = 512, 32
SOURCES = {
    "openapi": 3.0, "openapi_parameter": 1.5, "botocore": 1.0, "botocore_member": 1.0, "google": 1.0, "docstring": 2.0,
    "intent": 3.5, "intent_name": 1.0, "wordnet_gloss": 2.0, "wordnet_synonym": 1.5, "wordnet_example": 1.0,
    "wordnet_use": 0.7, "package": 1.5, "dialog": 0.05, "readme": 0.05,
}  # fmt: skip
Rows = list[tuple[str, str, str]]


def read_pairs(file: Path) -> dict[str, Rows]:
    """Return (group, text, text) by source."""
    found = defaultdict[str, Rows](list)
    with file.open(encoding="utf-8") as opened:
        for line in opened:
            source, group, first, second = line.rstrip("\n").split("\t")
            found[source].append((group, first, second))
    return dict(found)


def choose_units(pairs: dict[str, Rows], rng: random.Random) -> list[str]:
    """Return the most frequent words and runs of letters; every source counts as often as it is trained on."""
    words = Counter[str]()
    for source, weight in SOURCES.items():
        drawn = rng.sample(pairs[source], min(len(pairs[source]), int(12_000 * weight)))
        for _, first, second in drawn:
            words.update(split_words(first))
            words.update(split_words(second))
    runs = Counter[str]()
    for word, count in words.items():
        for unit in word_units(word)[1:]:
            runs[unit] += count
    whole = [f"<{word}>" for word, count in words.most_common(WORDS) if count >= 2]
    known = set(whole)
    return whole + [unit for unit, _ in runs.most_common(RUNS + len(known)) if unit not in known][:RUNS]


def blur(words: list[str], rng: random.Random) -> list[str]:
    """Return the words with some left out and some mistyped."""
    kept = []
    for word in words[:LONGEST]:
        if rng.random() < 0.08 and len(words) > 3:
            continue
        kept.append(mistype(word, rng) if len(word) > 3 and rng.random() < 0.07 else word)
    return kept


def mistype(word: str, rng: random.Random) -> str:
    """Return the word with two letters swapped, one left out, one doubled, or one that is wrong."""
    at = rng.randrange(len(word) - 1)
    match rng.randrange(4):
        case 0:
            return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        case 1:
            return word[:at] + word[at + 1 :]
        case 2:
            return word[: at + 1] + word[at:]
        case _:
            return word[:at] + rng.choice("etaoinshrdlu") + word[at + 1 :]


class EncoderNetwork(nn.Module):
    """The network that the ONNX file holds."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, WIDTH, padding_idx=0, sparse=True)
        nn.init.normal_(self.table.weight, std=WIDTH**-0.5)
        self.table.weight.data[0] = 0
        self.near = nn.Conv1d(WIDTH, WIDTH, KERNEL, padding=KERNEL // 2, groups=WIDTH)
        self.gate = nn.Linear(WIDTH, 2 * WIDTH)
        self.weigh = nn.Linear(WIDTH, HEADS)
        self.project = nn.Linear(WIDTH, WIDTH, bias=False)
        nn.init.eye_(self.project.weight)
        nn.init.zeros_(self.weigh.weight)
        nn.init.normal_(self.gate.weight, std=0.02)

    def forward(self, units: Tensor, words: Tensor) -> Tensor:
        """Return [N, WIDTH]."""
        flat = units.flatten()
        known = flat.nonzero().squeeze(1)
        count = (units > 0).sum(1)
        offsets = torch.cumsum(count, 0) - count
        each = functional.embedding_bag(flat[known], self.table.weight, offsets, mode="sum", sparse=True)
        each = each / count.clamp(min=1).sqrt().unsqueeze(1)
        told = each[words]
        mask = (words > 0).unsqueeze(2).to(told.dtype)
        told = told * mask
        left, right = self.gate(self.near(told.transpose(1, 2)).transpose(1, 2)).chunk(2, dim=2)
        told = told + left * torch.sigmoid(right)
        weights = torch.exp(torch.clamp(self.weigh(told), -8, 8)) * mask
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-9)
        size = WIDTH // HEADS
        pooled = (told.view(*told.shape[:2], HEADS, size) * weights.unsqueeze(3)).sum(1).flatten(1)
        return functional.normalize(self.project(pooled), dim=1)


def contrast(first: Tensor, second: Tensor, groups: Tensor, sharpness: Tensor) -> Tensor:
    """Return the loss: each text's other half against all others that are not of its group."""
    scores = first @ second.T * sharpness
    same = groups.unsqueeze(0) == groups.unsqueeze(1)
    scores = scores.masked_fill(same & ~torch.eye(len(groups), dtype=torch.bool), -1e4)
    right = torch.arange(len(groups))
    return (functional.cross_entropy(scores, right) + functional.cross_entropy(scores.T, right)) / 2


class Trainer:
    """One training run."""

    def __init__(
        self, pairs: dict[str, Rows], seed: int, steps: int, rate: float = 1.0, start: Path | None = None
    ) -> None:
        torch.manual_seed(seed)
        self.pairs, self.rng, self.steps, self.rate = pairs, random.Random(seed), steps, rate
        self.units = choose_units(pairs, self.rng) if start is None else read_units(start)
        self.table = WordTable(self.units)
        self.network = EncoderNetwork(len(self.table))
        if start is not None:
            from_onnx(self.network, start)
        self.sharpness = nn.Parameter(torch.tensor(15.0))
        dense = [each for name, each in self.network.named_parameters() if name != "table.weight"]
        self.sparse = torch.optim.SparseAdam([self.network.table.weight], lr=6e-3)
        self.dense = torch.optim.Adam([{"params": dense, "lr": 1e-3}, {"params": [self.sharpness], "lr": 2e-2}])

    def arrange(self, texts: list[list[str]], *, blurred: bool) -> tuple[Tensor, Tensor]:
        """Return the network's input."""
        units, words = self.table.arrange(texts)
        if blurred:
            drop = (np.random.default_rng(self.rng.getrandbits(32)).random(len(units)) < 0.1) & (
                units[:, 1:2].sum(1) > 0
            )
            units[drop, 0] = 0
        return torch.from_numpy(units), torch.from_numpy(words)

    def batch(self) -> tuple[list[list[str]], list[list[str]], Tensor]:
        """Draw the pairs of one step, all of one source."""
        source = self.rng.choices(list(SOURCES), list(SOURCES.values()))[0]
        rows = self.rng.sample(self.pairs[source], min(BATCH, len(self.pairs[source])))
        sides: tuple[list[list[str]], list[list[str]]] = ([], [])
        numbers: dict[str, int] = {}
        groups = []
        for group, *both in rows:
            if self.rng.random() < 0.5:
                both.reverse()
            split = [split_words(text)[:LONGEST] for text in both]
            split[0] = blur(split[0], self.rng)
            if self.rng.random() < 0.3:
                split[1] = blur(split[1], self.rng)
            for side, words in zip(sides, split, strict=True):
                side.append(words)
            groups.append(numbers.setdefault(group, len(numbers)))
        return *sides, torch.tensor(groups)

    def step(self, at: int) -> float:
        """Learn from one batch; return its loss."""
        warm = min(1.0, (at + 1) / 50) * max(0.02, 1 - at / self.steps)
        for optimizer, rates in ((self.sparse, (6e-3,)), (self.dense, (1e-3, 2e-2))):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * warm * self.rate
        left, right, groups = self.batch()
        first = self.network(*self.arrange(left, blurred=True))
        second = self.network(*self.arrange(right, blurred=True))
        loss = contrast(first, second, groups, self.sharpness.clamp(5, 40))
        self.sparse.zero_grad()
        self.dense.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        self.sparse.step()  # type: ignore[no-untyped-call]  # torch's own
        self.dense.step()
        return float(loss.detach())

    @torch.no_grad()
    def encode(self, texts: list[str]) -> Tensor:
        """Return vectors of texts as they are."""
        parts = [texts[at : at + 256] for at in range(0, len(texts), 256)]
        split = [[split_words(text)[:LONGEST] for text in part] for part in parts]
        return torch.cat([self.network(*self.arrange(part, blurred=False)) for part in split])

    def held_out(self) -> str:
        """Return the share of held-out texts whose nearest other text is the right one."""
        rows = self.pairs["intent_held"]
        texts = sorted({(text, group) for group, first, second in rows for text in (first, second)})
        drawn = random.Random(1).sample(texts, min(2_000, len(texts)))
        vectors, groups = self.encode([text for text, _ in drawn]), np.array([group for _, group in drawn])
        found = (vectors @ vectors.T).fill_diagonal_(-2.0).argmax(1).numpy()
        told = [f"intent_held {(groups[found] == groups).mean():.3f}"]
        for source in ("openapi_held", "botocore_held_member"):
            rows = random.Random(1).sample(self.pairs[source], min(2_000, len(self.pairs[source])))
            best = (self.encode([row[1] for row in rows]) @ self.encode([row[2] for row in rows]).T).argmax(1).numpy()
            told.append(f"{source} {(best == np.arange(len(rows))).mean():.3f}")
        return ", ".join(told)


def to_onnx(network: EncoderNetwork, units: list[str], file: Path) -> None:
    """Write the network: rows of the table as 8-bit numbers, each with its own scale."""
    rows = network.table.weight.detach().numpy()
    scales = np.maximum(np.abs(rows).max(1) / 127, 1e-8).astype(np.float32)
    weights = {
        "table": np.clip(np.round(rows / scales[:, None]), -127, 127).astype(np.int8),
        "scales": scales,
        "near_w": network.near.weight.detach().numpy(),
        "near_b": network.near.bias.detach().numpy() if network.near.bias is not None else np.zeros(WIDTH, np.float32),
        "gate_w": network.gate.weight.detach().numpy().T.copy(),
        "gate_b": network.gate.bias.detach().numpy(),
        "weigh_w": network.weigh.weight.detach().numpy().T.copy(),
        "weigh_b": network.weigh.bias.detach().numpy(),
        "project": network.project.weight.detach().numpy().T.copy(),
        "one": np.array([1], np.int64), "two": np.array([2], np.int64), "three": np.array([3], np.int64),
        "zero": np.array(0, np.int64), "low": np.array(-8, np.float32), "high": np.array(8, np.float32),
        "tiny": np.array(1e-9, np.float32), "least": np.array(1, np.float32),
        "heads": np.array([0, 0, HEADS, WIDTH // HEADS], np.int64), "flat": np.array([0, WIDTH], np.int64),
    }  # fmt: skip
    nodes: list[onnx.NodeProto] = []

    def add(kind: str, *given: str, out: str, **options: Any) -> str:  # noqa: ANN401 - attributes of any kind
        nodes.append(helper.make_node(kind, list(given), [out], **options))
        return out

    add("Cast", add("Gather", "table", "units", out="bytes"), out="reals", to=TensorProto.FLOAT)
    add("Mul", "reals", add("Unsqueeze", add("Gather", "scales", "units", out="s1"), "two", out="s2"), out="rows")
    add("ReduceSum", "rows", "one", out="sums", keepdims=0)
    add("Cast", add("Greater", "units", "zero", out="is_unit"), out="unit_flags", to=TensorProto.FLOAT)
    add("Max", add("ReduceSum", "unit_flags", "one", out="counts", keepdims=1), "least", out="counts1")
    add("Div", "sums", add("Sqrt", "counts1", out="roots"), out="each")
    add("Cast", add("Greater", "words", "zero", out="is_word"), out="word_flags", to=TensorProto.FLOAT)
    add("Unsqueeze", "word_flags", "two", out="mask")
    add("Mul", add("Gather", "each", "words", out="told0"), "mask", out="told1")
    add("Transpose", "told1", out="across", perm=[0, 2, 1])
    add("Conv", "across", "near_w", "near_b", out="near0", group=WIDTH, kernel_shape=[KERNEL], pads=[KERNEL // 2] * 2)
    add("Transpose", "near0", out="near1", perm=[0, 2, 1])
    add("Add", add("MatMul", "near1", "gate_w", out="gated"), "gate_b", out="gated1")
    nodes.append(helper.make_node("Split", ["gated1"], ["left", "right"], axis=2, num_outputs=2))
    add("Mul", "left", add("Sigmoid", "right", out="open"), out="more")
    add("Add", "told1", "more", out="told")
    add("Add", add("MatMul", "told", "weigh_w", out="w0"), "weigh_b", out="w1")
    add("Exp", add("Clip", "w1", "low", "high", out="w2"), out="w3")
    add("Mul", "w3", "mask", out="w4")
    add("Max", add("ReduceSum", "w4", "one", out="w5", keepdims=1), "tiny", out="w6")
    add("Unsqueeze", add("Div", "w4", "w6", out="w7"), "three", out="w8")
    add("Mul", add("Reshape", "told", "heads", out="by_head"), "w8", out="weighed")
    add("Reshape", add("ReduceSum", "weighed", "one", out="pooled", keepdims=0), "flat", out="pooled1")
    add("MatMul", "pooled1", "project", out="out")
    add("ReduceL2", "out", "one", out="norm", keepdims=1)
    add("Div", "out", add("Max", "norm", "tiny", out="norm1"), out="vectors")
    graph = helper.make_graph(
        nodes,
        "text_encoder",
        [
            helper.make_tensor_value_info("units", TensorProto.INT64, ["U", "F"]),
            helper.make_tensor_value_info("words", TensorProto.INT64, ["N", "W"]),
        ],
        [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["N", WIDTH])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, {"format": FORMAT, "units": "\n".join(units)})
    onnx.checker.check_model(model)
    file.write_bytes(model.SerializeToString())


def read_units(file: Path) -> list[str]:
    """Return the units of a file."""
    return str({each.key: each.value for each in onnx.load(file).metadata_props}["units"]).split("\n")


def from_onnx(network: EncoderNetwork, file: Path) -> None:
    """Take a file's weights."""
    found = {each.name: numpy_helper.to_array(each) for each in onnx.load(file).graph.initializer}
    weights = {
        "table.weight": found["table"].astype(np.float32) * found["scales"][:, None],
        "near.weight": found["near_w"],
        "near.bias": found["near_b"],
        "gate.weight": found["gate_w"].T,
        "gate.bias": found["gate_b"],
        "weigh.weight": found["weigh_w"].T,
        "weigh.bias": found["weigh_b"],
        "project.weight": found["project"].T,
    }
    network.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in weights.items()})


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=Path)
    parser.add_argument("--rate", type=float, default=1.0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    trainer = Trainer(read_pairs(arguments.pairs), arguments.seed, arguments.steps, arguments.rate, arguments.start)
    print(f"{len(trainer.units):,} units", flush=True)
    begun, losses = time.process_time(), list[float]()
    for at in range(arguments.steps):
        losses.append(trainer.step(at))
        if (at + 1) % 100 == 0:
            told = f"step {at + 1}: loss {np.mean(losses[-100:]):.3f}, {time.process_time() - begun:.0f} s CPU"
            if (at + 1) % 500 == 0 or at + 1 == arguments.steps:
                told += f"; {trainer.held_out()}"
                to_onnx(trainer.network, trainer.units, arguments.out)
            print(told, flush=True)
    print(f"{arguments.out}: {arguments.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
