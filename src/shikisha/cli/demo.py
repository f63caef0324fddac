"""`demo`: a real small model and real tools, conducted over public questions on this machine; no key, no network.

The pool is SmolLM2, a calculator, SQLite, a sandbox for Python and BM25 search over a folder. The conductor is a
hand-written rule: what is shown is what conducting is, and not what learning adds. Invariants: every answer comes from
the worker that is named; the best single worker is called for every question, as the conducted pool is.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import JsonOption
from shikisha.config.facade import Shikisha
from shikisha.core.errors import RunFailed
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.plan import Plan, Step
from shikisha.core.text import one_line
from shikisha.engine.conductor import Conductor, Proposal, Situation

MODEL = "smollm2-135m"
_FOLDER = Path(str(files("shikisha.cli") / "demo_data"))
_WORKERS: Sequence[Mapping[str, object]] = (
    {"name": "SmolLM2", "spec": f"local:{MODEL}", "temperature": 0.0, "max_output_tokens": 128, "timeout": 300},
    {"name": "calculator", "kind": "local", "tool": "calculator"},
    {"name": "python", "kind": "python"},
    {"name": "tables", "kind": "local", "tool": "sql", "folder": str(_FOLDER / "library")},
    {"name": "library", "kind": "local", "tool": "search", "folder": str(_FOLDER)},
)
_NAMES = [str(each["name"]) for each in _WORKERS]
_BOTH = re.compile(r"Answer both\. First: (.+) Second: (.+)", re.DOTALL)
_READ = "Answer the question in a few words, from the passages above."
Tasks = Annotated[int, typer.Option("--tasks", min=1, max=27, help="How many of the 27 questions, evenly taken.")]


@dataclass(frozen=True, slots=True)
class PublicQuestion:
    """A question, and for each of its parts the answers that count."""

    family: str
    prompt: str
    answers: tuple[tuple[str, ...], ...]

    def graded(self, answer: str) -> bool:
        """Whether every part's answer is in the text, as whole words."""
        return all(any(_contains(answer, each) for each in part) for part in self.answers)


@dataclass(slots=True)
class AnswerRow:
    """What one way of answering came to."""

    label: str
    right: dict[str, list[bool]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def count(self) -> int:
        """How many answers were right."""
        return sum(map(sum, self.right.values()))


class DemoConductor:
    """The rule: exact tools for what they read, search before reading, the model for the rest; two parts are joined."""

    name = "demo:rule"

    async def propose(self, situation: Situation) -> Proposal:
        """Propose the plan of the question."""
        both, steps, ends = _BOTH.fullmatch(situation.task.prompt), list[Step](), list[int]()
        workers = {card.name: ordinal for ordinal, card in enumerate(situation.cards)}
        for part in both.groups() if both else [situation.task.prompt]:
            steps += _part_steps(part.strip(), len(steps), workers)
            ends.append(len(steps) - 1)
        if both:
            code = "'; '.join([str(each) for each in results])"
            steps.append(Step(code, workers["python"], tuple(ends)))
        return Proposal(Plan(tuple(steps)), note="what it reads, by a hand-written rule", final=True)


def _part_steps(part: str, before: int, workers: Mapping[str, int]) -> list[Step]:
    """Return the steps of one part; `before` steps stand before them, `workers` are ordinals by name."""
    if re.fullmatch(r"[-\d\s()+*/]+=", part):
        return [Step(part.rstrip("= "), workers["calculator"])]
    if found := re.fullmatch(r"((?:True|False|not|and|or|[()\s])+) is", part):
        return [Step(f"print({found[1]})", workers["python"])]
    if found := re.fullmatch(r"Sort the following words alphabetically: List: (.+)", part):
        return [Step(f"print(' '.join(sorted({found[1].split()!r})))", workers["python"])]
    if found := re.fullmatch(r"What is the capital of ([\w ]+)\?", part):
        query = f"SELECT capital FROM 'states.csv' WHERE state = '{found[1]}'"  # noqa: S608 - letters of a name
        return [Step(query, workers["tables"])]
    if re.match(r"(?:What|Who|When|Why|How many)\b", part):
        search = Step(f"Search library for {part}", workers["library"])
        return [search, Step(f"{part} {_READ}", workers["SmolLM2"], (before,))]
    return [Step(f"{part} Reply with one word: yes or no.", workers["SmolLM2"])]


def demo(tasks: Tasks = 9, json: JsonOption = False) -> ExitCode:
    """Conduct a real model and real tools on public questions.

    Shows what each worker alone has right, and what the conducted pool has. No key and no network is needed.
    """
    every = list(read_questions())
    questions = [every[place * len(every) // tasks] for place in range(tasks)]
    conducted = _conducted(questions, shown=not json)
    alone = [_alone(name, questions) for name in _NAMES]
    best = max(alone, key=lambda row: row.count)
    if json:
        rows = [conducted, *alone]
        output.print_json({"questions": len(questions), "rows": [_row_json(row) for row in rows]})
        return ExitCode.OK
    _print_rows([conducted, *sorted(alone, key=lambda row: -row.count)])
    output.print_report(
        f"\nThe conducted pool has {conducted.count} of {len(questions)} right, the best single worker ({best.label}) "
        f"{best.count}. The rule was written for these families, and the questions are few: this shows how a pool is "
        "conducted, not how good a conductor is.\n"
        'Next: shikisha run "What is the capital of Japan?"   (a key, or Ollama, beats SmolLM2)'
    )
    return ExitCode.OK


def read_questions() -> Iterator[PublicQuestion]:
    """Yield the questions, those of two parts last."""
    data = tomllib.loads((_FOLDER / "questions.toml").read_text(encoding="utf-8"))
    single = [PublicQuestion(each["family"], each["prompt"], (tuple(each["answers"]),)) for each in data["question"]]
    yield from single
    for pair in data["both"]:
        one, two = single[pair["first"]], single[pair["second"]]
        prompt = f"Answer both. First: {one.prompt} Second: {two.prompt}"
        yield PublicQuestion("two parts", prompt, one.answers + two.answers)


def _conducted(questions: Sequence[PublicQuestion], *, shown: bool) -> AnswerRow:
    """Answer all questions by the rule; the last one first, and in full."""
    row = AnswerRow("conducted")
    with Shikisha(_WORKERS, conductor=DemoConductor()) as pool:
        for place, question in enumerate([*questions[-1:], *questions[:-1]]):
            answer, right = _ask(pool, question, row)
            if shown:
                output.print_answer(f"{'✓' if right else '✗'} {one_line(question.prompt, 70)}")
                output.print_answer(f"    {one_line(answer, 90)}")
            if shown and place == 0:
                output.print_report(f"\n{pool.explain()}\n")
    return row


def _alone(worker: str, questions: Sequence[PublicQuestion]) -> AnswerRow:
    row = AnswerRow(worker)
    conductor: str | Conductor = f"fixed:single?worker={worker}"
    with Shikisha(_WORKERS, conductor=conductor) as pool:
        for question in questions:
            _ask(pool, question, row)
    return row


def _ask(pool: Shikisha, question: PublicQuestion, row: AnswerRow) -> tuple[str, bool]:
    """Return the answer and whether it is right, noted in the row."""
    began = monotonic()
    try:
        answer = str(pool.run(question.prompt).answer)
        right = question.graded(answer)
    except RunFailed as failed:
        answer, right = f"no answer: {failed}", False
    row.seconds += monotonic() - began
    row.right.setdefault(question.family, []).append(right)
    return answer, right


def _contains(text: str, answer: str) -> bool:
    plain = " ".join(text.replace(",", "").split())
    return re.search(rf"(?<![\w.-]){re.escape(answer)}(?!\w|\.\d)", plain, re.IGNORECASE) is not None


def _print_rows(rows: Sequence[AnswerRow]) -> None:
    families = list(rows[0].right)
    heads = ["", "right", "seconds", *families]
    lines = [
        [
            row.label,
            str(row.count),
            f"{row.seconds:.1f}",
            *(f"{sum(row.right[each])}/{len(row.right[each])}" for each in families),
        ]
        for row in rows
    ]
    output.print_answer("")
    output.print_table(heads, lines, right=set(heads[1:]))


def _row_json(row: AnswerRow) -> Mapping[str, object]:
    families = {name: [sum(right), len(right)] for name, right in row.right.items()}
    return {"worker": row.label, "right": row.count, "seconds": row.seconds, "families": families}
