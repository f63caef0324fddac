"""A head on frozen states of an encoder: who does a part, in which wording, and whether another is asked after that.

    python benchmarks/workshop/workshop_head.py [--clones FOLDER] [--minilm MODEL.onnx] [--split choose|test]
    python benchmarks/workshop/workshop_head.py --write FILE [--split choose|test] [--live MODELS]
    python benchmarks/workshop/workshop_head.py --ask "TEXT" [--head FILE] --live MODELS

The head is linear over the state of a part's words and four numbers of their shape. It learns from the 600 tasks by
replay of real answers, in two ways. **Policy gradient**: 16 samples of a task; the reward is that all parts are right,
less .02 a CPU second, and the advantage is over the task's own samples. It sees no outcome of a single part, nor of a
treatment that was not sampled. **Regression with search**: logistic regressions of every outcome of every part, then
the most valuable choice. A second turn sees what came back: a fault, an error, a check of visible examples, length and
digits. Ridges are chosen on the 200 tasks to choose by; cuts are the true ones. Rows are paired with the table that is
told the family.

`--write` makes what `shikisha-train` ships, by policy gradient, cutter included, without tasks that have a story, whose
license forbids it; and performs held-out tasks with it. `--ask` performs a task through the engine with real models.
"""

import argparse
import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from workshop_controls import Replay, interval, learned_table
from workshop_cut import Workers, exact, family_of, fit_cutter, performed, read_part, somebody_right
from workshop_fill import FOLDER, AnswerCache
from workshop_items import Part, load_parts, repositories
from workshop_tasks import WorkshopTask, compose
from workshop_treatments import TREATMENTS

from shikisha import Caps, Card, Engine, Member, Pool, Reply, Task
from shikisha.core.budget import Price
from shikisha.core.call import Request
from shikisha.engine.recorder import MemoryRecorder
from shikisha.retrieval.text_encoder import load_encoder, shipped_encoder
from shikisha_train.head.head_conductor import HeadConductor, PartHead, load_head, part_states, save_head, shipped_head

NAMES = ("tool", *(each.name for each in TREATMENTS))
_COUNT, _EVIDENCE, _SECOND = len(NAMES), 5, 0.02
_SAMPLES, _STEPS, _RATE, _ENTROPY = 16, 250, 0.02, 0.02
_SHIPPED_RIDGE, _UNLICENSED = 1e-3, "stories"  # MCTest is for research only
_GRADIENT_RIDGES, _REGRESSION_RIDGES = (1e-4, 3e-4, 1e-3), (3e-4, 1e-3, 1e-2)
_WORD = re.compile(r"\w+|[^\w\s]")
Array = np.ndarray
Encode = Callable[[Sequence[str]], Array]


@dataclass(frozen=True)
class Parts:
    """The N parts of a split's tasks: states (N, width), the task of each, and by treatment (N, treatments) whether it
    is right, its CPU seconds and what came back (N, treatments, evidence)."""

    tasks: Sequence[WorkshopTask]
    states: Array
    task: Array
    right: Array
    seconds: Array
    evidence: Array

    def played(self, first: Array, second: Array | None) -> tuple[Array, Array]:
        """Return for each task whether it is right, and its seconds. A second choice of `_COUNT` keeps the answer."""
        at = np.arange(len(first))
        right, seconds = self.right[at, first], self.seconds[at, first]
        if second is not None:
            more, other = second < _COUNT, np.where(second < _COUNT, second, 0)
            right = np.where(more, self.right[at, other], right)
            seconds = seconds + np.where(more & (other != first), self.seconds[at, other], 0)
        whole, spent = np.ones(len(self.tasks)), np.zeros(len(self.tasks))
        np.minimum.at(whole, self.task, right)
        np.add.at(spent, self.task, seconds)
        return whole, spent

    def returned(self, first: Array) -> Array:
        """Return what a second turn sees beside the state: who was asked, and what came back."""
        return np.hstack([np.eye(_COUNT)[first], self.evidence[np.arange(len(first)), first]])


def parts_of(tasks: Sequence[WorkshopTask], replay: Replay, encode: Encode) -> Parts:
    """Return the parts of these tasks with their outcomes."""
    every = [(number, part) for number, task in enumerate(tasks) for part in task.parts]
    right, seconds = np.zeros((2, len(every), _COUNT))
    evidence = np.zeros((len(every), _COUNT, _EVIDENCE))
    for row, (_, part) in enumerate(every):
        outcomes = replay.part(part) or {}
        for column, name in enumerate(NAMES):
            if (one := outcomes.get(name)) is None:
                evidence[row, column, 0] = 1
                continue
            right[row, column], seconds[row, column] = one.right, one.seconds
            failed = one.answer.startswith("error") or not one.answer.strip()
            checked = 0.0 if one.passed is None else 2.0 * one.passed - 1
            size, digits = math.log1p(len(one.answer)) / 5 - 0.5, any(map(str.isdigit, one.answer))
            evidence[row, column] = [0, failed, checked, size, digits]
    asks = [ask for task in tasks for ask in task.asks]
    return Parts(tasks, encode(asks), np.array([number for number, _ in every]), right, seconds, evidence)


def centered(encode: Encode, known: Sequence[str]) -> Encode:
    """Return what encodes texts about the mean of the known ones, with their shapes."""
    middle = encode(sorted(set(known))).mean(0)
    return lambda texts: part_states(encode(texts), middle, texts)


def tf_idf(known: Sequence[str]) -> Encode:
    """Return the TF-IDF encoder of words that three of the known texts have."""
    texts = sorted(set(known))

    def words(text: str) -> list[str]:
        return ["0" if word.isdigit() else word.lower() for word in _WORD.findall(text)]

    counts = Counter(word for text in texts for word in set(words(text)))
    numbers = {word: at for at, word in enumerate(word for word, count in counts.items() if count >= 3)}
    weights = np.array([math.log(len(texts) / counts[word]) for word in numbers])

    def encode(those: Sequence[str]) -> Array:
        rows = np.zeros((len(those), len(numbers)))
        for row, text in zip(rows, those, strict=True):
            for word in words(text):
                if word in numbers:
                    row[numbers[word]] += 1
        rows = np.log1p(rows) * weights
        return np.asarray(rows / np.maximum(1e-9, np.linalg.norm(rows, axis=1, keepdims=True)))

    return encode


@dataclass(frozen=True)
class Head:
    """What chooses the first treatment from states, and the second from states and what came back, if any is asked."""

    first: Callable[[Array], Array]
    second: Callable[[Array, Array, Array], Array] | None
    weights: tuple[Array, Array] | None = None  # of the first choice, and its bias

    def play(self, parts: Parts) -> tuple[Array, Array]:
        """Return for each task whether it is right, and its seconds."""
        first = self.first(parts.states)
        return parts.played(first, self.second and self.second(parts.states, parts.returned(first), first))


def by_gradient(parts: Parts, turns: int, ridge: float, seed: int) -> Head:
    """Return the head that policy gradient makes of sampled tasks."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    states, right, seconds, evidence = (
        torch.tensor(one, dtype=torch.float32) for one in (parts.states, parts.right, parts.seconds, parts.evidence)
    )
    count, width = states.shape
    shapes = ((width, _COUNT), (_COUNT,), (width, _COUNT + 1), (_COUNT + _EVIDENCE, _COUNT + 1), (_COUNT + 1,))
    weights = [torch.zeros(shape, requires_grad=True) for shape in shapes]
    one, one_bias, two, two_seen, two_bias = weights
    with torch.no_grad():
        two_bias[_COUNT] = 2.0  # at first an answer is mostly kept
    optimizer = torch.optim.Adam(weights, lr=_RATE)
    rows = torch.arange(count)[:, None].expand(count, _SAMPLES)
    task = torch.tensor(parts.task)
    for step in range(_STEPS):
        logs = torch.log_softmax(states @ one + one_bias, 1)
        taken = torch.multinomial(logs.exp(), _SAMPLES, replacement=True)
        good, spent, chance = right[rows, taken], seconds[rows, taken], logs.gather(1, taken)
        if turns > 1:
            seen = torch.cat([torch.eye(_COUNT)[taken], evidence[rows, taken]], -1)
            more = torch.log_softmax((states @ two + two_bias)[:, None] + seen @ two_seen, -1)
            other = torch.multinomial(more.exp().flatten(0, 1), 1).reshape(count, _SAMPLES)
            asked, place = other < _COUNT, other.clamp(max=_COUNT - 1)
            good = torch.where(asked, right[rows, place], good)
            spent = spent + torch.where(asked & (place != taken), seconds[rows, place], 0.0)
            chance = chance + more.gather(2, other[..., None])[..., 0]
        whole = torch.ones(len(parts.tasks), _SAMPLES).scatter_reduce(
            0, task[:, None].expand(count, _SAMPLES), good, "amin"
        )
        reward = whole - _SECOND * torch.zeros(len(parts.tasks), _SAMPLES).index_add(0, task, spent)
        advantage = (reward - reward.mean(1, keepdim=True)) / (reward.std() + 1e-6)
        entropy = -(logs.exp() * logs).sum(1).mean()
        size = one.pow(2).sum() + two.pow(2).sum() + two_seen.pow(2).sum()
        loss = -(advantage[task] * chance).mean() - _ENTROPY * (1 - step / _STEPS) * entropy + ridge * size
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    w1, b1, w2, w3, b2 = (each.detach().numpy() for each in weights)
    second = None if turns < 2 else lambda x, seen, _: (x @ w2 + seen @ w3 + b2).argmax(1)
    return Head(lambda x: (x @ w1 + b1).argmax(1), second, (w1, b1))


def _logistic(x: Array, y: Array, ridge: float) -> Callable[[Array], Array]:
    inputs, wanted = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    weights = torch.zeros(x.shape[1], y.shape[1], requires_grad=True)
    bias = torch.zeros(y.shape[1], requires_grad=True)
    optimizer = torch.optim.Adam([weights, bias], lr=0.1)
    for _ in range(60):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(inputs @ weights + bias, wanted)
        optimizer.zero_grad()
        (loss + ridge * weights.pow(2).sum() / y.shape[1]).backward()
        optimizer.step()
    slope, offset = weights.detach().numpy(), bias.detach().numpy()
    return lambda rows: np.asarray(1 / (1 + np.exp(-(rows @ slope + offset))))


def by_regression(parts: Parts, turns: int, ridge: float) -> Head:
    """Return the head that searches over fitted chances and costs of every treatment."""
    x, right, seconds = parts.states, parts.right, parts.seconds
    mean = seconds.sum(0) / np.maximum(1, (seconds > 0).sum(0))
    done = _logistic(x, (seconds > 0).astype(float), ridge)
    if turns < 2:
        chance = _logistic(x, right, ridge)
        return Head(lambda rows: (chance(rows) - _SECOND * done(rows) * mean).argmax(1), None)
    each = [np.full(len(x), name) for name in range(_COUNT)]
    seen = [parts.returned(first) for first in each]
    both = [np.hstack([right, right[:, [name]]]) for name in range(_COUNT)]
    after = _logistic(np.vstack([np.hstack([x, one]) for one in seen]), np.vstack(both), ridge)

    def second(rows: Array, returned: Array, first: Array) -> Array:
        value = after(np.hstack([rows, returned]))
        value[:, :_COUNT] -= _SECOND * done(rows) * mean
        value[np.arange(len(rows)), first] = -1
        return np.asarray(value.argmax(1))

    good, spent = np.zeros((2, len(x), _COUNT))
    at = np.arange(len(x))
    for name in range(_COUNT):
        then = second(x, seen[name], each[name])
        place = np.where(then < _COUNT, then, name)
        good[:, name] = right[at, place]
        spent[:, name] = seconds[:, name] + np.where(then < _COUNT, seconds[at, place], 0)
    chance, ones = _logistic(x, good, ridge), np.ones((len(x), 1))
    wide = np.hstack([x, ones])
    cost = np.linalg.solve(wide.T @ wide + 0.05 * len(x) * np.eye(wide.shape[1]), wide.T @ spent)
    return Head(
        lambda rows: (chance(rows) - _SECOND * np.hstack([rows, np.ones((len(rows), 1))]) @ cost).argmax(1), second
    )


def value(played: tuple[Array, Array]) -> float:
    """Return the mean of right answers, less what seconds are worth."""
    return float((played[0] - _SECOND * played[1]).mean())


def tabled(parts: Parts, table: Mapping[str, str], family: Callable[[Part, str], str]) -> tuple[Array, Array]:
    """Return what the table per family brings, given what names a part's family."""
    pairs = [(part, ask) for task in parts.tasks for part, ask in zip(task.parts, task.asks, strict=True)]
    return parts.played(np.array([NAMES.index(table.get(family(*pair), "large form")) for pair in pairs]), None)


def write_head(file: Path, train: Sequence[WorkshopTask], replay: Replay) -> None:
    """Write the head that tasks of free licenses teach."""
    free = [task for task in train if _UNLICENSED not in task.families]
    cutter = fit_cutter([task for task in free if all(somebody_right(replay, part) for part in task.parts)])
    known = [ask for task in free for ask in task.asks]
    middle = np.asarray(shipped_encoder().encode(sorted(set(known)))).mean(0)
    encode = centered(lambda texts: np.asarray(shipped_encoder().encode(texts)), known)
    made = by_gradient(parts_of(free, replay, encode), 1, _SHIPPED_RIDGE, 1).weights
    assert made is not None
    workers = tuple(name.replace(" ", "-") for name in NAMES)
    save_head(file, PartHead(cutter, workers, "join", middle, *made), {"tasks": str(len(free)), "seed": "1"})


@dataclass(frozen=True)
class LiveWorker:
    """A treatment of a part, or what puts answers together."""

    name: str
    workers: Workers
    intents: Part

    async def perform(self, request: Request) -> Reply:
        """Return the answer to the part that the subtask asks for, or the answers so far, each on a line."""
        if self.name == "join":
            return Reply("\n".join(step.text or "(nothing)" for step in request.granted))
        part = read_part(request.subtask, self.intents)
        answer, _ = await asyncio.to_thread(self.workers.answer, self.name, part)
        return Reply(answer or "(nothing)")


async def ask(text: str, head: PartHead, workers: Workers, intents: Part) -> None:
    """Perform a task through the engine, and print who did what."""
    cards = [Card(name.replace(" ", "-"), kind="", price=Price(), attempts=1) for name in (*NAMES, "join")]
    members = [
        Member(card, LiveWorker(name, workers, intents)) for card, name in zip(cards, (*NAMES, "join"), strict=True)
    ]
    run = await Engine(MemoryRecorder()).run(Task(text), Pool(members), HeadConductor("head", head), Caps())
    for turn in run.rounds:
        for step in turn.plan.steps if turn.plan else ():
            print(f"{run.started.pool[step.worker]}: {step.subtask[:100]}")
    print(run.answer or "no answer")


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--cache", type=Path, default=FOLDER / "answers.db")
    parser.add_argument("--minilm", type=Path, help="all-MiniLM-L6-v2 as ONNX, tokenizer.json next to it")
    parser.add_argument("--split", default="choose", choices=("choose", "test"))
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the head that ships")
    parser.add_argument("--live", type=Path, metavar="MODELS", help="make missing calls with the models of this folder")
    parser.add_argument("--ask", metavar="TEXT", help="perform this task")
    parser.add_argument("--head", type=Path, help="the head that performs it, not the shipped one")
    chosen = parser.parse_args()
    replay = Replay(AnswerCache(chosen.cache))
    tasks = compose(load_parts(repositories(FOLDER / "data", chosen.clones)))
    train, choose, held = (
        [task for task in tasks if task.split == split] for split in ("train", "choose", chosen.split)
    )
    workers = Workers(AnswerCache(chosen.cache), chosen.live)
    intents = next(part for task in train for part in task.parts if part.family == "intents")
    if chosen.ask:
        asyncio.run(ask(chosen.ask, load_head(chosen.head or shipped_head()), workers, intents))
        return
    if chosen.write:
        write_head(chosen.write, train, replay)
        head = load_head(chosen.write)
        right = exact(head.cutter, held)
        done = [
            performed(
                task,
                head.cutter.cut(task.prompt),
                lambda text: NAMES[head.choose([text], range(_COUNT))[0]],
                workers,
                intents,
            )
            for task in held
        ]
        whole = np.array([[one.right, one.seconds] for one in done]).T
        low, high = interval(list(whole[0]), held)
        print(f"{chosen.write}: {sum(right)} of {len(right)} cuts exactly right; with these, {whole[0].mean():.3f} "
              f"[{low:.3f}, {high:.3f}] right, {whole[1].mean():.2f} CPU s a task; {workers.made} calls were made, "
              f"{workers.missing} are missing")  # fmt: skip
        return
    known = [ask for task in train for ask in task.asks]
    pairs = [(part, ask) for task in train for part, ask in zip(task.parts, task.asks, strict=True)]
    table = learned_table(
        [(part, replay.part(part) or {}) for part in {(p.family, p.name): p for p, _ in pairs}.values()], _SECOND
    )
    encoders: dict[str, Encode] = {
        "shipped encoder": lambda texts: np.asarray(shipped_encoder().encode(texts)),
        "TF-IDF": tf_idf(known),
    }
    if chosen.minilm:
        model = load_encoder(chosen.minilm)
        encoders["MiniLM"] = lambda texts: np.vstack(
            [model.encode(texts[at : at + 32]) for at in range(0, len(texts), 32)]
        )
    base: tuple[Array, Array] | None = None
    nearest = family_of(pairs)

    def row(label: str, played: tuple[Array, Array]) -> None:
        low, high = interval(list(played[0] - base[0]), held) if base is not None else (0.0, 0.0)
        print(f"{label:<46} {played[0].mean():.3f} right, {played[1].mean():.2f} CPU s, value {value(played):.3f}; "
              f"right over the table [{low:+.3f}, {high:+.3f}]", flush=True)  # fmt: skip

    for name, encode in encoders.items():
        learn, some, test = (parts_of(those, replay, centered(encode, known)) for those in (train, choose, held))
        if base is None:
            base = tabled(test, table, lambda part, _: part.family)
            row("table, told the family", base)
            row("table, nearest centroid of the shipped encoder", tabled(test, table, lambda _, ask: nearest(ask)))
        for turns in (1, 2):
            fits = [by_regression(learn, turns, ridge) for ridge in _REGRESSION_RIDGES]
            row(f"{name}, regression, turns {turns}", max(fits, key=lambda head: value(head.play(some))).play(test))
            every = [[by_gradient(learn, turns, ridge, seed) for seed in (1, 2, 3)] for ridge in _GRADIENT_RIDGES]
            best = max(every, key=lambda heads: sum(value(head.play(some)) for head in heads))
            for seed, fitted in enumerate(best, 1):
                row(f"{name}, policy gradient, turns {turns}, seed {seed}", fitted.play(test))


if __name__ == "__main__":
    main()
