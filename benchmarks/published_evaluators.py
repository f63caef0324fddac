"""Our reading of answers beside the evaluators of the published sets, over recorded answers of real models.

    python benchmarks/published_evaluators.py [--examples N] [--json]

Each evaluator is written anew here from what its source does; that they give the recorded letters and scores again is
counted too. MMLU-Pro (TIGER-AI-Lab/MMLU-Pro, `compute_accuracy.py`): the first "answer is (X)", else the last
"Answer: X", else the last capital letter anywhere. ZeroEval (`gsm_eval.py`, `math_eval.py`, `crux_eval.py`): the
`answer` of the first JSON object, whose first number must be the first number of the right answer; for CRUX the same
text. EleutherAI's harness on GSM8K: the last number anywhere ("flexible").

A difference has a kind and somebody who is right. "Explained" are all but those of the kind "other". The files are
described in `../shared/recorded/README.md`. Answers whose hash is odd are for looking at (`--examples`); the figures
are those of the even ones.
"""

import argparse
import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from common import Figure, report
from shikisha.evals.graders import GradeMark, Grader, GraderTools
from shikisha.evals.graders.grader_registry import build_grader
from shikisha.outcomes.log_reader import open_log

FOLDER = Path(__file__).parent.parent.parent / "shared" / "recorded"
_LETTERS = re.compile(r"\b[A-J]\b")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a published evaluator read: the answer, whether it is right, and by which of its rules."""

    answer: str | None
    right: bool
    rule: str


def mmlu_pro(text: str, gold: str) -> Reading:
    """Read a letter as MMLU-Pro does."""
    first = re.search(r"answer is \(?([A-J])\)?", text)
    if first:
        return Reading(first[1], first[1] == gold, "word" if text[first.end() :][:1].islower() else "first")
    named = None
    for found in re.finditer(r"[aA]nswer:\s*([A-J])", text):  # the last one of the first line that has one
        if named is None or "\n" not in text[named.start() : found.start()]:
            named = found
    if named:
        return Reading(named[1], named[1] == gold, "word" if text[named.end() :][:1].islower() else "named")
    letters = _LETTERS.findall(text)
    return Reading(letters[-1], letters[-1] == gold, "any letter") if letters else Reading(None, False, "none")


def first_json(text: str) -> Mapping[str, object] | None:
    """Return the first complete object in braces, if it is JSON once line ends are removed."""
    start = text.find("{")
    level = 0
    for found in re.finditer(r"[{}]", text[max(start, 0) :]):
        level += 1 if found[0] == "{" else -1
        if level == 0:
            try:
                read = json.loads(text[start : start + found.end()].replace("\n", ""))
            except ValueError:
                return None
            return read if isinstance(read, dict) else None
    return None


def zeroeval_answer(text: str) -> tuple[object, str]:
    """Return the value of `answer` as ZeroEval finds it, and by which rule."""
    whole = first_json(text)
    if whole is not None and "answer" in whole:
        return whole["answer"], "json"
    for pattern in (r'"answer"\s*:\s*"([^"]*?)"', r'"answer"\s*:\s*([^,\s]*)', r"answer\s*:\s*([^,\s]*)"):
        found = re.search(pattern, text)
        if found:
            return found[1], "broken json" if '"' in pattern else "after a colon"
    return None, "none"


def number_in(said: str) -> float | None:
    """Return the first number as ZeroEval reads it."""
    bare = said.replace("$", "").strip().replace(",", "").replace("#", "")
    parts = re.fullmatch(r"\s*(-?[\d.]+)\s*/\s*([\d.]+)\s*", bare)
    if parts and float(parts[2]):
        return float(parts[1]) / float(parts[2])
    found = _NUMBER.search(bare)
    return float(found[0]) if found else None


def zeroeval_number(text: str, gold: str) -> Reading:
    """Read a number as ZeroEval does."""
    answer, rule = zeroeval_answer(text)
    said = number_in(str(answer)) if answer is not None else None
    return Reading(None if answer is None else str(answer), said is not None and said == number_in(gold), rule)


def zeroeval_text(text: str, gold: str) -> Reading:
    """Compare a text as ZeroEval does for CRUX: letter for letter, in quotes unless it looks like another value."""
    answer, rule = zeroeval_answer(text)
    plain = isinstance(answer, str) and not re.search(r"[({\[\]})]", answer)
    if plain and not str(answer).replace(".", "", 1).isdigit() and str(answer).lower() not in ("true", "false"):
        answer = f"'{answer}'"
    return Reading(None if answer is None else str(answer), answer is not None and str(answer) == gold, rule)


def harness_flexible(text: str, gold: str) -> Reading:
    """Read the last number as the harness does."""
    found = [one[0] for one in re.finditer(r"-?[$0-9.,]{2,}|-?[0-9]+", text)]
    last = re.sub(r"[,$]|\.$", "", found[-1]) if found else None
    return Reading(last, last is not None and last == re.sub(r"[,$# ]|\.$", "", gold), "last number")


EVALUATORS = {
    ("mmlu-pro", "choice"): {"MMLU-Pro": mmlu_pro},
    ("zeroeval", "number"): {"ZeroEval": zeroeval_number, "harness, last number": harness_flexible},
    ("zeroeval", "text"): {"ZeroEval": zeroeval_text},
}


def difference(kind: str, text: str, theirs: Reading, found: str | None, right: bool) -> str:
    """Return the kind of a difference, with who is right."""
    if kind == "choice":
        return choice_difference(theirs, found)
    said = theirs.answer or ""
    if kind == "text":
        if theirs.right and theirs.rule == "json":
            return "other"
        if theirs.rule != "json":
            return "no whole JSON object: theirs stops at a quote or finds nothing (ours is right)"
        return "quotes: theirs adds a second pair, or compares their kind (ours is right)" if right else "other"
    if theirs.rule == "none":
        return "no JSON: theirs reads no other form (ours is right)"
    if theirs.rule == "last number":
        return "theirs takes the last number of the whole text, ours the stated one (ours is right)"
    if theirs.right and re.search(r"[^\d\s.,$%-]|\d[^\d.]+\d", said):
        return "theirs takes the first number of a list or an expression (ours is right)"
    if text.count('"answer"') > 1:
        return "several JSON answers: theirs takes the first, ours the last (a matter of rule)"
    if right and re.search(r"\d\D+\d", said):
        return "theirs takes the first number of an equation or a sentence (ours is right)"
    return "other"


def choice_difference(theirs: Reading, found: str | None) -> str:
    """Return the kind of a difference between letters."""
    if theirs.rule == "any letter" and found is None:
        return "theirs guesses: the last capital letter of a text that states no choice (ours is right)"
    if theirs.rule == "word":
        return "theirs takes a word's first letter: 'answer is Cannot be …' (ours is right)"
    if found is None:
        return "two options are stated, or one with a denial: theirs takes the first (ours is right)"
    if theirs.rule in ("first", "named"):
        return "several answers are stated: theirs takes the first, ours the last (a matter of rule)"
    return "theirs guesses, ours reads another form of stating one (either may be right)"


async def compare(name: str, kind: str, examples: int) -> list[Figure]:
    """Return the agreement with each evaluator of a set, and the differences by kind."""
    log = open_log(FOLDER / name)
    counts: Counter[tuple[str, str]] = Counter()
    shown: Counter[tuple[str, str]] = Counter()
    graders: dict[str, Grader] = {}
    for worker in log.workers:
        responses = log.responses(worker)
        for outcome in log.outcomes_of(worker):
            text, gold = responses.get(outcome.task_id), log.gold(outcome.task_id)
            looked_at = sha256(f"{outcome.task_id}|{worker}".encode()).digest()[0] % 2 == 1
            if gold.kind != kind or gold.answer is None or text is None or looked_at != (examples > 0):
                continue
            if outcome.task_id not in graders:
                settings: dict[str, object] = {"answer": gold.answer} | (
                    {"options": 10, "rule": name} if kind == "choice" else {}
                )
                graders[outcome.task_id] = build_grader(kind, settings, GraderTools(), outcome.task_id)
            grade = await graders[outcome.task_id].grade(text)
            right = grade.mark is GradeMark.RIGHT
            for evaluator, read in EVALUATORS[name, kind].items():
                theirs = read(text, gold.answer)
                same = theirs.right == right
                key = evaluator, "" if same else difference(kind, text, theirs, grade.found, right)
                counts[key] += 1
                counts[evaluator, "recorded"] += theirs.right == ((outcome.score or 0.0) >= 1)
                shown[key] += 1
                if not same and shown[key] <= examples:
                    print(key[1], outcome.task_id, worker, f"{gold.answer=} {theirs} {grade.found=}", repr(text[-200:]))
    return [figure for evaluator in EVALUATORS[name, kind] for figure in figures_of(name, kind, evaluator, counts)]


def figures_of(name: str, kind: str, evaluator: str, counts: Counter[tuple[str, str]]) -> Iterator[Figure]:
    """Yield the figures of one evaluator."""
    kinds = {what: many for (one, what), many in counts.items() if one == evaluator and what != "recorded"}
    total, other = sum(kinds.values()), kinds.get("other", 0)
    title = f"{name} {kind}, {evaluator}"
    yield Figure(f"{title}: the same grade, of {total:,}", 100 * kinds[""] / total, "%")
    yield Figure(f"{title}: the same grade or explained", 100 * (total - other) / total, "%", 99.8, at_least=True)
    yield Figure(f"{title}: theirs gives the recorded score", 100 * counts[evaluator, "recorded"] / total, "%")
    for what, many in sorted(kinds.items()):
        if what:
            yield Figure(f"  {what}", many, "")


async def measured(examples: int) -> list[Figure]:
    """Compare all sets."""
    return [figure for name, kind in EVALUATORS for figure in await compare(name, kind, examples)]


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=0, help="Of each kind, of the answers that no figure counts.")
    given, _ = parser.parse_known_args()
    report("Published evaluators beside ours", asyncio.run(measured(given.examples)))


if __name__ == "__main__":
    main()
