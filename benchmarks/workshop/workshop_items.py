"""Public items of the world "workshop": parts of nine families, each with its exact grader.

Nothing of the data lies in this repository: `repositories` clones what the table names, at the commit that it names, or
takes clones that are there (`--clones FOLDER`, as owner+name). Licenses: docs/results/workshop.md.
"""

import csv
import json
import random
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from gzip import decompress
from hashlib import sha256
from pathlib import Path

SOURCES: Mapping[str, tuple[str, str]] = {  # repository: its commit, its license
    "suzgunmirac/BIG-Bench-Hard": ("9ee07bd481feebf959a6b59d61ea57bdcf30964d", "MIT"),
    "arkilpatel/SVAMP": ("689d7ccac74b9983a2ac7cc3b264f441b99e7c53", "MIT"),
    "clinc/oos-eval": ("828f8093932c8fe6ca7936c3d2e52903b1c523de", "CC BY 3.0"),
    "openai/human-eval": ("6d43fb980f9fee3c892a914eda09951f772ad10d", "MIT"),
    "ppasupat/WikiTableQuestions": ("7d455a5a707b96341ef72aff9428749d443d8aa9", "CC BY-SA 4.0"),
    "mcobzarenco/mctest": ("3e6896c23d1e4dcac8cfa6d9f5c993fb05be3d1b", "MCTest license: research only, never shipped"),
}
FAMILIES = ("intents", "arithmetic", "booleans", "sorting", "word problems", "dates", "tables", "stories", "programs")
_INTENTS = 10  # of CLINC's 150
_MOST_CELLS = 160
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a task: what is asked, what grades an answer, and what tools need besides."""

    family: str
    name: str
    text: str
    kind: str  # number, boolean, words, choice, value or code
    answers: tuple[str, ...]
    more: Mapping[str, object] = field(default_factory=dict, compare=False)


def repositories(folder: Path, clones: Path | None) -> Callable[[str, str], bytes]:
    """Return what reads a file of a source, cloned into the folder where no clone is given."""

    def read(name: str, path: str) -> bytes:
        commit = SOURCES[name][0]
        place = clones / name.replace("/", "+") / "repo" if clones else folder / name.replace("/", "+")
        if clones is None and not place.exists():
            command = ["git", "clone", "--quiet", f"https://github.com/{name}", str(place)]
            subprocess.run(command, check=True)  # noqa: S603
        shown = ["git", "-C", str(place), "show", f"{commit}:{path}"]
        return subprocess.run(shown, check=True, capture_output=True).stdout  # noqa: S603

    return read


def load_parts(read: Callable[[str, str], bytes], seed: int = 1) -> dict[str, list[Part]]:
    """Return the parts of each family, in an order drawn from the seed."""
    bench = "suzgunmirac/BIG-Bench-Hard"

    def hard(name: str) -> list[Mapping[str, str]]:
        found: list[Mapping[str, str]] = json.loads(read(bench, f"bbh/{name}.json"))["examples"]
        return found

    parts = {
        "intents": list(_intents(json.loads(read("clinc/oos-eval", "data/data_full.json")))),
        "arithmetic": [
            Part("arithmetic", f"a{i}", each["input"].removesuffix("=").strip(), "number", (each["target"],))
            for i, each in enumerate(hard("multistep_arithmetic_two"))
        ],
        "booleans": [
            Part("booleans", f"b{i}", each["input"].removesuffix(" is"), "boolean", (each["target"],))
            for i, each in enumerate(hard("boolean_expressions"))
        ],
        "sorting": [
            Part("sorting", f"s{i}", each["input"].partition("List: ")[2], "words", (each["target"],))
            for i, each in enumerate(hard("word_sorting"))
            if len(each["target"].split()) <= 10
        ],
        "word problems": [
            Part(
                "word problems",
                each["ID"],
                f"{each['Body'].rstrip('.')}. {each['Question']}",
                "number",
                (f"{each['Answer']:g}",),
            )
            for each in json.loads(read("arkilpatel/SVAMP", "SVAMP.json"))
        ],
        "dates": [
            Part(
                "dates",
                f"d{i}",
                each["input"].partition("\nOptions:")[0],
                "value",
                _date_answer(each["input"], each["target"]),
            )
            for i, each in enumerate(hard("date_understanding"))
        ],
        "tables": list(_tables(read)),
        "stories": list(_stories(read)),
        "programs": list(_programs(read)),
    }
    for name, found in parts.items():
        random.Random(f"{seed} {name}").shuffle(found)
    return parts


def _intents(data: Mapping[str, Sequence[Sequence[str]]]) -> Iterator[Part]:
    names = sorted({label for _, label in data["train"]}, key=lambda name: sha256(name.encode()).digest())[:_INTENTS]
    examples = [(text, label) for text, label in data["train"] if label in names]
    for i, (text, label) in enumerate(data["test"]):
        if label in names:
            yield Part("intents", f"i{i}", text, "choice", (label,), {"labels": names, "examples": examples})


def _date_answer(prompt: str, target: str) -> tuple[str, ...]:
    found = re.search(rf"{re.escape(target)} (\S+)", prompt)
    return (found[1],) if found else ()


def _tables(read: Callable[[str, str], bytes]) -> Iterator[Part]:
    source = "ppasupat/WikiTableQuestions"
    rows = read(source, "data/pristine-unseen-tables.tsv").decode().splitlines()[1:]
    rows.sort(key=lambda row: sha256(row.encode()).digest())
    count = 0
    for row in rows:
        name, question, table, answer = row.split("\t")
        if count == 400 or "|" in answer:
            if count == 400:
                return
            continue
        text = read(source, table).decode()
        cells = list(csv.reader(text.splitlines(), escapechar="\\", doublequote=False))
        if not cells or sum(map(len, cells)) > _MOST_CELLS or len({len(line) for line in cells}) != 1:
            continue
        count += 1
        plain = [[" ".join(cell.split()) for cell in line] for line in cells]
        yield Part("tables", name, question, "value", (answer,), {"table": plain})


def _stories(read: Callable[[str, str], bytes]) -> Iterator[Part]:
    for edition in ("mc500.train", "mc500.dev"):
        rows = read("mcobzarenco/mctest", f"data/MCTest/{edition}.tsv").decode().splitlines()
        keys = read("mcobzarenco/mctest", f"data/MCTest/{edition}.ans").decode().splitlines()
        for row, key in zip(rows, keys, strict=True):
            name, _, story, *asked = row.split("\t")
            right = key.split("\t")
            for number in range(4):
                question, *options = asked[5 * number : 5 * number + 5]
                answer = options["ABCD".index(right[number])]
                text = question.partition(": ")[2]
                more = {"story": story.replace("\\newline", " "), "options": options}
                yield Part("stories", f"{name}.{number}", text, "choice", (answer,), more)


def _programs(read: Callable[[str, str], bytes]) -> Iterator[Part]:
    text = decompress(read("openai/human-eval", "data/HumanEval.jsonl.gz")).decode()
    for line in text.splitlines():
        row = json.loads(line)
        if ">>>" in row["prompt"]:  # visible examples are what a check can run
            more = {"test": row["test"], "entry": row["entry_point"], "stub": row["prompt"]}
            yield Part("programs", row["task_id"], row["prompt"], "code", (), more)


def grade(part: Part, answer: str) -> bool:
    """Whether an answer to a part is right; `code` is graded by running it, elsewhere."""
    found = re.split(r"answer is:?", answer, flags=re.IGNORECASE)[-1].strip()
    found = re.sub(r"[*`$]", "", found)
    match part.kind:
        case "number":
            numbers = _NUMBER.findall(found)
            return bool(numbers) and abs(float(numbers[-1].replace(",", "")) - float(part.answers[0])) < 1e-6
        case "boolean":
            words = re.findall(r"\b(true|false)\b", found, re.IGNORECASE)
            return bool(words) and words[-1].lower() == part.answers[0].lower()
        case "words":
            return _plain(part.answers[0]) in _plain(found)
        case "choice":
            options = [str(each) for each in _sequence(part.more.get("options") or part.more["labels"])]
            named = [each for each in options if _has(found, each)]
            longest = [each for each in named if not any(each != other and _has(other, each) for other in named)]
            return longest == [part.answers[0]]
        case "value":
            return any(_has(found, each) for each in part.answers) and len(found) < 200
    raise ValueError(part.kind)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower().replace("_", " ")))


def _has(text: str, answer: str) -> bool:
    return f" {_plain(answer)} " in f" {_plain(text)} "


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, Sequence) else ()
