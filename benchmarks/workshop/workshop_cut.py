"""A learned cutter of unmarked tasks, and what it brings when workers get its parts instead of the true ones.

    python benchmarks/workshop/workshop_cut.py [--clones FOLDER] [--split choose|test] [--live MODELS] [--unseen-joins]
        [--again FILE --minutes N]

A conditional random field labels each token: around the parts, first of a part, or inside one. A second model puts
the parts into the order in which answers are wanted. Both read words and punctuation near a token. They learn from true
cuts of those of the 600 tasks whose parts somebody got right in replay; no cut is proposed first. `read_part` turns a
part's words into what tools take: hand-written, it knows how a table, options or an expression look. A table after the
nearest centroid of the shipped encoder chooses the worker. Parts that read as the true ones are replayed from the
cache. Calls that are missing are made with `--live`, else counted. With `--again` calls are made anew, into another
file, and their tasks are compared with replay. It goes on where it stopped.
"""

import argparse
import re
import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic

import numpy as np
import torch
from workshop_controls import Outcome, Replay, interval, learned_table
from workshop_fill import FOLDER, AnswerCache, LocalWorker
from workshop_items import Part, load_parts, repositories
from workshop_tasks import HELD_FAMILIES, WorkshopTask, compose
from workshop_treatments import right_part, tool_answer, treatments_of

from shikisha.retrieval.text_encoder import shipped_encoder
from shikisha_train.head.part_cutter import (
    AROUND,
    BUCKETS,
    FIRST,
    INSIDE,
    NEVER,
    PLACES,
    Cutter,
    Span,
    order_of,
    place_features,
    token_features,
    tokens,
)

_DROPPED, _EPOCHS, _RATE, _RIDGE, _BATCH = 0.6, 10, 0.03, 1e-4, 24
Example = tuple[WorkshopTask, "np.ndarray", "np.ndarray"]  # with hashed features and labels of its tokens


class Field(torch.nn.Module):
    """The scores of labels, and of a label after another."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = torch.nn.EmbeddingBag(BUCKETS, 3, mode="sum")
        torch.nn.init.zeros_(self.bags.weight)
        self.moves = torch.nn.Parameter(torch.zeros(3, 3))

    def forward(self, batch: Sequence[Example]) -> torch.Tensor:
        """Return the loss of true labels, a mean over texts. Features are dropped, so that no one of them decides."""
        hashed = torch.from_numpy(np.concatenate([each[1] for each in batch]))
        kept = (torch.rand(hashed.shape) > _DROPPED).float() / (1 - _DROPPED)
        lengths = [len(each[2]) for each in batch]
        pad = torch.nn.utils.rnn.pad_sequence
        scores = pad(list(torch.split(self.bags(hashed, per_sample_weights=kept), lengths)), batch_first=True)
        labels = pad([torch.from_numpy(each[2]) for each in batch], batch_first=True)
        never = torch.zeros(3, 3)
        never[AROUND, INSIDE] = NEVER
        moves, sizes = self.moves + never, torch.tensor(lengths)
        every = scores[:, 0] + torch.tensor([0.0, 0.0, NEVER])
        true = scores[:, 0].gather(1, labels[:, :1])[:, 0]
        for at in range(1, scores.shape[1]):
            here = at < sizes
            step = torch.logsumexp(every[:, :, None] + moves[None], 1) + scores[:, at]
            every = torch.where(here[:, None], step, every)
            own = moves[labels[:, at - 1], labels[:, at]] + scores[:, at].gather(1, labels[:, at : at + 1])[:, 0]
            true = true + torch.where(here, own, 0.0)
        ridge = _RIDGE * self.bags.weight[hashed].pow(2).sum() / len(batch)
        return (torch.logsumexp(every, 1) - true).mean() + ridge


def true_spans(task: WorkshopTask) -> list[Span]:
    """Return where the parts stand, in the order in which answers are wanted."""
    begins = [task.prompt.index(ask) for ask in task.asks]
    return [(begin, begin + len(ask)) for begin, ask in zip(begins, task.asks, strict=True)]


def fit_cutter(tasks: Sequence[WorkshopTask], seed: int = 1) -> Cutter:
    """Return the cutter that these tasks' true cuts teach."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    examples: list[Example] = []
    for task in tasks:
        labels = np.zeros(len(tokens(task.prompt)), dtype=np.int64)
        for begin, end in true_spans(task):
            own = [at for at, token in enumerate(tokens(task.prompt)) if begin <= token[0] < end]
            labels[own] = [FIRST] + [INSIDE] * (len(own) - 1)
        examples.append((task, token_features(task.prompt), labels))
    examples.sort(key=lambda each: len(each[2]))
    batches = [examples[at : at + _BATCH] for at in range(0, len(examples), _BATCH)]
    field, rng = Field(), np.random.default_rng(seed)
    optimizer = torch.optim.Adam(field.parameters())
    for epoch in range(_EPOCHS):
        for group in optimizer.param_groups:
            group["lr"] = _RATE * (1 - epoch / _EPOCHS)
        for at in rng.permutation(len(batches)):
            optimizer.zero_grad()
            field(batches[at]).backward()
            optimizer.step()
    moves = field.moves.detach().numpy().copy()
    moves[AROUND, INSIDE] = NEVER
    return Cutter(field.bags.weight.detach().numpy(), moves, _fit_places(tasks, rng))


def _fit_places(tasks: Sequence[WorkshopTask], rng: "np.random.Generator") -> "np.ndarray":
    """Return weights of places by an averaged perceptron."""
    weights, sums, steps = np.zeros((PLACES, 3)), np.zeros((PLACES, 3)), 1
    joined = [task for task in tasks if len(task.parts) > 1]
    for _ in range(10):
        for at in rng.permutation(len(joined)):
            spans = true_spans(joined[at])
            ranks = sorted(range(len(spans)), key=lambda part: spans[part][0])
            guess = order_of(weights, joined[at].prompt, sorted(spans))
            for row, rank, other in zip(place_features(joined[at].prompt, sorted(spans)), ranks, guess, strict=True):
                if rank != other:
                    for place, sign in ((rank, 1), (other, -1)):
                        weights[row, place] += sign
                        sums[row, place] += sign * steps
            steps += 1
    return np.asarray(weights - sums / steps)


def read_part(text: str, intents: Part) -> Part:
    """Return what a part's words ask, as tools and wordings take it; `intents` has the labels and examples."""
    lines = text.split("\n")
    rows = [line.split(" | ") for line in lines if " | " in line]
    if block := re.search(r"```python\n(.*?)```", text, re.DOTALL):
        entries = re.findall(r"^def (\w+)", block[1], re.MULTILINE)
        return Part("programs", "", block[1], "code", (), {"stub": block[1], "entry": entries[-1] if entries else ""})
    if len(rows) > 1:
        last = max(at for at, line in enumerate(lines) if " | " in line)
        return Part("tables", "", "\n".join(lines[last + 1 :]).strip(), "value", (), {"table": rows})
    if options := re.fullmatch(r"(.*[.!?\"'”])\s([^.!?]+\?) Is it (.+ / .+)\?", text, re.DOTALL):
        more = {"story": options[1], "options": options[3].split(" / ")}
        return Part("stories", "", options[2], "choice", (), more)
    quote, labels = re.search(r'"(.*)"', text), intents.more["labels"]
    if quote and isinstance(labels, Sequence) and all(str(label) in text for label in labels):
        return Part("intents", "", quote[1], "choice", (), intents.more)
    sums = max(re.findall(r"[-(\d][-\d\s()+*]{5,}[\d)]", text), key=len, default="")
    if re.search(r"\d\s*[-+*]", sums):
        return Part("arithmetic", "", sums, "number", ())
    values = max(re.findall(r"(?:\b(?:True|False|not|and|or)\b|[()\s])+", text), key=len, default="").strip()
    if len(re.findall(r"True|False", values)) > 1:
        return Part("booleans", "", values, "boolean", ())
    if "lphabetical" in text and ":" in text:
        return Part("sorting", "", text.partition(":")[2].strip().rstrip(".?"), "words", ())
    return Part("word problems", "", text, "number", ())


class Workers:
    """Answers of the workers to parts as they were read: from the cache, else by the models where they are given."""

    def __init__(self, cache: AnswerCache, models: Path | None) -> None:
        self._cache, self.models = cache, models
        self._loaded: dict[str, LocalWorker] = {}
        self.missing = self.made = 0

    def answer(self, name: str, part: Part) -> tuple[str, float]:
        """Return the answer of a treatment and its CPU seconds; a fault is an empty answer that costs nothing."""
        if name == "tool":
            try:
                return tool_answer(part) or "", 0.0
            except (SyntaxError, ValueError):
                return "", 0.0
        for each in treatments_of(part.family):
            if each.name == name:
                break
        else:
            return "", 0.0
        call = each.call(part)
        kept = self._cache.get(call)
        if kept is None and self.models is not None:
            if call.worker not in self._loaded:
                self._loaded[call.worker] = LocalWorker(call.worker, self.models)
            answer, seconds, count, finish = self._loaded[call.worker].ask(call)
            self._cache.put(call, answer, seconds, count, finish)
            self.made += 1
            kept = answer, seconds
        if kept is None:
            self.missing += 1
            return "", 0.0
        return each.finish(part, kept[0]), kept[1]


def family_of(parts: Sequence[tuple[Part, str]]) -> Callable[[str], str]:
    """Return what names a text's family: the nearest centroid of the shipped encoder over these parts' words."""
    families = sorted({part.family for part, _ in parts})
    vectors = np.asarray(shipped_encoder().encode([ask for _, ask in parts]))
    middle = vectors.mean(0)
    own = np.array([families.index(part.family) for part, _ in parts])
    centers = np.stack([(vectors[own == at] - middle).mean(0) for at in range(len(families))])
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    return lambda text: families[int(((np.asarray(shipped_encoder().encode([text]))[0] - middle) @ centers.T).argmax())]


def performed(
    task: WorkshopTask, parts: Sequence[str], choose: Callable[[str], str], workers: Workers, intents: Part
) -> Outcome:
    """Return the outcome of a task that is cut into these parts. With another number of parts it is wrong."""
    answers = [workers.answer(choose(text), read_part(text, intents)) for text in parts]
    right = len(parts) == len(task.parts) and all(
        right_part(part, answer) for part, (answer, _) in zip(task.parts, answers, strict=True)
    )
    return Outcome("", right, sum(seconds for _, seconds in answers))


def compare_again(
    pairs: Sequence[tuple[WorkshopTask, Outcome]],
    perform: Callable[[WorkshopTask, Workers], Outcome],
    files: tuple[Path, Path],
    models: Path,
    minutes: float,
) -> None:
    """Make the calls of these tasks anew, in order, until the time is over; print how they differ from replay."""
    again, until = Workers(AnswerCache(files[1]), models), monotonic() + 60 * minutes
    done: list[tuple[WorkshopTask, Outcome, Outcome]] = []
    for task, kept in pairs:
        if monotonic() > until:
            again.models = None
        outcome = perform(task, again)
        if again.missing:
            break
        done.append((task, kept, outcome))
    if len(done) < 2:
        sys.exit(f"{len(done)} tasks were done in {minutes:g} minutes: too few to compare")
    gains = [float(live.right) - float(kept.right) for _, kept, live in done]
    error = float(np.std(gains, ddof=1)) / len(gains) ** 0.5
    low, high = interval(gains, [task for task, _, _ in done])
    sides = [kept for _, kept, _ in done], [live for _, _, live in done]
    means = [sum(each.right for each in side) / len(done) for side in sides]
    seconds = [sum(each.seconds for each in side) / len(done) for side in sides]
    with_call = sum(kept.seconds > 0 for _, kept, _ in done)
    print(f"{len(done)} tasks again, {with_call} with a model's call; {gains.count(0)} the same verdict")
    print(
        f"right {means[0]:.3f} in replay, {means[1]:.3f} live: {sum(gains) / len(gains):+.4f}, se {error:.4f},", end=" "
    )
    print(f"over parts [{low:+.3f}, {high:+.3f}]; {seconds[0]:.2f} and {seconds[1]:.2f} CPU s a task")
    database = sqlite3.connect(files[1])
    database.execute("ATTACH ? AS kept", [str(files[0])])
    both = "SELECT count(*), sum(a.answer = b.answer) FROM answers a JOIN kept.answers b USING (key)"
    print("calls made again {}, the same answer to the letter {}".format(*database.execute(both).fetchone()))


def join_of(task: WorkshopTask) -> str:
    """Return how a task is joined: its words around the parts."""
    text = task.prompt
    for at, ask in enumerate(task.asks):
        text = text.replace(ask, f"{{{at}}}", 1)
    return text


def exact(cutter: Cutter, tasks: Sequence[WorkshopTask]) -> list[bool]:
    """Return for each task whether its parts are exactly the true ones, in the right order."""
    return [cutter.cut(task.prompt) == [ask.strip() for ask in task.asks] for task in tasks]


def _shares(right: Sequence[bool], tasks: Sequence[WorkshopTask], learned: Sequence[WorkshopTask]) -> None:
    seen = {frozenset(task.families) for task in learned}
    kinds: Mapping[str, Callable[[WorkshopTask], bool]] = {
        "all": lambda _: True,
        "one part": lambda task: len(task.parts) == 1,
        "two parts": lambda task: len(task.parts) == 2,
        "three parts": lambda task: len(task.parts) == 3,
        "an unseen family": lambda task: bool(task.families & set(HELD_FAMILIES)),
        "seen families, unseen together": lambda task: (
            not task.families & set(HELD_FAMILIES) and task.families not in seen
        ),
    }
    for name, kind in kinds.items():
        row = [one for one, task in zip(right, tasks, strict=True) if kind(task)]
        if row:
            print(f"exactly right cuts, {name}: {sum(row)} of {len(row)} ({sum(row) / len(row):.3f})")


def main() -> None:
    """Print how often cuts are right, and what comes of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--cache", type=Path, default=FOLDER / "answers.db")
    parser.add_argument("--split", default="choose", choices=("choose", "test"))
    parser.add_argument("--live", type=Path, metavar="MODELS", help="make missing calls with the models of this folder")
    parser.add_argument("--unseen-joins", action="store_true", help="learn without a third of the joins, and cut these")
    parser.add_argument("--again", type=Path, metavar="FILE", help="with --live: make the calls anew, and compare")
    parser.add_argument("--minutes", type=float, default=15.0, help="of --again")
    chosen = parser.parse_args()
    replay = Replay(AnswerCache(chosen.cache))
    tasks = compose(load_parts(repositories(FOLDER / "data", chosen.clones)))
    learned = [
        task for task in tasks if task.split == "train" and all(somebody_right(replay, part) for part in task.parts)
    ]
    held = [task for task in tasks if task.split == chosen.split]
    print(f"cuts of {len(learned)} of 600 tasks are learned from")
    if chosen.unseen_joins:
        joins = sorted({join_of(task) for task in learned})
        for third in range(3):
            few = set(joins[third::3])
            cutter = fit_cutter([task for task in learned if join_of(task) not in few])
            right = exact(cutter, [task for task in held if join_of(task) in few])
            print(f"joins never seen, third {third + 1}: {sum(right)} of {len(right)} exactly right")
        return
    cutter = fit_cutter(learned)
    _shares(exact(cutter, held), held, learned)
    known = {(part.family, part.name): part for task in tasks if task.split == "train" for part in task.parts}
    table = learned_table([(part, replay.part(part) or {}) for part in known.values()], 0.02)
    asks = [
        (part, ask) for task in tasks if task.split == "train" for part, ask in zip(task.parts, task.asks, strict=True)
    ]
    family, intents = family_of(asks), next(part for part in known.values() if part.family == "intents")
    lock = sqlite3.connect(chosen.cache.with_suffix(".lock"), timeout=0.1)
    if chosen.live:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            sys.exit(f"{chosen.cache}: a filler works on it")
    workers = Workers(AnswerCache(chosen.cache), chosen.live)
    ways: dict[str, Callable[[WorkshopTask], Sequence[str]]] = {
        "true cut": lambda task: task.asks,
        "learned cut": lambda task: cutter.cut(task.prompt),
    }
    rows: dict[str, list[Outcome]] = {}
    for name, way in ways.items():
        before = workers.missing, workers.made
        rows[name] = [performed(task, way(task), lambda text: table[family(text)], workers, intents) for task in held]
        print(
            f"{name}: {workers.missing - before[0]} calls are missing, {workers.made - before[1]} were made", flush=True
        )
    if agents := [(at, whole) for at, task in enumerate(held) if (whole := replay.whole(task)) is not None]:
        rows |= {name: [whole[name] for _, whole in agents] for name in agents[0][1]}
    for name, row in rows.items():
        on = held if len(row) == len(held) else [held[at] for at, _ in agents]
        low, high = interval([float(each.right) for each in row], on)
        mean, seconds = (
            sum(values) / len(row) for values in zip(*((each.right, each.seconds) for each in row), strict=True)
        )
        print(f"{name:<20} {mean:.3f} [{low:.3f}, {high:.3f}] right, {seconds:5.2f} CPU s a task, {len(row)} tasks")
    for name in ("agent", "agent with Python") if agents else ():
        gains = [float(rows["learned cut"][at].right) - float(whole[name].right) for at, whole in agents]
        low, high = interval(gains, [held[at] for at, _ in agents])
        print(f"learned cut over {name}: {sum(gains) / len(gains):+.3f} [{low:+.3f}, {high:+.3f}], {len(gains)} tasks")
    if chosen.again and chosen.live:
        compare_again(
            list(zip(held, rows["learned cut"], strict=True)),
            lambda task, own: performed(
                task, ways["learned cut"](task), lambda text: table[family(text)], own, intents
            ),
            (chosen.cache, chosen.again),
            chosen.live,
            chosen.minutes,
        )


def somebody_right(replay: Replay, part: Part) -> bool:
    """Whether any treatment of a part is right in replay."""
    return any(each.right for each in (replay.part(part) or {}).values())


if __name__ == "__main__":
    main()
