"""Role teams: corrupted hand-overs, hostile programs, and small programming tasks with tests that really run.

    python benchmarks/teams.py [--data DIR] [--runs 2000] [--programs 282] [--json]

1. Runs of the team of examples/team with *simulated* writers, of whose messages 10 % are corrupted, in one of the ways
   of CORRUPTIONS. Stopped at the boundary: no later role is shown the message, and it is no answer. Changes of the
   text inside a field, which no schema can tell from what was meant, are counted apart, with what the tests made of it.
2. The hostile programs of hostile_programs.py as what the programmer hands over, in the sandbox: none may pass.
3. With --data, a folder with HumanEval.jsonl.gz (github.com/openai/human-eval, data/): a *simulated* programmer writes
   the published solution, at first with one operator changed in half of the tasks, and mends it after a report in 7 of
   10 cases. The tester's asserts are the examples in the task's docstring, and really run. Graded by the task's hidden
   tests. Controls with the same programmer: alone, and one worker that plays all parts in one conversation, which reads
   its own program and has nothing that runs it, so that it changes as often what is right.
"""

import ast
import asyncio
import doctest
import gzip
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

from common import Figure, report
from hostile_programs import ASSERTS, jailed, programs
from shikisha.conductors.role_team import TeamConductor
from shikisha.config.container import Container, load_config
from shikisha.core.budget import Caps
from shikisha.core.call import Reply, Request
from shikisha.core.hand_over import HandOver, read_document, shown_hand_overs
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.evals.graders import GradeMark, Grader, GraderTools
from shikisha.evals.graders.code import CodeSettings, build_code_grader
from shikisha.evals.graders.code_tests import CodeTestStyle
from shikisha.sandbox import Sandbox
from shikisha.workers.code_tests import CodeTestsSettings, CodeTestsWorker
from shikisha.workers.role import ToolRole

TEAM = Path(__file__).parent.parent / "examples" / "team" / "shikisha.toml"
CAPS = Caps(steps=60, rounds=60)
SHARE = 0.1
Says = Callable[[Request], str]


def _cut(text: str, draw: Random) -> str:
    return text[: draw.randrange(len(text))]


def _without_field(text: str, draw: Random) -> str:
    document = json.loads(text)
    document.pop(draw.choice(list(document)))
    return json.dumps(document)


def _wrong_type(text: str, draw: Random) -> str:
    document = json.loads(text)
    document[draw.choice(list(document))] = draw.choice([None, 7, {"text": "x"}, [], True])
    return json.dumps(document)


def _garbled(text: str, draw: Random) -> str:
    """Replace characters anywhere, in the syntax and in the text alike."""
    letters = list(text)
    for _ in range(max(3, len(letters) // 10)):
        letters[draw.randrange(len(letters))] = draw.choice('{}[]":,x0 \\')
    return "".join(letters)


def _inside(text: str, draw: Random, change: Callable[[str], str]) -> str:
    """Change the text of one field, and leave the document well formed."""
    document = json.loads(text)
    name = draw.choice(list(document))
    value = document[name]
    if isinstance(value, list):
        value[draw.randrange(len(value))] = change(value[0])
    else:
        document[name] = change(value)
    return json.dumps(document)


CORRUPTIONS: dict[str, Callable[[str, Random], str]] = {
    "cut off": _cut,
    "a field is missing": _without_field,
    "a field of the wrong type": _wrong_type,
    "a field that nobody knows": lambda text, _: json.dumps({**json.loads(text), "passed": True}),
    "prose around it": lambda text, draw: f"{draw.choice(['Sure!', 'Here it is:'])} {text}",
    "prose instead": lambda _, draw: draw.choice(["I have done it.", "See above.", "def f(): pass"]),
    "nothing": lambda _, draw: draw.choice(["null", "{}", "[]", '""', "NaN"]),
    "twice": lambda text, _: f"{text}\n{text}",
    "another role's": lambda _, draw: draw.choice(['{"verdict": "good"}', '{"passed": true, "report": "all"}']),
    "inside a list": lambda text, _: f"[{text}]",
    "characters replaced": _garbled,
}
CONTENT: dict[str, Callable[[str, Random], str]] = {
    "text of a field cut off": lambda text, draw: _inside(text, draw, lambda value: value[: len(value) // 2]),
    "text of a field scrambled": lambda text, draw: _inside(
        text, draw, lambda value: "".join(draw.sample(value, len(value)))
    ),
    "text of a field of another task": lambda text, draw: _inside(text, draw, lambda _: "x = 1"),
}


class Writer:
    """A simulated writer; some of its messages are corrupted. `spoiled` has the corrupted ones, with how."""

    def __init__(self, says: Says, draw: Random, ways: dict[str, Callable[[str, Random], str]] | None = None) -> None:
        self._says, self._draw, self._ways = says, draw, ways or {}
        self.spoiled: list[tuple[str, str]] = []

    async def perform(self, request: Request) -> Reply:
        """Write, or spoil what would be written."""
        text = self._says(request)
        if self._ways and self._draw.random() < SHARE:
            way = self._draw.choice(list(self._ways))
            spoiled = self._ways[way](text, self._draw)
            if spoiled != text:
                self.spoiled.append((way, spoiled))
                text = spoiled
        return Reply(text, dollars=0.0)


@cache
def example() -> Container:
    """Return the example's configuration."""
    return load_config(TEAM)


def staffed(writers: dict[str, Writer], sandbox: Sandbox) -> tuple[Pool, TeamConductor]:
    """Return the example's team with these in place of its scripted writers."""
    own = example()
    team = own.team("software")
    members: list[Member] = []
    for member in own.pool(own.team_pool()):
        role = member.card.name.partition("/")[2]
        if role in writers:
            members.append(replace(member, worker=writers[role]))
        elif role == "sandbox":
            members.append(
                replace(member, worker=ToolRole(CodeTestsWorker(CodeTestsSettings(), sandbox), "", team.name))
            )
        else:
            members.append(member)
    return Pool(members), TeamConductor("team:software", team)


def handed(**document: object) -> Says:
    """A writer's answer."""
    text = json.dumps(document)
    return lambda _: text


def reached(run: Run, spoiled: str) -> bool:
    """Whether a later role was shown this message, or it became the answer."""
    try:
        document: object = read_document(spoiled)
    except (ValueError, RecursionError):
        document = spoiled
    for each in run.rounds:
        for step in each.plan.steps if each.plan else ():
            if any(given.document == document for given in shown_hand_overs(step.subtask)):
                return True
    return run.answer == spoiled


async def corrupted(
    runs: int, ways: dict[str, Callable[[str, Random], str]], sandbox: Sandbox
) -> tuple[Counter[str], Counter[str], int]:
    """Return how many messages were corrupted and how many reached a role, by way, and the wrong answers handed out."""
    made, through, wrong = Counter[str](), Counter[str](), 0
    program = "def add(one, other):\n    return one + other\n"
    for number in range(runs):
        draw = Random(number)
        writers = {
            "analyst": Writer(handed(entry="add", cases=["zero", "negative numbers"]), draw, ways),
            "tester": Writer(handed(tests=["assert add(1, 2) == 3", "assert add(-1, 0) == -1"]), draw, ways),
            "programmer": Writer(handed(code=program), draw, ways),
        }
        pool, conductor = staffed(writers, sandbox)
        run = await Engine(MemoryRecorder()).run(Task("Write add(one, other)."), pool, conductor, CAPS)
        for writer in writers.values():
            for way, text in writer.spoiled:
                made[way] += 1
                through[way] += reached(run, text)
        wrong += run.answer is not None and run.answer != program
    return made, through, wrong


async def hostile(most: int, sandbox: Sandbox) -> tuple[int, int]:
    """Return how many hostile programs were handed over, and how many of them the team handed out."""
    given = [*programs()][:most]
    out = 0
    for _, text in given:
        writers = {
            "analyst": Writer(handed(entry="mean", cases=["any"]), Random(0)),
            "tester": Writer(handed(tests=ASSERTS), Random(0)),
            "programmer": Writer(handed(code=text), Random(0)),
        }
        pool, conductor = staffed(writers, sandbox)
        team = conductor.team
        back = team.roles[-1].back
        once = replace(team, roles=(*team.roles[:-1], replace(team.roles[-1], back=back and replace(back, most=1))))
        run = await Engine(MemoryRecorder()).run(Task("Write mean."), pool, replace(conductor, team=once), CAPS)
        out += run.answer is not None
    return len(given), out


_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.And: ast.Or,
    ast.Mod: ast.FloorDiv,
}


def mutated(source: str, draw: Random) -> str:
    """Return the program with one operator or number changed."""
    tree = ast.parse(source)
    places = [
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _SWAPS)
        or (isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS)
        or (isinstance(node, ast.Constant) and type(node.value) is int)
    ]
    if not places:
        return source
    node = draw.choice(places)
    if isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = _SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Compare):
        node.ops[0] = _SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(node, ast.Constant):
        node.value = int(node.value) + 1  # type: ignore[arg-type]
    return ast.unparse(tree)


def examples(prompt: str, entry: str) -> list[str]:
    """Return the examples in a docstring as asserts."""
    found = []
    for each in doctest.DocTestParser().get_examples(prompt):
        said = each.want.strip()
        try:
            ast.literal_eval(said)
            ast.parse(each.source.strip(), mode="eval")
        except (SyntaxError, ValueError):
            continue
        if entry in each.source:
            found.append(f"assert {each.source.strip()} == {said}")
    return found[:20]


def tasks(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of HumanEval."""
    with gzip.open(folder / "HumanEval.jsonl.gz", "rt") as opened:
        yield from map(json.loads, opened)


class Programmer:
    """A simulated programmer of one task, with a chance of its own."""

    def __init__(self, solution: str, seed: str) -> None:
        self._draw = Random(seed)
        self._right = solution
        self.now = mutated(solution, self._draw) if self._draw.random() < 0.5 else solution

    def mend(self) -> None:
        """Look at the program again because something is said to be wrong."""
        right = self._draw.random() < 0.7
        self.now = self._right if right else mutated(self._right, self._draw)

    def says(self, request: Request) -> str:
        """Hand over; after a report that it does not pass, mended."""
        shown = shown_hand_overs(request.subtask)
        if any(isinstance(each, HandOver) and each.role == "sandbox" for each in shown):
            self.mend()
        return json.dumps({"code": self.now})


async def graded(grader: Grader, answer: str | None) -> str:
    """Return right, wrong, or none."""
    if answer is None:
        return "none"
    return "right" if (await grader.grade(answer)).mark is GradeMark.RIGHT else "wrong"


async def humaneval(folder: Path, sandbox: Sandbox) -> dict[str, Counter[str]]:
    """Return for each way of working how many answers were right, wrong and not given."""
    found = {name: Counter[str]() for name in ("alone", "one worker, all parts", "team")}
    for row in tasks(folder):
        prompt, entry = row["prompt"], row["entry_point"]
        asserts = examples(prompt, entry)
        solution = prompt + row["canonical_solution"]
        grader = build_code_grader(
            CodeSettings(style=CodeTestStyle.CHECK, entry=entry, source=row["test"], prompt=prompt),
            GraderTools(sandbox=sandbox),
        )
        if not asserts:
            found["team"]["no example in the task"] += 1
            continue

        found["alone"][await graded(grader, Programmer(solution, row["task_id"]).now)] += 1
        single = Programmer(solution, row["task_id"])
        if Random(f"doubt {row['task_id']}").random() < 0.5:  # it cannot tell whether its program is right
            single.mend()
        found["one worker, all parts"][await graded(grader, single.now)] += 1
        maker = Programmer(solution, row["task_id"])
        writers = {
            "analyst": Writer(handed(entry="solve", cases=["those of the docstring"]), Random(0)),
            "tester": Writer(handed(tests=asserts), Random(0)),
            "programmer": Writer(maker.says, Random(0)),
        }
        pool, conductor = staffed(writers, sandbox)
        run = await Engine(MemoryRecorder()).run(Task(prompt), pool, conductor, CAPS)
        found["team"][await graded(grader, run.answer)] += 1
    return found


async def measure(runs: int, most: int, data: Path | None) -> list[Figure]:
    """Measure all of it."""
    async with jailed() as jail:
        figures: list[Figure] = []
        made, through, _ = await corrupted(runs, CORRUPTIONS, jail)
        figures += [Figure(f"{way}: of {made[way]}, reached a role", through[way], "") for way in CORRUPTIONS]
        total = made.total()
        stopped = 100 * (1 - through.total() / total)
        figures.append(Figure(f"corrupted hand-overs stopped, of {total:,}", stopped, "%", 99, at_least=True))
        made, through, wrong = await corrupted(max(1, runs // 4), CONTENT, jail)
        figures += [Figure(f"(content) {way}: of {made[way]}, reached a role", through[way], "") for way in CONTENT]
        figures.append(Figure("(content) other programs handed out than were meant", wrong, ""))
        given, out = await hostile(most, jail)
        figures.append(Figure(f"hostile programs handed out, of {given}", out, "", 0))
        if data is not None:
            for name, marks in (await humaneval(data, jail)).items():
                answered = marks["right"] + marks["wrong"] + marks["none"]
                marked = [mark for mark in ("right", "wrong", "none", "no example in the task") if marks[mark]]
                figures += [Figure(f"HumanEval, {name}: {mark} (of {answered})", marks[mark], "") for mark in marked]
        return figures


def argument(name: str, otherwise: str) -> str:
    """Return an argument of the command line."""
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else otherwise


def main() -> None:
    """Measure and print."""
    data = argument("--data", "")
    figures = measure(int(argument("--runs", "2000")), int(argument("--programs", "282")), Path(data) if data else None)
    report("Role teams (simulated writers)", asyncio.run(figures))


if __name__ == "__main__":
    main()
