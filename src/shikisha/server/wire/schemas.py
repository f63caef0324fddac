"""The schemas in a request: the answer's, which has to be one, and those of the client's tools, which are passed on.

Invariant: a schema that is none, or too large to be worked with, is a 400 that names its place, before anything is
begun. Deliberately absent: what makes a schema too large (`shikisha.schema`), and holding an answer to it (`handoff`).
"""

from collections.abc import Mapping

from shikisha.errors import ConfigError
from shikisha.schema import SchemaCheck, check_bounds, check_size
from shikisha.server.orders import Api
from shikisha.server.problems import Problem
from shikisha.task import Task
from shikisha.turn import Json

_ANSWER = {
    Api.CHAT: "response_format.json_schema.schema",
    Api.RESPONSES: "text.format.schema",
    Api.RUNS: "answer_schema",
}
MOST_TOOLS_SIZE = 4  # all tools together, in schemas of the largest size
_TOOL = {Api.CHAT: "tools[{}].function.parameters", Api.RESPONSES: "tools[{}].parameters"}


def check_sizes(raw: Mapping[str, object], api: Api) -> None:
    """Refuse a body with a schema that is too large, before it is read as a request: that alone would take long."""
    for path, times in ((_ANSWER[api], 1), ("tools", MOST_TOOLS_SIZE)):
        found: object = raw
        for name in path.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, dict | list):
            try:
                check_size(found, path, times)
            except ConfigError as error:
                raise Problem(400, str(error), "invalid_value", param=path) from None


async def check_schemas(task: Task, api: Api) -> None:
    """Refuse a task with a schema that cannot be worked with; Problem (400) says which, and where."""
    where = _ANSWER[api]
    try:
        if task.answer_schema is not None:
            await SchemaCheck.of(task.answer_schema, where)
        if task.tools:
            where = "tools"
            await check_bounds({_TOOL[api].format(place): _parameters(tool) for place, tool in enumerate(task.tools)})
    except ConfigError as error:
        raise Problem(400, str(error), "invalid_value", param=where) from None


def _parameters(tool: Mapping[str, Json]) -> Mapping[str, Json]:
    function = tool.get("function")
    given = function.get("parameters") if isinstance(function, Mapping) else None
    return given if isinstance(given, Mapping) else {}
