"""A thousand hostile JSON Schemas at every door: does anything end, and does the server go on answering?

    python benchmarks/schema_bombs.py [--count 1000] [--seed 1] [--door chat …] [--json]

Each bomb is a schema with a document that makes it worst. They go to the four doors of a real `shikisha serve` (chat
completions, responses, runs with an answer_schema, client tools), eight at a time, with a worker that answers with the
bomb's document, while a process of its own asks /healthz all the time; then, in processes of their own, to the doors
that no client has: a tool of an MCP server over HTTP (inputSchema and outputSchema), a grader, and a handoff check.
There the longest time is counted for which the event loop did not come back. /healthz is measured before as well, while
as many clients send harmless requests: what the machine itself makes of it.

The door `others` is that of a second key: how long its honest requests with a schema take at an otherwise quiet server,
and how long while six clients of the first key send the patterns that backtrack longest.
"""

import argparse
import asyncio
import gc
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from pydantic import ValidationError

from common import Figure, report
from serving_client import Server, connections, server
from shikisha.checks import text_checks
from shikisha.core.errors import ConfigError, ShikishaError
from shikisha.core.messages import Json
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.pool import Inspection
from shikisha.engine.worker import Card, Request
from shikisha.evals.graders import GraderTools
from shikisha.evals.graders import json_answer as graders
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server
from shikisha.testing.chat_server import HttpExchange, HttpRequest, serve_http
from shikisha.workers import mcp

AT_ONCE = 8
ATTACKERS, ASKED = 6, 100
FEWEST = 500  # answers of /healthz while nobody attacks
Bomb = tuple[dict[str, Json], str]
CONFIG = """
conductor = "fixed:single"
[workers.model]
kind = "chat"
base_url = "{url}"
model = "m"
max_output_tokens = 100000
structured_output = true
tools = true
"""

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


def worst_bombs() -> list[Bomb]:
    """Return the bombs that hold a thread longest: patterns that backtrack until their time is over."""
    schemas: list[dict[str, Json]] = [{"items": {"pattern": pattern}} for pattern in CARELESS]
    return [(schema, json.dumps(["a" * 9_000 + "!"] * 20)) for schema in schemas]


HONEST: Bomb = (  # too much for the event loop, and done in some milliseconds
    {"type": "array", "items": {"type": "object", "properties": {"name": {"pattern": "^[A-Z][a-z]+$"}}}},
    json.dumps([{"name": "Shikisha"}] * 2_000),
)


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


async def endpoint(count: int, seed: int) -> None:
    """Serve the worker's endpoint: it answers with the document of the bomb that the prompt names."""
    made = [*bombs(count, seed), *worst_bombs(), HONEST]

    def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
        named = re.search(r"bomb (\d+)", " ".join(text for _, text in asked.messages))
        return ScriptedAnswer(text=made[int(named[1])][1] if named else "{}")

    async with chat_server(choose) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


async def probe(host: str, port: int) -> None:
    """Ask /healthz every 10 ms until there is nobody left; print every second what the worst and the 99 % were."""
    request = f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    begun, took = perf_counter(), list[float]()
    async with connections(host, port, 1) as (connection,):
        while True:
            answer = await asyncio.wait_for(connection.ask(request), 60)
            took.append(1000 * answer.seconds if answer.status == 200 else 60_000.0)
            if perf_counter() - begun > 0.5:
                print(json.dumps(took), flush=True)
                begun, took = perf_counter(), []
            await asyncio.sleep(0.01)


class Probing:
    """What /healthz takes, as a process of its own sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.took: list[float] = []
        self._process = process
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.took += json.loads(line)

    async def since(self, place: int) -> Sequence[float]:
        """Return what was measured from this place on."""
        await asyncio.sleep(0.6)
        return sorted(self.took[place:]) or [60_000.0]

    async def end(self) -> None:
        """Stop asking."""
        self._process.kill()
        await self._process.wait()
        await self._reading


@asynccontextmanager
async def child(*arguments: object) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a part of this script as a process of its own."""
    command = [sys.executable, __file__, *map(str, arguments)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, limit=2**22)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def bombard(at: Server, requests: Sequence[bytes], at_once: int = AT_ONCE) -> tuple[Counter[str], float]:
    """Send the requests, some at a time; return what came of them, and the most seconds that one took."""
    left, told, longest = list(reversed(requests)), Counter[str](), 0.0

    async def send() -> None:
        nonlocal longest
        while left:
            try:
                async with connections(at.host, at.port, 1) as (connection,):
                    while left:
                        answer = await asyncio.wait_for(connection.ask(left.pop()), 120)
                        told[str(answer.status)] += 1
                        longest = max(longest, answer.seconds)
            except (OSError, TimeoutError) as error:
                told[type(error).__name__] += 1

    await asyncio.gather(*(send() for _ in range(at_once)))
    return told, longest


async def serving(folder: Path, count: int, seed: int, doors: Sequence[str]) -> list[Figure]:
    """Send every bomb to each of these doors of a server."""
    figures: list[Figure] = []
    made = bombs(count, seed)
    async with child("--endpoint", "--count", count, "--seed", seed) as worker:
        assert worker.stdout is not None
        url = (await worker.stdout.readline()).decode().strip()
        log = folder / "server.log"
        async with (
            server(folder, CONFIG.format(url=url), log=log) as at,
            child("--probe", f"{at.host}:{at.port}") as prober,
        ):
            probing = Probing(prober)
            await bombard(at, [at.request(*at_runs(0, {}))] * 50)
            place = len(probing.took)
            while len(probing.took) < place + FEWEST:
                await bombard(at, [at.request(*at_chat(0, {}))] * 50)
            figures += _health("nobody attacks", await probing.since(place), aim=False)
            for name in doors:
                requests = [at.request(*DOORS[name](number, schema)) for number, (schema, _) in enumerate(made)]
                place = len(probing.took)
                told, longest = await bombard(at, requests)
                figures += _health(f"{count:,} bombs at {name}", await probing.since(place), aim=True)
                figures += _told(told, at, longest)
            await probing.end()
    return figures


async def others(folder: Path, count: int, seed: int) -> list[Figure]:
    """Measure the requests of one key while another one attacks."""
    async with child("--endpoint", "--count", count, "--seed", seed) as worker:
        assert worker.stdout is not None
        url = (await worker.stdout.readline()).decode().strip()
        async with server(folder, CONFIG.format(url=url), log=folder / "server.log") as at:
            async with connections(at.host, at.port, 1) as (connection,):
                wanted = at.request("/keys", {"name": "other", "tenant": "other", "scopes": ["run"]})
                answer = await connection.ask(wanted)
                assert answer.status == 201, answer.data
                key = json.loads(answer.data.partition(b"\r\n\r\n")[2])["secret"]
            worst = worst_bombs()
            honest = replace(at, key=key).request(*at_chat(count + len(worst), HONEST[0]))
            attacks = [at.request(*at_chat(count + place, schema)) for place, (schema, _) in enumerate(worst)]

            async def asked() -> list[float]:
                async with connections(at.host, at.port, 1) as (connection,):
                    answers = [await asyncio.wait_for(connection.ask(honest), 120) for _ in range(ASKED)]
                assert {each.status for each in answers} == {200}
                return sorted(1000 * each.seconds for each in answers)

            await asked()
            quiet = await asked()
            attacking = asyncio.create_task(bombard(at, attacks * (100 // len(attacks) + 1), ATTACKERS))
            await asyncio.sleep(1)
            attacked, ended = await asked(), attacking.done()
            attacking.cancel()
            p99 = [each[int(0.99 * (len(each) - 1))] for each in (quiet, attacked)]
            return [
                Figure(f"a schema request, p99 of {ASKED}, quiet", p99[0], "ms"),
                Figure(f"  while {ATTACKERS} clients of another key attack", p99[1], "ms"),
                Figure("  times the quiet one", p99[1] / p99[0], "", 3),
                Figure("  the attack ended before", float(ended), "", 0),
            ]


def _health(what: str, took: Sequence[float], *, aim: bool) -> list[Figure]:
    return [
        Figure(f"{what}: /healthz, worst of {len(took):,}", took[-1], "ms", 50 if aim else None),
        Figure("  99.9 %", took[int(0.999 * (len(took) - 1))], "ms"),
    ]


def _told(told: Counter[str], at: Server, longest: float) -> list[Figure]:
    exits = 0 if at.process.is_running() and at.process.status() != "zombie" else 1
    refused = sum(number for status, number in told.items() if status.startswith("4"))
    done = told["200"]
    lost = sum(told.values()) - refused - done - told["502"]
    return [
        Figure("  exits of the server", exits, "", 0),
        Figure("  400 and others refused at the door", refused, ""),
        Figure("  200 done", done, ""),
        Figure("  502: the worker's answer did not fit, or stayed undecided", told["502"], ""),
        Figure("  anything else, or nothing", lost, "", 0),
        Figure("  longest until an answer", longest, "s"),
    ]


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


INSIDE = {"mcp_input": at_input, "mcp_output": at_output, "grader": at_grader, "check": at_check}


async def inside(door: str, count: int, seed: int) -> None:
    """Put every bomb to a door of this process; print what came of it, and for how long the loop was held."""
    told, held, longest, over = Counter[str](), 0.0, 0.0, False

    async def tick() -> None:
        nonlocal held
        while not over:
            begun = perf_counter()
            await asyncio.sleep(0.001)
            held = max(held, perf_counter() - begun - 0.001)

    made = bombs(count, seed)
    await INSIDE[door]({"type": "object"}, "{}")  # what is imported, read and compiled once
    gc.collect()
    gc.freeze()  # a thousand schemas at once are this script's doing, and searching them for garbage is no door's work
    ticking = asyncio.create_task(tick())
    for schema, document in made:
        begun = perf_counter()
        try:
            await INSIDE[door](schema, document)
            told["done"] += 1
        except (ConfigError, ValidationError):  # a configuration is read by pydantic first
            told["refused"] += 1
        except ShikishaError as error:
            told[type(error).__name__] += 1
        longest = max(longest, perf_counter() - begun)
    over = True
    await ticking
    print(json.dumps([told, held, longest]), flush=True)


async def everywhere_else(count: int, seed: int, doors: Sequence[str]) -> list[Figure]:
    """Put the bombs to these inner doors, each in a process of its own."""
    figures: list[Figure] = []
    for door in doors:
        async with child("--inside", door, "--count", count, "--seed", seed) as process:
            said, _ = await process.communicate()
            told, held, longest = json.loads(said) if process.returncode == 0 else ({}, 60.0, 0.0)
            figures += [
                Figure(f"{count:,} bombs at {door}: exits of the process", float(process.returncode != 0), "", 0),
                Figure("  judged or answered", told.get("done", 0), ""),
                Figure("  refused, or faults", sum(told.values()) - told.get("done", 0), ""),
                Figure("  longest that the event loop was held", 1000 * held, "ms", 50),
                Figure("  longest for one", longest, "s"),
            ]
    return figures


async def main(count: int, seed: int, doors: Sequence[str]) -> list[Figure]:
    """Measure these doors."""
    figures: list[Figure] = []
    if served := [door for door in doors if door in DOORS]:
        with tempfile.TemporaryDirectory() as folder:
            figures += await serving(Path(folder), count, seed, served)
    if "others" in doors:
        with tempfile.TemporaryDirectory() as folder:
            figures += await others(Path(folder), count, seed)
    return figures + await everywhere_else(count, seed, [door for door in doors if door in INSIDE])


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--count", type=int, default=1000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument(
        "--door", action="append", choices=[*DOORS, *INSIDE, "others"], help="this one; all if none is named"
    )
    options.add_argument("--endpoint", action="store_true", help="be the worker's endpoint")
    options.add_argument("--probe", help="be who asks /healthz of this host and port")
    options.add_argument("--inside", help="be the process behind one of the inner doors")
    given, _ = options.parse_known_args()
    if given.endpoint:
        asyncio.run(endpoint(given.count, given.seed))
    elif given.probe:
        named, _, numbered = given.probe.rpartition(":")
        asyncio.run(probe(named, int(numbered)))
    elif given.inside:
        asyncio.run(inside(given.inside, given.count, given.seed))
    else:
        report("Hostile schemas", asyncio.run(main(given.count, given.seed, given.door or [*DOORS, *INSIDE, "others"])))
