"""A check that an answer is JSON that follows a schema (JSON Schema, see `schema` for its bounds).

Invariant: what cannot be judged has not passed. The answer is the whole text, or the one fenced block in it.
Deliberately absent: searching an answer for JSON, and repairing it.
"""

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from shikisha.core.errors import ConfigError
from shikisha.core.events import CheckStatus
from shikisha.core.json_schema import Schema, SchemaCheck, parse_json, storable_reason
from shikisha.core.run import CheckVerdict
from shikisha.core.text import fenced_blocks
from shikisha.engine.checker import Inspection


class Settings(BaseModel):
    """The schema itself or the file that holds it; the most seconds that judging one answer may take."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    json_schema: dict[str, JsonValue] | None = Field(
        default=None, alias="schema", description="the JSON Schema that an answer must match; either this or file"
    )
    file: Path | None = Field(default=None, description="a file that holds the JSON Schema; either this or schema")
    seconds: float = Field(default=1.0, gt=0, le=60, description="the most seconds to judge one answer")

    @model_validator(mode="after")
    def _one_of_them(self) -> "Settings":
        if (self.json_schema is None) == (self.file is None):
            raise ValueError("expected either schema or file")
        return self


def build(settings: Settings, name: str) -> "JsonSchemaCheck":
    """Return the check; ConfigError when there is no schema, or none that can be used."""
    schema = settings.json_schema if settings.file is None else _read(settings.file, name)
    return JsonSchemaCheck(schema or {}, name, settings.seconds)


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


def _read(file: Path, name: str) -> Schema:
    try:
        schema = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"checks.{name}.file: {file}: {error}") from None
    if not isinstance(schema, dict):
        raise ConfigError(f"checks.{name}.file: {file}: expected a JSON object")
    return schema
