"""What grading costs: graders and canonical forms on bare and on long answers, building graders, hostile answers.

    python benchmarks/grading.py [--json]

The edge cases are those of `tests/evals/test_grader_cases.py`. Comparisons that spelling cannot decide go to processes
of math-verify; the first of them starts one.
"""

import asyncio
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

from common import Figure, report
from shikisha.evals.graders import GraderTools
from shikisha.evals.graders.canonical_form import AnswerForm, canonicalize
from shikisha.evals.graders.grader_registry import build_grader
from shikisha.evals.graders.math import ExpressionComparer, MathGrader

CASES = Path(__file__).parent.parent / "tests" / "evals" / "test_grader_cases.py"
REASONING = (
    "First we look at what is given: 3 apples at $1.25 each, so the second part needs the first one's sum. " * 20
)
SAID = {
    AnswerForm.CHOICE: ("C", "The answer is (C)."),
    AnswerForm.NUMBER: ("1234.5", "The answer is $1,234.50."),
    AnswerForm.TEXT: ("Paris", "The answer is Paris."),
    AnswerForm.MATH: (r"\frac{3}{4}", r"The answer is $\boxed{\frac{3}{4}}$."),
}
HOSTILE = ("answer is ", "\\boxed{", '{"answer": "\\', "111,", "A or ", "$x", "\u0301\u0316", "²", "{", " ")


def microseconds(answer: str, form: AnswerForm, times: int = 2_000) -> float:
    """Return the median time to find a canonical form."""
    taken = []
    for _ in range(times):
        begun = perf_counter()
        canonicalize(answer, form)
        taken.append(perf_counter() - begun)
    return median(taken) * 1e6


async def grades_a_second(form: AnswerForm, answer: str, times: int = 5_000) -> float:
    """Return how many answers a grader grades in a second, one after another."""
    check = build_grader(form, {"answer": SAID[form][0]}, GraderTools(), "benchmark")
    begun = perf_counter()
    for _ in range(times):
        await check.grade(answer)
    return times / (perf_counter() - begun)


async def cases_right() -> tuple[int, int]:
    """Return how many of the edge cases are marked and found as the table says, and how many there are."""
    cases: Sequence[tuple[str, str | Mapping[str, object], str, str, str | None]] = runpy.run_path(str(CASES))["CASES"]
    right = 0
    for kind, gold, answer, mark, found in cases:
        settings = {"answer": gold} if isinstance(gold, str) else gold
        grade = await build_grader(kind, settings, GraderTools(), "benchmark").grade(answer)
        right += (grade.mark, grade.found) == (mark, found)
    return right, len(cases)


def seconds_to_build(count: int) -> float:
    """Return the time to build choice graders from settings as rows bring them."""
    settings = {"answer": "C", "options": ["Rome", "London", "Paris", "New Paris"]}
    begun = perf_counter()
    for _ in range(count):
        build_grader("choice", settings, GraderTools(), "benchmark")
    return perf_counter() - begun


async def compared_a_second(count: int) -> float:
    """Return how many pairs that spelling cannot decide are compared in a second, with the processes running."""
    algebra = ExpressionComparer()
    await asyncio.gather(*(algebra.compare("x+x", "2x") for _ in range(8)))
    begun = perf_counter()
    pairs = (MathGrader(f"x^2+{i}x+1", algebra).grade(f"1+{i}x+x^2") for i in range(2, count + 2))
    await asyncio.gather(*pairs)
    taken = perf_counter() - begun
    algebra.close()
    return count / taken


async def longest_pause(expression: str) -> float:
    """Return the longest that the event loop was held up while an expression that nobody can compute is graded."""
    algebra = ExpressionComparer(1, seconds=2.0)
    grading = asyncio.create_task(MathGrader("x+1", algebra).grade(expression))
    longest = 0.0
    while not grading.done():
        begun = perf_counter()
        await asyncio.sleep(0.005)
        longest = max(longest, perf_counter() - begun - 0.005)
    algebra.close()
    return longest


async def measured() -> list[Figure]:
    """Measure all there is."""
    figures = []
    for form, (bare, said) in SAID.items():
        long = f"{REASONING}\n\n{said}"
        figures.append(
            Figure(f"canonical {form}: {bare}", microseconds(bare, form), "µs", None if "\\" in bare else 10)
        )
        figures.append(Figure(f"canonical {form}: after 2,000 characters", microseconds(long, form), "µs"))
        figures.append(Figure(f"grade {form}: {bare}", await grades_a_second(form, bare), "/s"))
        figures.append(Figure(f"grade {form}: after 2,000 characters", await grades_a_second(form, long), "/s"))
    worst = max(microseconds(piece * (1_000_000 // len(piece)), form, 1) for piece in HOSTILE for form in AnswerForm)
    figures.append(Figure("canonical: the worst of hostile megabytes", worst / 1e3, "ms", 1_000))
    figures.append(Figure("build 10,000 choice graders", seconds_to_build(10_000), "s", 0.5))
    figures.append(Figure("compare what spelling cannot decide", await compared_a_second(200), "/s"))
    figures.append(Figure("9^9^9^9: longest pause of the event loop", await longest_pause("9^{9^{9^9}}") * 1e3, "ms"))
    right, count = await cases_right()
    figures.append(Figure(f"edge cases right, of {count}", right, "cases", count, at_least=True))
    return figures


def main() -> None:
    """Measure and print."""
    report("Grading short answers", asyncio.run(measured()))


if __name__ == "__main__":
    main()
