"""The graders of short answers: how they are built, what they say, and that no answer can hold them up."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from time import monotonic

import pytest

from shikisha.core.errors import ConfigError
from shikisha.evals.graders import Grade, GradeMark, GraderTools
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.evals.graders.choice import ChoiceGrader
from shikisha.evals.graders.grader_registry import GRADERS, build_grader
from shikisha.evals.graders.json_answer import find_document
from shikisha.evals.graders.math import Equivalence, ExpressionComparer, MathGrader

HARD = "9^{9^{9^{9}}}"
CARELESS, HOSTILE = "^(a|a)+(b|b)+$", "a" * 40 + "!"


async def graded(kind: str, settings: Mapping[str, object], answer: str) -> Grade:
    return await build_grader(kind, settings, GraderTools(), "tasks.jsonl:7").grade(answer)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("choice", {}, r"tasks\.jsonl:7: choice\.answer: is missing"),
        ("choice", {"answer": "E", "options": 4}, r"tasks\.jsonl:7: choice: answer: expected a letter from A to D"),
        ("choice", {"answer": "A or B"}, "expected a letter from A to Z"),
        ("choice", {"answer": "A", "options": 1}, r"choice\.options: expected their number \(2 to 26\)"),
        ("choice", {"answer": "A", "options": ["x", 2]}, r"choice\.options: expected their number"),
        ("choice", {"answer": "A", "optoins": 4}, r"choice\.optoins: unknown key; .*did you mean 'options'"),
        ("number", {"answer": "five"}, r"tasks\.jsonl:7: number: answer: expected one number"),
        ("number", {"answer": "3 or 4"}, "expected one number"),
        ("number", {"answer": True}, r"number\.answer: expected text"),
        ("number", {"answer": float("nan")}, "expected one number"),
        ("number", {"answer": 5, "relative": -1}, r"number\.relative: expected at least 0"),
        ("number", {"answer": 5, "absolute": float("inf")}, r"number\.absolute: expected a finite number"),
        ("number", {"answer": 5, "unit_required": True}, "number: unit: is missing"),
        ("text", {"answer": []}, r"text\.answer: expected a text that is not blank"),
        ("text", {"answer": ["x", " "]}, r"text\.answer: expected a text that is not blank"),
        ("text", {"answer": "x", "mode": "loose"}, r"text\.mode: expected 'exact' or 'normalised'"),
        ("math", {"answer": ""}, r"math\.answer"),
        ("math", {"answer": r"\boxed{ }"}, "math: answer: expected an expression"),
        ("regex", {"pattern": "a("}, r"tasks\.jsonl:7: regex: pattern: .* at position"),
        ("json_schema", {"schema": {"type": "objekt"}}, r"json_schema: schema: .*objekt"),
        ("json_schema", {}, r"json_schema\.schema: is missing"),
    ],
)
def test_settings_that_cannot_be_used_are_an_error_with_place_and_field(
    kind: str, settings: Mapping[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build_grader(kind, settings, GraderTools(), "tasks.jsonl:7")


def test_math_without_its_library_names_the_extra_and_nothing_heavy_is_imported_here() -> None:
    code = """
import sys
from shikisha.core.errors import MissingExtra
from shikisha.evals.graders import GraderTools
from shikisha.evals.graders.grader_registry import build_grader
build_grader("math", {"answer": "x"}, GraderTools(), "here")
assert not {"math_verify", "sympy"} & set(sys.modules)
from shikisha.evals.graders.math import require_math_verify
require_math_verify.cache_clear()
sys.meta_path.clear()
try:
    build_grader("math", {"answer": "x"}, GraderTools(), "here")
except MissingExtra as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - our own code
    assert ended.stdout == "comparing mathematical expressions needs the extra 'math': pip install 'shikisha[math]'\n"


def test_an_unknown_kind_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"tasks\.jsonl:7: .*'numbr': known are choice, .*did you mean 'number'"):
        build_grader("numbr", {}, GraderTools(), "tasks.jsonl:7")
    assert set(GRADERS) >= {*AnswerForm, "regex", "json_schema", "code", "entry_point", "judge"}


@pytest.mark.parametrize("form", AnswerForm)
def test_a_grader_says_its_form_and_how_many_options_there_are(form: AnswerForm) -> None:
    built = build_grader(form, {"answer": "C"}, GraderTools(), "here") if form is not AnswerForm.NUMBER else None
    assert getattr(built or build_grader(form, {"answer": 3}, GraderTools(), "here"), "form", None) is form
    assert ChoiceGrader("C", ["x", "y", "z"]).options == 3
    assert ChoiceGrader("C", 4).options == 4


@pytest.mark.parametrize(
    ("kind", "settings", "answer", "evidence"),
    [
        ("choice", {"answer": "B"}, "The answer is (C).", "found C, expected B"),
        ("choice", {"answer": "B", "options": 4}, "E", "E is none of the 4 options, expected B"),
        ("choice", {"answer": "B"}, "who knows", "no single choice found, expected B"),
        ("number", {"answer": "5 km"}, "5 m", "found 5 m, expected 5 km"),
        ("number", {"answer": 5}, "none", "no single number found, expected 5"),
        ("number", {"answer": "5 km", "unit_required": True}, "5", "found 5 without a unit, expected 5 km"),
        ("text", {"answer": ["x", "y"]}, "z", "found 'z', expected 'x' or 'y'"),
        ("math", {"answer": "6:1"}, "1:6", "found 1:6, expected 6:1"),
        ("regex", {"pattern": "^a+$", "whole": True}, "b", "the answer does not match all of ^a+$"),
    ],
)
async def test_the_evidence_says_what_was_compared(
    kind: str, settings: Mapping[str, object], answer: str, evidence: str
) -> None:
    assert (await graded(kind, settings, answer)).evidence == evidence


@pytest.mark.parametrize(
    ("settings", "answer", "mark"),
    [
        ({"pattern": r"\bcat\b"}, "a cat sat", GradeMark.RIGHT),
        ({"pattern": r"\bcat\b"}, "concatenated", GradeMark.WRONG),
        ({"pattern": r"[a-z]+", "whole": True}, " abc\n", GradeMark.RIGHT),
        ({"pattern": r"[a-z]+", "whole": True}, "abc 1", GradeMark.WRONG),
        ({"pattern": r"(?i)ABC"}, "abc", GradeMark.RIGHT),
        ({"pattern": "x"}, " ", GradeMark.NO_ANSWER),
        ({"pattern": CARELESS, "seconds": 0.1}, HOSTILE, GradeMark.UNGRADED),
    ],
)
async def test_regex_looks_for_a_pattern(settings: Mapping[str, object], answer: str, mark: GradeMark) -> None:
    assert (await graded("regex", settings, answer)).mark is mark


PERSON = {"type": "object", "required": ["name"], "properties": {"age": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("answer", "mark"),
    [
        ('{"name": "Murasaki"}', GradeMark.RIGHT),
        ('Here it is:\n```json\n{"name": "Murasaki", "age": 40}\n```\nDone.', GradeMark.RIGHT),
        ('I thought of {"age": 3}, but it is {"name": "x", "of": {"age": "y"}}. Yes.', GradeMark.RIGHT),
        ('```json\n{"name": "x"}\n```\nand\n```text\nno JSON\n```', GradeMark.RIGHT),
        ('{"age": 40}', GradeMark.WRONG),
        ('{"name": "x", "age": "old"}', GradeMark.WRONG),
        ("[1, 2]", GradeMark.WRONG),
        ("See [1].", GradeMark.NO_ANSWER),
        ('{"name": ', GradeMark.NO_ANSWER),
        ('{"age": NaN}', GradeMark.NO_ANSWER),
        ("", GradeMark.NO_ANSWER),
    ],
)
async def test_json_schema_judges_the_document_in_an_answer(answer: str, mark: GradeMark) -> None:
    assert (await graded("json_schema", {"schema": PERSON}, answer)).mark is mark


async def test_json_schema_names_the_place_and_what_its_patterns_cannot_decide_is_ungraded() -> None:
    grade = await graded("json_schema", {"schema": PERSON}, '{"name": "x", "age": "old"}')
    assert grade.evidence == "$.age: 'old' is not of type 'integer'"
    careless = {"schema": {"items": {"pattern": CARELESS}}, "seconds": 0.1}
    assert (await graded("json_schema", careless, json.dumps([HOSTILE]))).mark is GradeMark.UNGRADED


@pytest.mark.parametrize("piece", ["{", "[", '{"a":', "[[1],", '{"a": 1} ', "```\n", '"'])
def test_looking_for_json_in_a_megabyte_of_anything_comes_to_an_end(piece: str) -> None:
    found = find_document(piece * (1_000_000 // len(piece)))
    assert found is None or found[0] in ({"a": 1}, [1])


@pytest.fixture
async def algebra() -> AsyncIterator[ExpressionComparer]:
    """One process, and little time for it."""
    one = ExpressionComparer(1, seconds=0.5)
    yield one
    one.close()


async def test_an_expression_that_cannot_be_computed_is_wrong_and_the_next_one_is_compared(
    algebra: ExpressionComparer,
) -> None:
    check = MathGrader("x^2+2x+1", algebra)
    grade = await check.grade(HARD)
    assert (grade.mark, grade.found) == (GradeMark.WRONG, "9^{9^{9^9}}")
    assert "not proved equal within 0.5 s" in grade.evidence
    assert (await check.grade("(x+1)^2")).mark is GradeMark.RIGHT


async def test_the_event_loop_runs_on_while_expressions_are_compared(algebra: ExpressionComparer) -> None:
    comparison = asyncio.create_task(MathGrader("x+1", algebra).grade(HARD))
    turns = 0
    while not comparison.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert turns > 10


async def test_a_comparison_that_is_cancelled_ends_its_process() -> None:
    patient = ExpressionComparer(1, seconds=600)
    assert await patient.compare("x+x", "2x") is Equivalence.EQUAL
    comparison = asyncio.create_task(patient.compare("x+1", HARD))
    await asyncio.sleep(0.2)
    comparison.cancel()
    begun = monotonic()
    with pytest.raises(asyncio.CancelledError):
        await comparison
    assert await patient.compare("x+x", "2x") is Equivalence.EQUAL  # the only process there may be is free again
    assert monotonic() - begun < 300
    patient.close()


async def test_a_process_that_somebody_else_ended_is_a_failure_and_no_verdict(algebra: ExpressionComparer) -> None:
    assert await algebra.compare("x+x", "2x") is Equivalence.EQUAL
    (process,) = algebra.processes
    os.kill(process, signal.SIGKILL)
    assert await algebra.compare("x+x", "2x") in (Equivalence.FAILED, Equivalence.EQUAL)
    assert await algebra.compare("x+x", "2x") is Equivalence.EQUAL


async def test_what_cannot_be_read_as_mathematics_is_compared_by_spelling(algebra: ExpressionComparer) -> None:
    grade = await MathGrader(r"\foo\bar{", algebra).grade(r"\bar\foo{")
    assert grade.mark is GradeMark.WRONG
    assert "by spelling" in grade.evidence
