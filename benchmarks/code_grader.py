"""The code grader on 164 tasks of HumanEval's size, made here: half of the answers are wrong, in known ways.

Each task is a small function with its docstring, a reference that computes what its 5 to 10 tests expect, and an answer
in a fenced block. Wrong answers are a digit off, the wrong type, an exception, a mistake in the grammar, an endless
loop, or a cheat. Every grade must be as known; all run at once, as an evaluation grades them.

python benchmarks/code_grader.py [--json]
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice, product
from statistics import median
from time import perf_counter

from common import Figure, report
from shikisha.evals.graders import GradeMark, GraderTools
from shikisha.sandbox import SandboxLimits
from shikisha.sandbox.process_sandbox import ProcessSandbox
from shikisha_code.code_grader import CodeSettings, build_code_grader

TASKS = 164
SECONDS = 3.0  # for one test, as HumanEval's own harness has it
Make = Callable[[random.Random], object]


@dataclass(frozen=True)
class Family:
    """Like functions: a sentence, the body of the function of `x` with a number `k`, and what `x` may be."""

    says: str
    body: str
    make: Make


def numbers(luck: random.Random) -> object:
    """Return some whole numbers."""
    return [luck.randint(-30, 30) for _ in range(luck.randint(0, 12))]


def words(luck: random.Random) -> object:
    """Return a line of words."""
    return " ".join("".join(luck.choices("abcdefgh", k=luck.randint(1, 6))) for _ in range(luck.randint(0, 6)))


def number(luck: random.Random) -> object:
    """Return a number that is not below 0."""
    return luck.randint(0, 400)


KINDS: dict[str, Make] = {"numbers": numbers, "words": words, "number": number}
FAMILIES = """\
numbers: Sum of the numbers of x above {k}.
return sum(n for n in x if n > {k})

numbers: Every {k}. number of x, in order.
return x[{k} - 1 :: {k}]

numbers: The {k} largest numbers of x, largest first.
return sorted(x, reverse=True)[:{k}]

numbers: How often each remainder by {k} occurs in x.
counts = {{}}
for n in x:
    counts[n % {k}] = counts.get(n % {k}, 0) + 1
return counts

numbers: x turned left by {k} places.
if not x:
    return []
place = {k} % len(x)
return x[place:] + x[:place]

numbers: The pairs of places in x whose numbers add up to {k}.
return [(i, j) for i in range(len(x)) for j in range(i) if x[i] + x[j] == {k}]

numbers: Running totals of x, from {k}.
total, out = {k}, []
for n in x:
    total += n
    out.append(total)
return out

numbers: The mean of x, {k} if it is empty.
return sum(x) / len(x) if x else float({k})

numbers: The length of the longest part of x that rises by {k} at most from one number to the next.
best = run = 1 if x else 0
for a, b in zip(x, x[1:]):
    run = run + 1 if 0 <= b - a <= {k} else 1
    best = max(best, run)
return best

words: The words of x that are longer than {k} letters.
return [word for word in x.split() if len(word) > {k}]

words: x with each letter moved on by {k}, round the alphabet.
return "".join(chr((ord(c) - 97 + {k}) % 26 + 97) if c.isalpha() else c for c in x)

words: The set of letters that occur in x at least {k} times.
return {{c for c in x if c.isalpha() and x.count(c) >= {k}}}

words: x cut into pieces of {k} letters.
return [x[i : i + {k}] for i in range(0, len(x), {k})]

words: Whether the first {k} letters of x read the same backwards.
return x[:{k}] == x[:{k}][::-1]

words: The first word of x, the last one and the number of words; None below {k} words.
found = x.split()
return (found[0], found[-1], len(found)) if len(found) >= {k} else None

number: x in base {k} + 1, as text.
digits = ""
while x:
    digits, x = str(x % ({k} + 1)) + digits, x // ({k} + 1)
return digits or "0"

number: The prime factors of x + {k}, smallest first.
n, p, out = x + {k}, 2, []
while n > 1:
    while n % p == 0:
        out.append(p)
        n //= p
    p += 1
return out

number: How many numbers up to x can be divided by {k} or by 7.
return sum(n % {k} == 0 or n % 7 == 0 for n in range(1, x + 1))

number: The sum of the digits of x to the power of {k}.
return sum(int(digit) ** {k} for digit in str(x))

number: Number x % 40 after 1, 1, where each is the sum of the last one and {k} times the one before.
a, b = 1, 1
for _ in range(x % 40):
    a, b = b, b + {k} * a
return a

number: x rounded down to a multiple of {k}, and what is left.
return x - x % {k}, x % {k}"""
WAYS = {
    "off": """\
    def inner(x):
{body}
    value = inner(x)
    return value + 1 if isinstance(value, (int, float)) else [value]""",
    "wrong type": """\
    def inner(x):
{body}
    return [str(inner(x))]""",
    "raises": "    raise NotImplementedError('to be done')",
    "grammar": "    return (x",
    "last test only": """\
    def inner(x):
{body}
    return "wrong" if x == {last} else inner(x)""",
    "leaves": """\
    import os
    os._exit(0)""",
    "equals all": """\
    return type("T", (), {{"__eq__": lambda *a: True}})()""",
    "another name": """\
    return "wrong"

def something_else(x):
{body}""",
}
ENDLESS = "    while True:\n        pass"
ENDLESS_EVERY = 20  # wrong answers


@dataclass(frozen=True)
class Task:
    """One task: the grader's settings, an answer, whether it is right, and the way in which it is not."""

    settings: CodeSettings
    answer: str
    right: bool
    way: str


def families() -> list[Family]:
    """Read FAMILIES."""
    parts = (part.partition("\n") for part in FAMILIES.split("\n\n"))
    heads = ((*head.partition(": ")[::2], body) for head, _, body in parts)
    return [Family(says, body, KINDS[kind]) for kind, says, body in heads]


def tasks(seed: int = 7) -> Iterator[Task]:
    """Make the tasks; every second answer is wrong."""
    luck, ways, wrongs = random.Random(seed), cycle(WAYS), 0
    for place, (k, family) in enumerate(islice(product(range(2, 10), families()), TASKS)):
        name = f"task_{place}"
        body = "\n".join(f"    {line}" for line in family.body.format(k=k).splitlines())
        inputs = [family.make(luck) for _ in range(luck.randint(5, 10))]
        expected = [computed(f"def {name}(x):\n{body}", name, given) for given in inputs]
        lines = [f"    assert candidate({given!r}) == {value!r}" for given, value in zip(inputs, expected, strict=True)]
        settings = CodeSettings.model_validate(
            {
                "style": "check",
                "entry": name,
                "prompt": f'def {name}(x):\n    """{family.says.format(k=k)}"""\n',
                "source": "def check(candidate):\n" + "\n".join(lines),
                "seconds": SECONDS,
            }
        )
        way, code = "", body
        if place % 2:
            wrongs += 1
            way = "endless" if wrongs % ENDLESS_EVERY == 0 else next(ways)
            deeper = "\n".join(f"    {line}" for line in body.splitlines())
            code = ENDLESS if way == "endless" else WAYS[way].format(body=deeper, last=repr(inputs[-1]))
        yield Task(settings, f"Like this:\n\n```python\ndef {name}(x):\n{code}\n```\n", not way, way)


def computed(source: str, name: str, given: object) -> object:
    """Return what a reference written here returns."""
    space: dict[str, Callable[[object], object]] = {}
    exec(source, space)  # noqa: S102 - our own text, from FAMILIES
    return space[name](given)


async def graded(jail: ProcessSandbox, task: Task) -> tuple[float, bool]:
    """Return the seconds that a grade took, and whether it is as known."""
    grader = build_code_grader(task.settings, GraderTools(sandbox=jail))
    begun = perf_counter()
    grade = await grader.grade(task.answer)
    as_known = grade.mark is (GradeMark.RIGHT if task.right else GradeMark.WRONG)
    if not as_known:
        print(f"not as known: {task.way or 'right'}: {grade.mark}: {grade.evidence}\n{task.answer}")
    return perf_counter() - begun, as_known


async def measure() -> list[Figure]:
    """Grade all tasks at once, then the right ones one by one."""
    made = list(tasks())
    async with ProcessSandbox(SandboxLimits(seconds=10.0, memory=512 * 2**20, output=100_000, depth=1_000)) as jail:
        await jail.run("1", {})  # the launcher starts with the first run
        begun = perf_counter()
        results = await asyncio.gather(*(graded(jail, task) for task in made))
        total = perf_counter() - begun
        single = [(await graded(jail, task))[0] for task in made if task.right]
        quick = [(await graded(jail, task))[0] for task in made if task.way not in {"", "endless", "leaves"}]
    return [
        Figure(f"grade {TASKS} answers at once, {sum(not task.right for task in made)} of them wrong", total, "s", 60),
        Figure("grades as known", sum(right for _, right in results), "answers", TASKS, at_least=True),
        Figure("a right answer, nothing beside it, median", 1000 * median(single), "ms"),
        Figure("a wrong answer that ends, nothing beside it, median", 1000 * median(quick), "ms"),
    ]


if __name__ == "__main__":
    report("Tests of code in the jail", asyncio.run(measure()))
