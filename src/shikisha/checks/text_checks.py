"""Checks that look at an answer's text alone: length, pattern, JSON Schema, an expression; and the shipped fake.

A kind of check is a model of its keys in the configuration (`LengthCheckSettings`), a class with the one method, and a
`build_...` function that returns it; ConfigError where the keys cannot be used. Invariants: what cannot be judged has
not passed, and no check takes longer than its seconds. A JSON answer is the whole text, or the one fenced block in it.
An expression is Python in Monty over `answer`, `question` and `subtask`, and only True passes. Deliberately absent:
lengths in tokens, which only a model's own tokenizer can count; searching an answer for JSON, and repairing it; options
that a pattern's own flags have, such as `(?i)`; statements in expressions.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ConfigDict, Field, JsonValue, model_validator

from shikisha.core.errors import ConfigError
from shikisha.core.events import CheckStatus
from shikisha.core.json_schema import Schema, SchemaCheck, parse_json, storable_reason
from shikisha.core.kinds import Kind
from shikisha.core.run import CheckVerdict
from shikisha.core.text import fenced_blocks
from shikisha.core.toml import Table
from shikisha.engine.pool import Inspection
from shikisha.evals.graders.text_match import compile_pattern, search_pattern
from shikisha.sandbox import Execution, Sandbox, SandboxLimits


class LengthCheckSettings(Table):
    """The least and the most, both included."""

    min_characters: int = Field(default=0, ge=0, description="the least characters of an answer")
    max_characters: int | None = Field(default=None, ge=0, description="the most characters of an answer")
    min_words: int = Field(default=0, ge=0, description="the least words of an answer")
    max_words: int | None = Field(default=None, ge=0, description="the most words of an answer")

    @model_validator(mode="after")
    def _in_order(self) -> "LengthCheckSettings":
        pairs = ((self.min_characters, self.max_characters), (self.min_words, self.max_words))
        if any(most is not None and most < least for least, most in pairs):
            raise ValueError("a maximum is below its minimum: no answer could pass")
        return self


def build_length(settings: LengthCheckSettings, name: str) -> "LengthCheck":
    """Return the check."""
    return LengthCheck(settings, name)


LENGTH = Kind(settings=LengthCheckSettings, build=build_length)


class LengthCheck:
    """Passes answers whose length is within bounds."""

    def __init__(self, settings: LengthCheckSettings, name: str = "length") -> None:
        self.name = name
        self._settings = settings

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        """Count, and name the first bound that does not hold."""
        bounds = self._settings
        counts = (
            ("characters", len(inspection.text), bounds.min_characters, bounds.max_characters),
            ("words", len(inspection.text.split()), bounds.min_words, bounds.max_words),
        )
        for unit, count, least, most in counts:
            if count < least or (most is not None and count > most):
                bound = f"at least {least}" if count < least else f"at most {most}"
                return CheckVerdict(
                    self.name, CheckStatus.FAIL, f"the answer has {count} {unit}, {bound} are asked for"
                )
        return CheckVerdict(self.name, CheckStatus.PASS)


class PatternCheckSettings(Table):
    """The pattern; whether it must cover the whole answer; whether it must not occur; the most seconds it may take."""

    pattern: str = Field(description="a regular expression")
    whole: bool = Field(default=False, description="whether the pattern must match the whole answer")
    forbidden: bool = Field(default=False, description="whether the pattern must not occur")
    seconds: float = Field(default=1.0, gt=0, le=60, description="the most seconds to judge one answer")


def build_pattern(settings: PatternCheckSettings, name: str) -> "PatternCheck":
    """Return the check; ConfigError says where in the pattern the mistake is."""
    return PatternCheck(settings, name)


PATTERN = Kind(settings=PatternCheckSettings, build=build_pattern)


class PatternCheck:
    """Passes answers in which the pattern is found (or, forbidden, is not)."""

    def __init__(self, settings: PatternCheckSettings, name: str = "pattern") -> None:
        self.name = name
        self._settings = settings
        self._pattern = compile_pattern(settings.pattern, f"checks.{name}.pattern")

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        """Look for the pattern."""
        try:
            match = await search_pattern(
                self._pattern, inspection.text, self._settings.seconds, whole=self._settings.whole
            )
        except TimeoutError:
            reason = f"the pattern was still undecided after {self._settings.seconds:g} s"
            return CheckVerdict(self.name, CheckStatus.FAIL, reason)
        if (match is not None) is not self._settings.forbidden:
            return CheckVerdict(self.name, CheckStatus.PASS)
        rule = "must not hold" if self._settings.forbidden else "must be all" if self._settings.whole else "must hold"
        return CheckVerdict(self.name, CheckStatus.FAIL, f"the answer {rule} {self._settings.pattern}")


class JsonSchemaCheckSettings(Table):
    """The schema itself or the file that holds it; the most seconds that judging one answer may take."""

    model_config = ConfigDict(populate_by_name=True)

    json_schema: dict[str, JsonValue] | None = Field(
        default=None, alias="schema", description="the JSON Schema that an answer must match; either this or file"
    )
    file: Path | None = Field(default=None, description="a file that holds the JSON Schema; either this or schema")
    seconds: float = Field(default=1.0, gt=0, le=60, description="the most seconds to judge one answer")

    @model_validator(mode="after")
    def _one_of_them(self) -> "JsonSchemaCheckSettings":
        if (self.json_schema is None) == (self.file is None):
            raise ValueError("expected either schema or file")
        return self


def build_json_schema(settings: JsonSchemaCheckSettings, name: str) -> "JsonSchemaCheck":
    """Return the check; ConfigError when there is no schema, or none that can be used."""
    schema = settings.json_schema if settings.file is None else _read_schema(settings.file, name)
    return JsonSchemaCheck(schema or {}, name, settings.seconds)


JSON_SCHEMA = Kind(settings=JsonSchemaCheckSettings, build=build_json_schema)


class JsonSchemaCheck:
    """Passes answers that are JSON and follow the schema."""

    def __init__(self, schema: Schema, name: str = "json_schema", seconds: float = 1.0) -> None:
        self.name = name
        self._schema = SchemaCheck(schema, f"checks.{name}.schema", seconds)

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        """Parse and validate; the reason names the place in the answer."""
        blocks = fenced_blocks(inspection.text)
        try:
            document = parse_json(blocks[0] if len(blocks) == 1 else inspection.text)
        except (ValueError, RecursionError) as error:
            return CheckVerdict(self.name, CheckStatus.FAIL, storable_reason(f"the answer is no JSON: {error}"))
        try:
            problem = await self._schema.problem(document)
        except TimeoutError as error:
            problem = f"whether it fits the schema is {error}"
        return CheckVerdict(self.name, CheckStatus.PASS if problem is None else CheckStatus.FAIL, problem or "")


def _read_schema(file: Path, name: str) -> Schema:
    try:
        schema = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"checks.{name}.file: {file}: {error}") from None
    if not isinstance(schema, dict):
        raise ConfigError(f"checks.{name}.file: {file}: expected a JSON object")
    return schema


class PredicateCheckSettings(Table):
    """The expression (`len(answer.splitlines()) == 3`), what to say when it is False, the seconds it may take."""

    expression: str = Field(
        description="an expression over `answer` and `question`, as in len(answer.splitlines()) == 3"
    )
    reason: str = Field(default="", description="what the worker reads when the expression is false")
    seconds: float = Field(default=1.0, gt=0, le=60, description="the most seconds to judge one answer")


def build_predicate(settings: PredicateCheckSettings, name: str) -> "PredicateCheck":
    """Return the check; ConfigError when the expression is no Python."""
    from shikisha.sandbox.availability import shared_monty

    return PredicateCheck(settings, shared_monty(SandboxLimits(seconds=settings.seconds)), name)


PREDICATE = Kind(settings=PredicateCheckSettings, build=build_predicate)


class PredicateCheck:
    """Passes answers for which the expression is True."""

    def __init__(self, settings: PredicateCheckSettings, sandbox: Sandbox, name: str = "predicate") -> None:
        self.name = name
        self._settings = settings
        self._sandbox = sandbox
        # Code whose value is the expression's if that is True or False, and None if it is not.
        expression = settings.expression
        try:
            compile(expression, "expression", "eval")
        except (SyntaxError, ValueError) as error:
            raise ConfigError(f"checks.{name}.expression: no Python expression: {error}") from None
        self._code = f"_holds = (\n{expression}\n)\n_holds if _holds is True or _holds is False else None"

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        """Evaluate the expression."""
        task = inspection.task
        inputs = {"answer": inspection.text, "question": task.prompt, "subtask": inspection.subtask}
        execution = await self._sandbox.run(self._code, inputs)
        if execution.error is None and execution.value == "True":
            return CheckVerdict(self.name, CheckStatus.PASS)
        return CheckVerdict(self.name, CheckStatus.FAIL, self._why(execution))

    def _why(self, execution: Execution) -> str:
        expression = self._settings.expression
        if execution.error is not None:
            return f"{expression} failed: {execution.error}"
        if execution.value != "False":
            return f"{expression} is neither True nor False"
        return self._settings.reason or f"the answer must satisfy {expression}"


class FixedCheckSettings(Table):
    """Verdicts in turn (the last one stays) and the reason they carry."""

    verdicts: tuple[CheckStatus, ...] = Field(
        default=(CheckStatus.PASS,), min_length=1, description="verdicts in turn; the last one repeats"
    )
    reason: str = Field(default="", description="the reason that the verdicts carry")


def build_fixed(settings: FixedCheckSettings, name: str) -> "FixedCheck":
    """Return the fake; it looks at no answer, and keeps what it was given, for tests."""
    return FixedCheck(settings.verdicts, name, settings.reason)


FIXED = Kind(settings=FixedCheckSettings, build=build_fixed)


class FixedCheck:
    """Gives its verdicts in turn, and then the last one again."""

    def __init__(self, verdicts: Sequence[CheckStatus], name: str = "fixed", reason: str = "") -> None:
        self.name = name
        self.seen: list[Inspection] = []
        self._verdicts = tuple(verdicts)
        self._reason = reason

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        """Give the next verdict."""
        verdict = self._verdicts[min(len(self.seen), len(self._verdicts) - 1)]
        self.seen.append(inspection)
        return CheckVerdict(self.name, verdict, self._reason)
