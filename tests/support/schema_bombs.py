"""Hostile JSON Schemas, each with a document that makes it worst, and the doors that take a schema of a stranger.

Four doors are a server's (chat completions, responses, runs with an answer_schema, client tools); four no client has: a
tool of an MCP server over HTTP (what it takes, what it returns), a grader, and a handoff check.
"""

import json
import random
from collections.abc import Callable, Mapping

from shikisha.checks import text_checks
from shikisha.core.messages import Json
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.pool import Inspection
from shikisha.engine.worker import Card, Request
from shikisha.evals.graders import GraderTools
from shikisha.evals.graders import json_answer as graders
from shikisha.testing.chat_server import HttpExchange, HttpRequest, serve_http
from shikisha.workers import mcp

Bomb = tuple[dict[str, Json], str]
HERE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
BELOW = ("properties", "items", "additionalProperties", "prefixItems", "contains", "propertyNames", "patternProperties")
CARELESS = ("^(a+)+$", "^(a|a)*$", "(a*)*b", "^(([a-z])+.)+[A-Z]([a-z])+$", "(?=(a+)+$)x", "(.*)(.*)(.*)(.*)(.*)$x")
LARGE = (
    "a{999999999}",
    "((a{1000}){1000}){1000}",
    "(?:a|b){0,99999999}",
    "[ab]{10000000}",
    ".{1,19999}",
    "(?:x+x+){9999}y",
)
ODD = (
    "(" * 600 + ")" * 600,
    "[" * 500,
    "(?i)" + "ß" * 900,
    "\\p{L}{5000}",
    "(?R)",
    "(?P<a>(?&a))",
    "(a){e<=9}",
    "\\L<x>",
)
STRANGE: tuple[Json, ...] = (None, True, False, 0, -1, 1e308, 10**400, "", "#", "http://[", [], {}, [[]], {"$ref": 1})


def there(keyword: str, schema: Json) -> dict[str, Json]:
    """Return a schema that applies another one by this keyword."""
    match keyword:
        case "allOf" | "anyOf" | "oneOf" | "prefixItems":
            return {keyword: [schema]}
        case "properties" | "dependentSchemas" | "patternProperties":
            return {keyword: {"a": schema}}
        case "then" | "else":
            return {"if": keyword == "then", keyword: schema}
        case _:
            return {keyword: schema}


def doubled(keyword: str, levels: int, word: str = "$ref") -> dict[str, Json]:
    """Return a schema in which every level refers to the next one twice."""
    name = "$dynamicAnchor" if word == "$dynamicRef" else "$anchor"
    defs: dict[str, Json] = {f"d{levels}": {name: f"d{levels}", "type": "object"}}
    for level in range(levels):
        to: Json = {word: f"#d{level + 1}"}
        twice = {keyword: [to, to]} if keyword.endswith("Of") else {"allOf": [there(keyword, to), there(keyword, to)]}
        defs[f"d{level}"] = {name: f"d{level}", **twice}
    return {word: "#d0", "$defs": defs}


def nested(depth: int, key: str = "a") -> str:
    """Return a document of objects inside one another."""
    return f'{{"{key}":' * depth + "{}" + "}" * depth


def bombs(count: int, seed: int) -> list[Bomb]:
    """Return schemas, each with a document; the same for the same seed."""
    chance = random.Random(seed)
    makers = [maker for name, maker in sorted(globals().items()) if name.startswith("bomb_")]
    return [makers[number % len(makers)](chance) for number in range(count)]


def bomb_doubled(chance: random.Random) -> Bomb:
    """References doubled at the same place of the document."""
    word = chance.choice(("$ref", "$ref", "$dynamicRef"))
    return doubled(chance.choice(HERE), chance.choice((8, 12, 16, 24, 40, 90)), word), chance.choice(('{"a":{}}', "{}"))


def bomb_doubled_below(chance: random.Random) -> Bomb:
    """References doubled at each level of the document: nothing in the schema says how often they apply."""
    to: Json = {"$ref": "#/$defs/a"}
    keyword = chance.choice(BELOW)
    inner = [there(keyword, {"allOf": [to, to, to]})]
    depth = chance.choice((10, 20, 40, 90))
    document = "[" * depth + "]" * depth if keyword in ("items", "prefixItems", "contains") else nested(depth)
    return {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": inner}}}, document


def bomb_circle(chance: random.Random) -> Bomb:
    """A schema that leads back to itself, by way of what does not go deeper."""
    names = [f"d{number}" for number in range(chance.choice((1, 2, 3, 50)))]
    word = chance.choice(("$ref", "$dynamicRef", "$recursiveRef"))
    defs: dict[str, Json] = {}
    for name, to in zip(names, [*names[1:], names[0]], strict=True):
        target: Json = {word: "#" if word == "$recursiveRef" else f"#{to}"}
        defs[name] = {"$anchor": name, **there(chance.choice(HERE), target)}
    schema: dict[str, Json] = {"$ref": "#d0", "$defs": defs}
    if word == "$recursiveRef":
        schema |= {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": True}
    return schema, "{}"


def bomb_dynamic(chance: random.Random) -> Bomb:
    """Many resources with the same dynamic anchor, one inside another."""
    schema: dict[str, Json] = {"$dynamicAnchor": "n", "properties": {"a": {"$dynamicRef": "#n"}}}
    for number in range(chance.choice((3, 20, 27))):
        again: list[Json] = [{"$ref": f"r{number}"}] * chance.choice((1, 2, 3))
        schema = {
            "$id": f"r{number + 1}",
            "$dynamicAnchor": "n",
            "$defs": {"x": {**schema, "$id": f"r{number}"}},
            "allOf": again,
        }
    return schema, nested(60)


def bomb_wide(chance: random.Random) -> Bomb:
    """Very many of something."""
    many = chance.choice((1_000, 4_000, 9_000, 50_000))
    document = json.dumps({f"k{number}": number for number in range(2_000)})
    kinds: list[dict[str, Json]] = [
        {"properties": {f"k{number}": {"type": "string"} for number in range(many)}},
        {"required": [f"k{number % 2_000}" for number in range(many)]},
        {"enum": [f"k{number}" for number in range(many)]},
        {"anyOf": [{"required": [f"x{number}"]} for number in range(many)]},
        {"oneOf": [{"minProperties": number} for number in range(many)]},
        {"propertyNames": {"enum": [f"k{number}" for number in range(many)]}},
        {"additionalProperties": {"anyOf": [{"const": -number - 1} for number in range(min(many, 4_000))]}},
    ]
    return chance.choice(kinds), document


def bomb_deep(chance: random.Random) -> Bomb:
    """Schemas inside one another; few are as deep as a request may be."""
    schema: Json = {}
    for _ in range(chance.choice((20, 50, 120, 300))):
        schema = there(chance.choice((*HERE, *BELOW)), schema)
    assert isinstance(schema, dict)
    return schema, nested(90)


def bomb_pattern(chance: random.Random) -> Bomb:
    """Patterns that backtrack for ever, or come to gigabytes."""
    pattern = chance.choice((*CARELESS, *LARGE, *ODD))
    text = chance.choice(("a" * 40 + "!", "a" * 9_000 + "!", "xx" * 3_000, "ß" * 5_000))
    kinds: list[Bomb] = [
        ({"items": {"pattern": pattern}}, json.dumps([text] * 20)),
        ({"patternProperties": {pattern: {}}, "additionalProperties": False}, json.dumps({text: 1})),
        ({"propertyNames": {"pattern": pattern}}, json.dumps({text + str(number): 1 for number in range(20)})),
        ({"allOf": [{"pattern": f"{pattern}{number}"} for number in range(500)]}, json.dumps(text)),
        ({"patternProperties": {f"{number}{pattern}": {} for number in range(300)}}, json.dumps({text: 1})),
    ]
    return chance.choice(kinds)


def bomb_names(chance: random.Random) -> Bomb:
    """Anchors and addresses by the thousand, and addresses that are none."""
    many = chance.choice((500, 3_000, 20_000))
    kinds: list[dict[str, Json]] = [
        {"$defs": {f"d{number}": {"$anchor": f"d{number}"} for number in range(many)}, "$ref": f"#d{many - 1}"},
        {"$defs": {f"d{number}": {"$id": f"x/{number}/" * 9} for number in range(many)}, "$ref": "#/$defs/d1"},
        {"$defs": {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(many)}, "$ref": "#/$defs/d0"},
        {"allOf": [{"$ref": "#" + "/allOf/0" * number} for number in range(1, 300)]},
        {"$id": "http://[::1", "$ref": "http://[x#/a"},
        {"$ref": "#/%25%", "$defs": {"a": {"$ref": "#/~2/~"}}},
        {"$id": "urn:x:y", "$defs": {"a": {"$id": "urn:x:z", "$ref": "urn:x:y"}}, "$ref": "urn:x:z"},
        {"$schema": chance.choice(("http://json-schema.org/draft-03/schema#", "x" * 9_000)), "extends": {"$ref": "#"}},
    ]
    return chance.choice(kinds), "{}"


def bomb_unevaluated(chance: random.Random) -> Bomb:
    """What looks for whatever else has not looked, over schemas that look at everything many times."""
    word = chance.choice(("unevaluatedProperties", "unevaluatedItems"))
    schema = doubled(chance.choice(HERE), chance.choice((4, 8, 11, 14, 30)))
    document = json.dumps({f"k{number}": {} for number in range(1_500)})
    if word == "unevaluatedItems":
        document = json.dumps([{}] * 3_000)
    schema[word] = chance.choice((False, {"type": "string"}, {"$ref": "#"}))
    schema["patternProperties"] = {"k": {}}
    schema["allOf"] = [{"anyOf": [{"additionalProperties": True, "items": {}}] * 9, word: {}}] * 9
    return schema, document


def bomb_numbers(chance: random.Random) -> Bomb:
    """Numbers at the ends of what there is."""
    keyword = chance.choice(("multipleOf", "maximum", "exclusiveMinimum", "minLength", "maxItems", "minContains"))
    value = chance.choice((1e-300, 1e308, 10**4_000, 5e-324, 0.1, -1, 0, 2**64, 1.5))
    numbers = json.dumps([1e308, 10**4_000, 5e-324, 0.3, -(10**4_000)] * 100)
    return {"items": {keyword: value, "contains": {}}, "contains": {keyword: value}, keyword: value}, numbers


def bomb_equal(chance: random.Random) -> Bomb:
    """Large values to be compared."""
    value: Json = [[number, str(number), {"a": number}] for number in range(chance.choice((100, 900)))]
    document = json.dumps([value] * 20)
    kinds: list[dict[str, Json]] = [
        {"items": {"enum": [value, [value]]}},
        {"items": {"anyOf": [{"const": value}, {"const": 1}] * 3}},
        {"uniqueItems": True, "items": {"uniqueItems": True, "items": {"uniqueItems": True}}},
        {"contains": {"const": value}, "minContains": 10**9},
    ]
    return chance.choice(kinds), document


def bomb_many_by_many(chance: random.Random) -> Bomb:
    """Many alternatives for each of many items: a schema as people write them, and a large document."""
    kinds: list[Json] = [
        {"required": [f"k{number}"], "properties": {"a": {"type": "integer"}}} for number in range(200)
    ]
    keyword = chance.choice(("anyOf", "oneOf", "allOf"))
    return {"items": {keyword: kinds}}, json.dumps([{"a": number} for number in range(chance.choice((50, 1_500)))])


def bomb_junk(chance: random.Random) -> Bomb:
    """Keywords with values that they cannot have, and some that they can."""
    words: tuple[str, ...] = (
        "type",
        "enum",
        "required",
        "items",
        "properties",
        "$ref",
        "$id",
        "$anchor",
        "dependencies",
        "pattern",
    )
    words += (*HERE, *BELOW, "$defs", "definitions", "$dynamicRef", "unevaluatedItems", "maxLength", "multipleOf")

    def junk(depth: int) -> Json:
        if depth == 0 or chance.random() < 0.2:
            return chance.choice(STRANGE)
        if chance.random() < 0.3:
            return [junk(depth - 1) for _ in range(chance.randrange(4))]
        return {chance.choice(words): junk(depth - 1) for _ in range(chance.randrange(5))}

    return {chance.choice(words): junk(5) for _ in range(6)}, chance.choice((nested(5), "[[1,[2]]]", '"a"'))


# --- the doors of a server


def at_chat(number: int, schema: Json) -> tuple[str, object]:
    """The schema of a chat completion's answer."""
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    return "/v1/chat/completions", {**_asked(number), "response_format": form}


def at_responses(number: int, schema: Json) -> tuple[str, object]:
    """The schema of a response's text."""
    form = {"format": {"type": "json_schema", "name": "a", "schema": schema}}
    return "/v1/responses", {"model": "shikisha", "input": f"bomb {number}", "text": form}


def at_runs(number: int, schema: Json) -> tuple[str, object]:
    """The schema of a run's answer."""
    return "/runs", {"prompt": f"bomb {number}", "answer_schema": schema}


def at_tools(number: int, schema: Json) -> tuple[str, object]:
    """The parameters of a client's tools."""
    tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in ("a", "b", "c")]
    return "/v1/chat/completions", {**_asked(number), "tools": tools}


def _asked(number: int) -> dict[str, object]:
    return {"model": "shikisha", "messages": [{"role": "user", "content": f"bomb {number}"}]}


DOORS: Mapping[str, Callable[[int, Json], tuple[str, object]]] = {
    "chat": at_chat,
    "responses": at_responses,
    "runs": at_runs,
    "tools": at_tools,
}


# --- the doors that no client has


async def at_mcp(schema: Mapping[str, Json], document: str, role: str) -> None:
    """Call a tool of an MCP server that gives this schema for what it takes, or for what it returns."""
    shown: dict[str, object] = {"name": "t", "inputSchema": {"type": "object"}, role: {**schema, "type": "object"}}
    result = {"content": [{"type": "text", "text": "ok"}], "structuredContent": _object(document)}

    async def answer(incoming: HttpRequest, exchange: HttpExchange) -> bool:
        asked = json.loads(incoming.body or b"{}")
        offered = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "s", "version": "1"},
        }
        results: dict[str, object] = {"initialize": offered, "tools/list": {"tools": [shown]}, "tools/call": result}
        if "id" not in asked:
            await exchange.send(202, b"")
        elif asked["method"] in results:
            body = {"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]}
            await exchange.send(200, json.dumps(body).encode())
        else:
            body = {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no such method"}}
            await exchange.send(200, json.dumps(body).encode())
        return True

    async with serve_http(answer) as url:
        worker = mcp.build(mcp.McpSettings(tool="t", url=f"{url}/mcp"), Card("t", timeout=20), SecretStore({}))
        try:
            await worker.perform(Request(Task("q"), json.dumps(_object(document)), key="k"))
        finally:
            await worker.aclose()


def _object(document: str) -> object:
    value = json.loads(document)
    return value if isinstance(value, dict) else {"a": value}


async def at_input(schema: Mapping[str, Json], document: str) -> None:
    """The arguments of an MCP server's tool."""
    await at_mcp(schema, document, "inputSchema")


async def at_output(schema: Mapping[str, Json], document: str) -> None:
    """The results of an MCP server's tool."""
    await at_mcp(schema, document, "outputSchema")


async def at_grader(schema: Mapping[str, Json], document: str) -> None:
    """A task's grader."""
    grader = graders.build_json_schema_grader(
        graders.JsonSchemaSettings.model_validate({"schema": schema}), GraderTools()
    )
    await grader.grade(document)


async def at_check(schema: Mapping[str, Json], document: str) -> None:
    """A handoff check."""
    check = text_checks.build_json_schema(
        text_checks.JsonSchemaCheckSettings.model_validate({"schema": schema}), "form"
    )
    await check.inspect(Inspection(Task("q"), "s", document))
