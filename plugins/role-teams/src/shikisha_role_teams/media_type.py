"""A check that the fields of a document hold what its schema says they hold: `contentMediaType` of JSON Schema.

Known is `text/x-python`. A schema alone cannot tell a program from half of one; with this, what was cut off is stopped
where it is handed over. Invariant: text is parsed and never run, and its length is bounded. Deliberately absent: other
media types, which nothing here could judge; a schema that names one is an error when the check is built.
"""

import ast
import warnings
from collections.abc import Iterator, Mapping

from shikisha.core.errors import ConfigError
from shikisha.core.events import CheckStatus
from shikisha.core.json_schema import read_document, storable_reason
from shikisha.core.messages import Json
from shikisha.core.run import CheckVerdict
from shikisha.engine.pool import Inspection

PYTHON = "text/x-python"
_MAX_CHARACTERS = 30_000  # of all such texts together: parsing them holds the event loop
_MAX_DEPTH = 8  # of a schema that is looked through


class MediaTypeCheck:
    """Passes documents whose typed texts are of their type."""

    name = "media_type"

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self._schema = schema
        for path, kind in _typed(schema, ()):
            if kind != PYTHON:
                raise ConfigError(f"{'.'.join(path) or '$'}: contentMediaType {kind!r}: known is {PYTHON}")

    @property
    def needed(self) -> bool:
        """Whether the schema names a media type at all."""
        return next(_typed(self._schema, ()), None) is not None

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        """Parse each typed text; the reason names the place."""
        try:
            document = read_document(inspection.text)
        except (ValueError, RecursionError) as error:
            return CheckVerdict(self.name, CheckStatus.FAIL, storable_reason(f"no JSON document: {error}"))
        room = _MAX_CHARACTERS
        for where, text in _texts(self._schema, document, "$"):
            room -= len(text)
            problem = f"more than {_MAX_CHARACTERS:,} characters" if room < 0 else _python_problem(text)
            if problem:
                return CheckVerdict(self.name, CheckStatus.FAIL, storable_reason(f"{where}: not Python: {problem}"))
        return CheckVerdict(self.name, CheckStatus.PASS)


def _typed(schema: Json, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Json]]:
    if not isinstance(schema, Mapping) or len(path) > _MAX_DEPTH:
        return
    if "contentMediaType" in schema:
        yield path, schema["contentMediaType"]
    fields = schema.get("properties")
    for name, inner in fields.items() if isinstance(fields, Mapping) else ():
        yield from _typed(inner, (*path, name))
    yield from _typed(schema.get("items"), (*path, "[]"))


def _texts(schema: Json, document: Json, where: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return
    if "contentMediaType" in schema and isinstance(document, str):
        yield where, document
    fields = schema.get("properties")
    if isinstance(fields, Mapping) and isinstance(document, Mapping):
        for name, inner in fields.items():
            if name in document:
                yield from _texts(inner, document[name], f"{where}.{name}", depth + 1)
    if isinstance(document, list):
        for place, item in enumerate(document):
            yield from _texts(schema.get("items"), item, f"{where}[{place}]", depth + 1)


def _python_problem(text: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in somebody's program are not our warnings
        try:
            return "" if ast.parse(text).body else "there is no statement in it"
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return str(error) or type(error).__name__
