"""Grade JSON answers: right when the document follows a JSON Schema (bounded as `core.json_schema` says).

The document is the whole answer, else the last fenced block that is JSON, else the last object or list in the text.
Invariants: an answer without JSON is NO_ANSWER. A document that the schema cannot decide in its time is UNGRADED. The
search is linear in the text. Deliberately absent: repairing JSON, and comparing with a right document (a schema with
`const` does that).
"""

import asyncio
import json
import re

from pydantic import ConfigDict, Field, JsonValue

from shikisha.core.json_schema import Schema, SchemaCheck, parse_json
from shikisha.core.kinds import Kind
from shikisha.core.text import fenced_blocks
from shikisha.core.toml import Table
from shikisha.evals.graders import Grade, GraderTools, grade_from_score, no_answer_grade, ungraded_grade
from shikisha.evals.graders.canonical_form import AnswerForm

# Characters; longer answers are searched in a thread.
_SHORT = 10_000
_SHOWN = 200
# Characters read per character of the answer, so that searching stays linear.
_EFFORT = 4
# Fixed cost of one attempt, in characters.
_TRY = 50
_OPENING = re.compile(r"\{(?=\s{0,99}[\"}])|\[(?=\s{0,99}[{\[])")


class JsonSchemaSettings(Table):
    """The schema; the time limit in seconds for one answer."""

    model_config = ConfigDict(populate_by_name=True)

    json_schema: dict[str, JsonValue] = Field(alias="schema")
    seconds: float = Field(default=1.0, gt=0, le=60)


def build_json_schema_grader(settings: JsonSchemaSettings, tools: GraderTools) -> "JsonSchemaGrader":  # noqa: ARG001 - every grader's signature
    """Return the grader; ConfigError when the schema cannot be used."""
    return JsonSchemaGrader(settings.json_schema, settings.seconds)


KIND = Kind(settings=JsonSchemaSettings, build=build_json_schema_grader)


class JsonSchemaGrader:
    """Grades whether the JSON in an answer follows a schema."""

    name = "json_schema"
    form: AnswerForm | None = None

    def __init__(self, schema: Schema, seconds: float = 1.0) -> None:
        self._schema = SchemaCheck(schema, "schema", seconds)

    async def grade(self, answer: str) -> Grade:
        """Find the document and validate it; the evidence names the place of a mismatch."""
        brief = len(answer) <= _SHORT
        found = find_document(answer) if brief else await asyncio.to_thread(find_document, answer)
        if found is None:
            return no_answer_grade(self.name, "no JSON found")
        document, written = found
        try:
            problem = await self._schema.problem(document)
        except TimeoutError as error:
            return ungraded_grade(self.name, f"whether it follows the schema: {error}")
        return grade_from_score(self.name, float(problem is None), written[:_SHOWN], problem or "follows the schema")


def find_document(answer: str) -> tuple[JsonValue, str] | None:
    """Return the JSON document in an answer and its text; None when there is none."""
    for text in (answer, *reversed(fenced_blocks(answer))):
        try:
            return parse_json(text), text.strip()
        except (ValueError, RecursionError):
            continue
    # The last object, or list of objects or lists, in prose; one inside another does not count.
    decoder, found = json.JSONDecoder(), None
    effort = _EFFORT * len(answer) + _SHORT
    opening = _OPENING.search(answer)
    while opening is not None and effort > 0:
        place, tried = opening.start() + 1, _TRY
        try:
            document, end = decoder.raw_decode(answer, opening.start())
            place, tried = end, end - opening.start()
            if isinstance(document, dict) or any(isinstance(item, dict | list) for item in document):
                found = answer[opening.start() : end]
        except json.JSONDecodeError as error:
            tried += error.pos - opening.start()
        except RecursionError:
            tried = _SHORT
        effort -= tried
        opening = _OPENING.search(answer, place)
    try:
        return None if found is None else (parse_json(found), found)
    except (ValueError, RecursionError):
        return None
