"""A worker that runs one role's tests against another role's program, and says whether they pass and which did not.

Invariants: program and tests come from hand-overs whose roles the conductor named, so a program cannot bring, edit or
skip its tests; they run in a sandbox under the harness that grades code, which believes no exit code and no report of
the program's process. The same hand-overs give the same verdict. Deliberately absent: tests without an assertion, and
any opinion: what cannot be run has not passed, and the report says why.
"""

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from shikisha.core.call import Card, GrantedStep, Reply, Request
from shikisha.core.errors import ConfigError, FaultKind, WorkerError
from shikisha.core.json_schema import parse_json
from shikisha.core.messages import Json
from shikisha.core.secrets import SecretStore
from shikisha.core.toml import Table
from shikisha.engine.worker import WorkerKind
from shikisha.evals.graders import GradeMark, GraderTools
from shikisha.sandbox import Sandbox
from shikisha.sandbox.availability import available_sandbox, full_python_sandbox, limits_for
from shikisha.workers.scripted import ScriptedWorker
from shikisha_code.code_grader import CodeSettings, build_code_grader
from shikisha_code.code_tests import CodeTestStyle
from shikisha_role_teams.hand_over import role_asked

_MAX_TESTS = 200
_MAX_TEST_CHARACTERS = 20_000
_MAX_REPORT = 2_000
_TOTAL_SECONDS, _TOTAL_OUTPUT = 120.0, 8_000_000  # of all tests together
REPORT_SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "properties": {"passed": {"type": "boolean"}, "report": {"type": "string"}},
    "required": ["passed", "report"],
    "additionalProperties": False,
}


class CodeTestsSettings(Table):
    """Where the program and the tests are: a role and a field of what it hands over."""

    program: str = Field(
        default="programmer.code",
        pattern=r"^[\w-]+\.\w+$",
        description="the program: a role, and a field of its hand-over",
    )
    tests: str = Field(
        default="tester.tests",
        pattern=r"^[\w-]+\.\w+$",
        description="the tests: a role and a field that holds assert statements, as a text or a list of texts",
    )
    sandbox: Literal["any", "jail", "bubblewrap", "container"] = Field(
        default="any", description="where the code runs; any: the first of the others that withstands the probes here"
    )
    seconds: float = Field(default=6.0, gt=0, le=600, description="the most seconds of one test")


def build(settings: CodeTestsSettings, card: Card, secret_store: SecretStore) -> "CodeTestsWorker":  # noqa: ARG001 - every adapter's signature
    """Return the worker; its sandbox is probed before the first code runs in it."""
    return CodeTestsWorker(settings)


KIND = WorkerKind(settings=CodeTestsSettings, build=build, double=ScriptedWorker, any_task=True)


class CodeTestsWorker:
    """Answers with JSON: `passed`, and `report`. `sandbox`: one that is open already."""

    def __init__(self, settings: CodeTestsSettings, sandbox: Sandbox | None = None) -> None:
        self._settings = settings
        self._sandbox = sandbox

    async def perform(self, request: Request) -> Reply:
        """Run the tests; TOOL_ERROR where there is no sandbox, or none of the hand-overs has a program."""
        program = _field(request.granted, self._settings.program)
        tests = _field(request.granted, self._settings.tests)
        if not isinstance(program, str):
            raise WorkerError(FaultKind.TOOL_ERROR, f"no hand-over brings a program: expected {self._settings.program}")
        asserts, problem = _statements(tests)
        if problem:
            return _report(passed=False, report=f"{self._settings.tests}: {problem}")
        code = CodeSettings(style=CodeTestStyle.ASSERTS, asserts=asserts, seconds=self._settings.seconds)
        try:
            grader = build_code_grader(code, GraderTools(sandbox=await self._opened()))
        except ConfigError as error:
            raise WorkerError(FaultKind.TOOL_ERROR, str(error)) from None
        grade = await grader.grade(program)
        if grade.mark is GradeMark.UNGRADED:
            raise WorkerError(FaultKind.TOOL_ERROR, grade.evidence)
        return _report(passed=grade.mark is GradeMark.RIGHT, report=grade.evidence)

    async def _opened(self) -> Sandbox:
        if self._sandbox is None:
            name = self._settings.sandbox
            limits = limits_for("jail" if name == "any" else name, _TOTAL_SECONDS, _TOTAL_OUTPUT)
            opening = full_python_sandbox(limits) if name == "any" else available_sandbox(name, limits)
            self._sandbox = await opening
        return self._sandbox


def _report(*, passed: bool, report: str) -> Reply:
    return Reply(json.dumps({"passed": passed, "report": report[:_MAX_REPORT]}), dollars=0.0)


def _field(granted: Sequence[GrantedStep], where: str) -> object:
    """Return a field of the latest hand-over of a role; None where there is none."""
    role, _, name = where.partition(".")
    for each in reversed(granted):
        if each.text is not None and role_asked(each.subtask) == role:
            try:
                document = parse_json(each.text)
            except (ValueError, RecursionError):
                continue
            return document.get(name) if isinstance(document, dict) else None
    return None


def _statements(tests: object) -> tuple[tuple[str, ...], str]:
    """Return the tests as one statement each, or why they can be none."""
    parts = [tests] if isinstance(tests, str) else tests
    if not isinstance(parts, list) or not parts or not all(isinstance(part, str) for part in parts):
        return (), "expected assert statements, as a text or a list of texts"
    source = "\n".join(parts)
    if len(source) > _MAX_TEST_CHARACTERS:
        return (), f"{len(source):,} characters are more than {_MAX_TEST_CHARACTERS:,}"
    try:
        body = ast.parse(source).body
        statements = tuple(ast.unparse(each) for each in body[: _MAX_TESTS + 1])
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return (), f"not Python: {error}"
    if not any(isinstance(each, ast.Assert) for each in body) or len(body) > _MAX_TESTS:
        return (), f"expected 1 to {_MAX_TESTS} statements, with an assert among them"
    return statements, ""
