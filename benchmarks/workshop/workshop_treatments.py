"""Who may do a part, and how: a worker with its wording, and what is made of its answer.

Every call is messages with greedy sampling, so that an answer can be kept by content. Code and SQL that a model writes
is run for real, in the sandbox for full Python and in a read-only SQLite.
"""

import ast
import asyncio
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log
from time import process_time

from workshop_items import Part, grade

from shikisha.sandbox import Sandbox
from shikisha.sandbox.availability import limits_for, obtain_sandbox

SMALL, LARGE, TOOL = "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "tool"
FORM = "Reply in exactly this form: 'The answer is ...'."
_CODE = "Write a short Python program that prints the answer, and nothing else. Reply with the code alone."
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a model: its name, what it is asked, and the most tokens of its answer."""

    worker: str
    messages: tuple[tuple[str, str], ...]
    tokens: int

    @property
    def sampling(self) -> Mapping[str, float | int]:
        """How it is sampled."""
        return {"temperature": 0.0, "max_tokens": self.tokens}


@dataclass(frozen=True, slots=True)
class Treatment:
    """A worker with a wording for parts of some families."""

    name: str
    worker: str
    words: Callable[[Part], str]
    tokens: int
    finish: Callable[[Part, str], str]
    families: tuple[str, ...]

    def call(self, part: Part) -> Call:
        """Return the call for a part."""
        return Call(self.worker, (("user", self.words(part)),), self.tokens)


def plain_words(part: Part) -> str:
    """Return a part by itself, in one wording."""
    match part.family:
        case "intents":
            return f'Which of {_listed(part, "labels")} is this message about? "{part.text}"'
        case "arithmetic":
            return f"What is {part.text}?"
        case "booleans":
            return f"What does the Python expression {part.text} evaluate to?"
        case "sorting":
            return f"Put these words into alphabetical order, separated by spaces: {part.text}"
        case "tables":
            return "\n".join([*_table_lines(part), f"Question: {part.text}"])
        case "stories":
            return f"{part.more['story']}\n\n{part.text} Is it {_listed(part, 'options', ' / ')}?"
        case "programs":
            return f"Complete this function. Reply with the whole function alone.\n```python\n{part.text}```"
    return part.text


def _form(part: Part) -> str:
    return plain_words(part) if part.kind == "code" else f"{plain_words(part)}\n{FORM}"


def _code(part: Part) -> str:
    return f"{plain_words(part)}\n{_CODE}"


def _sql(part: Part) -> str:
    lines = _table_lines(part)
    names = ", ".join(_columns(part))
    return (
        f"A SQLite table t has the columns {names}. Its first rows:\n" + "\n".join(lines[1:4])
        + f"\nWrite one SQLite query that answers: {part.text}\nReply with the query alone."
    )  # fmt: skip


def _evidence(part: Part) -> str:
    if part.family == "intents":
        near = "\n".join(f'"{text}" is about {label}' for text, label in _neighbors(part)[:5])
        return f"{near}\n{_form(part)}"
    sentences = re.split(r"(?<=[.!?])\s+", str(part.more["story"]))
    asked = Counter(_words(part.text))
    ranked = sorted(
        range(len(sentences)), key=lambda i: -sum(log(1 + len(w)) for w in _words(sentences[i]) if asked[w])
    )
    kept = " ".join(sentences[i] for i in sorted(ranked[:3]))
    return f"{kept}\n\n{part.text} Is it {_listed(part, 'options', ' / ')}?\n{FORM}"


def _as_said(_part: Part, answer: str) -> str:
    return answer


def _run_code(_part: Part, answer: str) -> str:
    return run_python(fenced(answer))


def _run_sql(part: Part, answer: str) -> str:
    rows = [[str(cell) for cell in line] for line in _table(part)]
    database = sqlite3.connect(":memory:")
    try:
        names = ", ".join(_columns(part))
        database.execute(f"CREATE TABLE t ({names})")
        marks = ", ".join("?" * len(rows[0]))
        database.executemany(f"INSERT INTO t VALUES ({marks})", [[_cell(each) for each in row] for row in rows[1:]])  # noqa: S608
        allowed = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION}
        database.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY)
        until = process_time() + 1.0
        database.set_progress_handler(lambda: int(process_time() > until), 10_000)
        found = database.execute(fenced(answer).strip().rstrip(";")).fetchmany(20)
    except (sqlite3.Error, sqlite3.Warning) as error:
        return f"error: {error}"
    finally:
        database.close()
    return ", ".join(f"{cell:g}" if isinstance(cell, float) else str(cell) for row in found for cell in row)


def tool_answer(part: Part) -> str | None:
    """Return what the tool of a family answers (Python, nearest neighbors, word overlap); None where there is none."""
    match part.family:
        case "arithmetic" | "booleans":
            return str(_evaluate(ast.parse(part.text, mode="eval").body))
        case "sorting":
            return " ".join(sorted(part.text.split()))
        case "intents":
            votes = Counter(label for _, label in _neighbors(part)[:5])
            return votes.most_common(1)[0][0]
        case "stories":
            story = set(_words(str(part.more["story"])))
            options = [str(each) for each in _items(part, "options")]
            return max(options, key=lambda each: sum(word in story for word in _words(each)) / (1 + len(_words(each))))
    return None


def _evaluate(node: ast.expr) -> int | bool:
    match node:
        case ast.Constant(value=bool() | int() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_evaluate(inner)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return not _evaluate(inner)
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_evaluate(each) for each in values)
        case ast.BoolOp(values=values):
            return any(_evaluate(each) for each in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _evaluate(left) + _evaluate(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _evaluate(left) - _evaluate(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _evaluate(left) * _evaluate(right)
    raise ValueError(ast.dump(node))


_EXACT = ("arithmetic", "booleans", "sorting")
TREATMENTS: Sequence[Treatment] = (  # cheapest first
    Treatment("small evidence", SMALL, _evidence, 96, _as_said, ("intents", "stories")),
    Treatment("small code", SMALL, _code, 160, _run_code, ("word problems", "dates")),
    Treatment("small form", SMALL, _form, 96, _as_said, ("tables",)),
    Treatment("small program", SMALL, _form, 400, _as_said, ("programs",)),
    Treatment(
        "large form", LARGE, _form, 96, _as_said, ("intents", "word problems", "dates", "tables", "stories", *_EXACT)
    ),
    Treatment("large code", LARGE, _code, 160, _run_code, ("word problems", "dates")),
    Treatment("large SQL", LARGE, _sql, 96, _run_sql, ("tables",)),
    Treatment("large evidence", LARGE, _evidence, 96, _as_said, ("stories",)),
    Treatment("large program", LARGE, _form, 400, _as_said, ("programs",)),
)


def treatments_of(family: str) -> list[Treatment]:
    """Return the treatments for parts of a family."""
    return [each for each in TREATMENTS if family in each.families]


def whole_call(prompt: str, parts: int) -> Call:
    """Return the call that gives one agent the whole task."""
    asks = "Give each answer on a line of its own, in the order in which they are wanted" if parts > 1 else "Answer it"
    return Call(LARGE, (("user", f"{prompt}\n{asks}, as 'The answer is ...'."),), 400)


def agent_calls(prompt: str, parts: int) -> tuple[Call, Callable[[str], Call]]:
    """Return the two calls of one agent with Python: a program, and the answer with what it printed."""
    tool = f"{prompt}\nFirst write a Python program that prints what helps to answer. Reply with the code alone."
    first = Call(LARGE, (("user", tool),), 400)

    def second(written: str) -> Call:
        printed = run_python(fenced(written))[:500]
        said = whole_call(prompt, parts).messages[0][1]
        return Call(LARGE, (("user", f"{said}\nA program printed: {printed}"),), 400)

    return first, second


def right_part(part: Part, answer: str) -> bool:
    """Whether an answer to a part is right; programs are run against their tests."""
    if part.kind == "code":
        return (
            run_python(f"{_program(part, answer)}\n{part.more['test']}\ncheck({part.more['entry']})\nprint('passed')")
            == "passed"
        )
    return grade(part, answer)


def visible_check(part: Part, answer: str) -> bool:
    """Whether a program passes the examples in its docstring, which whoever asks can see."""
    stub = str(part.more["stub"])
    examples = re.findall(r">>> (.+)\n\s*(.+)", stub)
    asserts = [f"assert ({call}) == ({value.strip()})" for call, value in examples]
    return run_python("\n".join([_program(part, answer), *asserts, "print('passed')"])) == "passed"


def right_whole(parts: Sequence[Part], answer: str) -> bool:
    """Whether every part is answered in a whole answer: on its line, or anywhere by itself for programs."""
    lines = [line for line in re.split(r"\n|(?=[Tt]he answer is)", answer) if re.search(r"\w", line)]
    said = [line for line in lines if "answer is" in line.lower()] or lines
    asked = [part for part in parts if part.kind != "code"]
    if any(part.kind == "code" and not right_part(part, answer) for part in parts):
        return False
    if len(said) < len(asked):
        return False
    offset = len(parts) - len(asked) if len(said) == len(parts) else 0
    places = [place for place, part in enumerate(parts) if part.kind != "code"] if offset else range(len(asked))
    return all(grade(part, said[place]) for part, place in zip(asked, places, strict=True))


def _program(part: Part, answer: str) -> str:
    code = fenced(answer)
    head = str(part.more["stub"]).partition("def ")[0]
    return f"{head}\n{code}" if f"def {part.more['entry']}" in code else f"{part.more['stub']}{code}"


def fenced(text: str) -> str:
    """Return the first fenced block of an answer, else all of it."""
    found = re.search(r"```[^\n`]*\n(.*?)(?:```|$)", text, re.DOTALL)
    return found[1] if found else text


@cache
def _sandbox() -> Sandbox:
    return obtain_sandbox("jail", limits_for("jail", 5.0, 10_000, None))


def run_python(code: str) -> str:
    """Return what code prints, or its last value, in the sandbox for full Python."""
    try:
        done = asyncio.run(_sandbox().run(code, {}))
    except Exception as error:  # noqa: BLE001 - what a sandbox cannot take is no answer
        return f"error: {type(error).__name__}"
    return f"error: {done.error}" if done.error else (done.printed.strip() or done.value or "")


def _neighbors(part: Part) -> list[tuple[str, str]]:
    """Return the labeled examples, the nearest first (cosine of TF-IDF)."""
    pairs = [each for each in _items(part, "examples") if isinstance(each, Sequence)]
    examples = [(str(each[0]), str(each[1])) for each in pairs]
    weights = _weights(tuple(text for text, _ in examples))
    asked = _vector(part.text, weights)
    return sorted(examples, key=lambda each: -_cosine(asked, _vector(each[0], weights)))


@cache
def _weights(texts: tuple[str, ...]) -> Mapping[str, float]:
    counts = Counter(word for text in texts for word in set(_words(text)))
    return {word: log(len(texts) / count) for word, count in counts.items()}


@cache
def _sparse(text: str) -> Mapping[str, int]:
    return Counter(_words(text))


def _vector(text: str, weights: Mapping[str, float]) -> Mapping[str, float]:
    return {word: count * weights.get(word, 0.0) for word, count in _sparse(text).items()}


def _cosine(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    norm = (sum(v * v for v in one.values()) * sum(v * v for v in other.values())) ** 0.5
    return sum(value * other.get(word, 0.0) for word, value in one.items()) / norm if norm else 0.0


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _items(part: Part, name: str) -> Sequence[object]:
    value = part.more[name]
    assert isinstance(value, Sequence)
    return value


def _listed(part: Part, name: str, between: str = ", ") -> str:
    return between.join(map(str, _items(part, name)))


def _table(part: Part) -> Sequence[Sequence[object]]:
    return [row for row in _items(part, "table") if isinstance(row, Sequence)]


def _table_lines(part: Part) -> list[str]:
    return [" | ".join(map(str, row)) for row in _table(part)]


def _columns(part: Part) -> list[str]:
    names: list[str] = []
    for place, head in enumerate(_table(part)[0]):
        name = re.sub(r"\W+", "_", str(head).lower()).strip("_") or f"column{place}"
        names.append(f'"{name}"' if f'"{name}"' not in names else f'"{name}_{place}"')
    return names


def _cell(text: str) -> object:
    plain = text.replace(",", "")
    return float(plain) if re.fullmatch(r"-?\d+(?:\.\d+)?", plain) else text
