"""Memory: what it finds again of long conversations, what a recall costs among a million notes, and leaks of labels.

    python benchmarks/memory.py --locomo locomo10.json [--held-out] [--notes 1000000] [--canaries 10000] [--json]

LoCoMo (github.com/dial481/locomo, data/locomo10.json): ten conversations of 370 to 690 turns, 1,534 questions of the
categories 1 to 4 whose evidence names turns. A turn is a note, with who said it, its session and its place; what a
picture shows is part of its text. R@k is the mean share of a question's evidence among the first k notes; a
conversation is a tenant, and all ten share one index. Developed on the first five conversations; `--held-out` looks at
the other five. Intervals are over questions, 95 %, by bootstrap over conversations and questions would be wider.

Recall: notes of twelve words drawn by Zipf's law from 200,000, in sessions of twenty; queries of twelve words of one
note, or of frequent words alone. Leaks: notes of random tenants and labels, each with a canary word of its own; each is
asked for by tasks of another tenant or without one of its labels (to be found: 0), and by one that may (to be found:
all).
"""

import argparse
import json
import random
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np

from common import machine
from shikisha.evals.statistics import mean_interval
from shikisha.learned.memory_index import MemoryIndex, MemoryNote

_TURN = re.compile(r"D:?(\d+):(\d+)")
_SESSION = re.compile(r"session_(\d+)")


def read_locomo(
    file: Path, first: int, last: int
) -> tuple[list[MemoryNote], list[tuple[str, str, frozenset[str], int]]]:
    """Return the turns of some conversations as notes, and (conversation, question, evidence, category)."""
    notes, questions = [], []
    for sample in json.loads(file.read_text())[first:last]:
        name, talk, known = sample["sample_id"], sample["conversation"], set()
        for key in talk:
            if (found := _SESSION.fullmatch(key)) is None:
                continue
            for place, turn in enumerate(talk[key]):
                text = " ".join(filter(None, (turn["text"], turn.get("blip_caption", ""))))
                known.add(turn["dia_id"])
                notes.append(MemoryNote(text, (turn["dia_id"],), name, (), "fact", turn["speaker"], found[1], place))
        for row in sample["qa"]:
            told = {f"D{a}:{b}" for each in row.get("evidence", ()) for a, b in _TURN.findall(each.replace(" ", ""))}
            if row["category"] in (1, 2, 3, 4) and told & known:
                questions.append((name, row["question"], frozenset(told & known), row["category"]))
    return notes, questions


def locomo(file: Path, first: int, last: int) -> dict[str, object]:
    """Return R@10 and R@25 over all questions, and by category."""
    notes, questions = read_locomo(file, first, last)
    found, milliseconds = [], []
    with MemoryIndex() as memory:
        memory.add(notes)
        for name, question, evidence, category in questions:
            begun = process_time()
            told = [each.note.evidence[0] for each in memory.recall(question, 25, tenant=name, labels=())]
            milliseconds.append(1_000 * (process_time() - begun))
            found.append((category, *(len(evidence & set(told[:k])) / len(evidence) for k in (10, 25))))
    table: dict[str, object] = {"questions": len(found), "ms CPU, median": round(float(np.median(milliseconds)), 2)}
    for at, name in ((1, "R@10"), (2, "R@25")):
        values = [row[at] for row in found]
        low, high = mean_interval(values)
        table[name] = [round(float(np.mean(values)), 3), round(low, 3), round(high, 3)]
        table[f"{name} by category"] = {
            kind: round(float(np.mean([row[at] for row in found if row[0] == kind])), 3) for kind in (1, 2, 3, 4)
        }
    return table


def zipf_words(rng: np.random.Generator, count: int, size: int = 200_000) -> list[str]:
    """Return words drawn by Zipf's law."""
    ranks = np.minimum(size, np.floor(np.exp(rng.random(count) * np.log(size)))).astype(int)
    return [f"word{letters(rank)}" for rank in ranks]


def letters(number: int) -> str:
    """Return a number in letters, so that it is one word."""
    return "".join(chr(ord("b") + int(digit)) for digit in str(number))


def recall_cost(count: int, queries: int = 200) -> dict[str, object]:
    """Return the CPU time of recalls among so many notes."""
    rng = np.random.default_rng(0)
    with TemporaryDirectory() as folder, MemoryIndex(Path(folder) / "memory.db") as memory:
        begun = process_time()
        kept = []
        for first in range(0, count, 50_000):
            size = min(50_000, count - first)
            words = zipf_words(rng, 12 * size)
            texts = [" ".join(words[12 * at : 12 * at + 12]) for at in range(size)]
            memory.add(
                MemoryNote(
                    text, (f"run{first + at}",), "", (), session=str((first + at) // 20), place=(first + at) % 20
                )
                for at, text in enumerate(texts)
            )
            kept += texts[:20]
        built = process_time() - begun
        frequent = [f"word{letters(rank)}" for rank in range(1, 40)]
        draws = random.Random(0)
        asked = {
            "the words of a note": [draws.choice(kept) for _ in range(queries)],
            "twelve frequent words": [" ".join(draws.sample(frequent, 12)) for _ in range(queries)],
        }
        table: dict[str, object] = {"notes": len(memory), "s CPU to add them": round(built, 1)}
        table["MB"] = round(sum(each.stat().st_size for each in Path(folder).iterdir()) / 1e6)
        for name, texts in asked.items():
            times, right = [], 0
            for text in texts:
                begun = process_time()
                found = memory.recall(text, tenant="", labels=())
                times.append(1_000 * (process_time() - begun))
                right += any(each.note.text == text for each in found)
            middle, late = np.quantile(times, (0.5, 0.95))
            table[name] = {"ms CPU, median": round(float(middle), 2), "95 %": round(float(late), 2)}
            if "note" in name:
                table["the note itself among the first ten"] = right / len(texts)
        return table


def leaks(count: int) -> dict[str, int]:
    """Return how many canaries were found by tasks that may not read them, and by those that may."""
    rng = random.Random(0)
    tenants, names = [f"tenant{at}" for at in range(7)], ["medical", "legal", "hr"]
    notes, common = [], "the invoice of the harbour was paid twice"
    for at in range(count):
        labels = tuple(sorted(rng.sample(names, rng.randrange(len(names) + 1))))
        canary = f"canary{letters(at)}"
        notes.append(MemoryNote(f"{common} {canary}", (f"r{at}",), tenant=rng.choice(tenants), labels=labels))
    leaked = found = forgotten = 0
    with MemoryIndex() as memory:
        memory.add(notes)
        for note in notes:
            canary = note.text.split()[-1]

            def reads(tenant: str, labels: tuple[str, ...], query: str, wanted: str = note.text) -> bool:
                return any(each.note.text == wanted for each in memory.recall(query, 50, tenant=tenant, labels=labels))

            found += reads(note.tenant, note.labels, canary)
            other = rng.choice([name for name in tenants if name != note.tenant])
            query = rng.choice((canary, note.text, f"{common} OR {canary}", f'"{canary}*" NEAR {canary}'))
            leaked += reads(other, tuple(names), query)
            if note.labels:
                leaked += reads(note.tenant, note.labels[1:], query)
        gone = [f"r{at}" for at in range(0, count, 10)]
        memory.forget(gone)
        for at in range(0, count, 10):
            told = memory.recall(notes[at].text, 50, tenant=notes[at].tenant, labels=names)
            forgotten += any(each.note.text == notes[at].text for each in told)
    return {"canaries": count, "leaked": leaked, "found by those who may": found, "found after erasure": forgotten}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--locomo", type=Path)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--notes", type=int, default=1_000_000)
    parser.add_argument("--canaries", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    table: dict[str, object] = {}
    if arguments.locomo:
        table["LoCoMo, conversations 1 to 5"] = locomo(arguments.locomo, 0, 5)
        if arguments.held_out:
            table["LoCoMo, conversations 6 to 10, held out"] = locomo(arguments.locomo, 5, 10)
    if arguments.notes:
        table["recall"] = recall_cost(arguments.notes)
    if arguments.canaries:
        table["leaks"] = leaks(arguments.canaries)
    if arguments.json:
        print(json.dumps(table, indent=1))
        return
    print(f"Memory ({machine()})")
    for name, row in table.items():
        print(f"  {name}")
        for key, value in row.items() if isinstance(row, dict) else ():
            print(f"    {key:<38} {value}")


if __name__ == "__main__":
    main()
