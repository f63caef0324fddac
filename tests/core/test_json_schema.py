"""Strangers' schemas: judged as JSON Schema says (by another library's word), and never for longer than is counted."""

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path

import httpx2
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue
from schema_bombs import BELOW, DOORS, HERE, at_check, at_grader, at_input, at_output, bombs, doubled, there
from serving import served

from shikisha.core.errors import ConfigError, FaultKind, WorkerError
from shikisha.core.fair_work import WORK_OWNER, WorkOwner
from shikisha.core.json_schema import MOST_CHARACTERS, MOST_LEVELS, MOST_VALUES, SchemaCheck, check_bounds
from shikisha.core.messages import Json
from shikisha.core.task import Task
from shikisha.engine.output_checks import AnswerSchema
from shikisha.engine.pool import Inspection

EXPONENTIAL = doubled("allOf", 40)
CIRCLE: dict[str, Json] = {"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}}
BELOW_ITSELF: dict[str, Json] = {
    "$ref": "#/$defs/a",
    "$defs": {"a": {"properties": {"a": {"allOf": [{"$ref": "#/$defs/a"}] * 3}}}},
}
DEEP = '{"a":' * 30 + "{}" + "}" * 30


async def reason(schema: Mapping[str, Json], document: str) -> str | None:
    return await (await SchemaCheck.create(schema, "schema")).problem(json.loads(document))


@pytest.mark.parametrize("keyword", HERE)
@pytest.mark.parametrize("word", ["$ref", "$dynamicRef"])
async def test_references_doubled_at_every_level_are_refused(keyword: str, word: str) -> None:
    with pytest.raises(ConfigError, match=r"^form: \$\S*: with its references .* schemas apply to one value"):
        await SchemaCheck.create(doubled(keyword, 40, word), "form")


@pytest.mark.parametrize("keyword", HERE)
def test_a_schema_that_leads_back_to_itself_is_refused(keyword: str) -> None:
    with pytest.raises(ConfigError, match="leads back to itself without going deeper"):
        SchemaCheck({"$defs": {"a": there(keyword, {"$ref": "#/$defs/a"})}, "$ref": "#/$defs/a"}, "form")


@pytest.mark.parametrize("keyword", [keyword for keyword in BELOW if keyword != "patternProperties"])
def test_a_schema_that_goes_deeper_may_lead_back_to_itself(keyword: str) -> None:
    SchemaCheck({"$defs": {"a": there(keyword, {"$ref": "#/$defs/a"})}, "$ref": "#/$defs/a"}, "form")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"enum": ["x"] * MOST_VALUES}, "more than 10,000 values"),
        ({"description": "x" * MOST_CHARACTERS}, "200,000 characters"),
        ({"properties": {"a": doubled("properties", 30)}}, "more than 100,000 schemas"),
        ({"allOf": [{"$ref": "#" + "/allOf/0" * 3}]}, "not in it"),
        ({"pattern": "a{999999999}"}, r"\$\.pattern: .* counted repeats"),
        ({"patternProperties": {"((a{99}){99}){99}": {}}}, "counted repeats"),
        ({"pattern": "(?R)?"}, "not in ECMA 262"),
        ({"pattern": "(a){e<=9}"}, "not in ECMA 262"),
        ({"pattern": "(" * 2_000 + ")" * 2_000}, "not a regex"),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "maximum": "1"}, r"\$\.maximum: expected a number"),
        ({"$ref": "http://[x", "$id": "http://[x"}, "Invalid IPv6 URL"),
        ({"minimum": 10**5_000}, "not readable JSON"),
    ],
)
async def test_what_is_too_large_or_no_schema_is_refused_by_its_place(schema: Mapping[str, Json], said: str) -> None:
    with pytest.raises(ConfigError, match=rf"^form: .*{said}"):
        await SchemaCheck.create(schema, "form")


async def test_a_schema_is_counted_before_anything_recurses() -> None:
    schema: Json = {}
    for _ in range(100_000):
        schema = {"not": schema}
    assert isinstance(schema, dict)
    with pytest.raises(ConfigError, match=rf"nested deeper than {MOST_LEVELS} levels"):
        await SchemaCheck.create(schema, "form")


async def test_a_long_chain_of_references_is_refused() -> None:
    defs: dict[str, Json] = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(3_000)}
    with pytest.raises(ConfigError, match="inside one another"):
        await SchemaCheck.create({"$ref": "#/$defs/d0", "$defs": {**defs, "d3000": {}}}, "form")


async def test_what_only_a_document_makes_endless_is_undecided_after_counted_steps() -> None:
    with pytest.raises(TimeoutError, match="undecided after"):
        await reason(BELOW_ITSELF, DEEP)
    verdict = await AnswerSchema(BELOW_ITSELF).inspect(Inspection(Task("q"), "s", DEEP))
    assert not verdict.passed
    assert "undecided after" in verdict.reason


async def test_the_event_loop_goes_on_while_a_document_is_judged() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.create_task(tick())
    with pytest.raises(TimeoutError):
        await reason(BELOW_ITSELF, DEEP)
    ticking.cancel()
    assert ticks > 20


@pytest.mark.parametrize("schema", [EXPONENTIAL, CIRCLE, {"type": "colour"}])
async def test_a_schema_that_an_older_version_took_fails_the_answer_and_nothing_else(schema: dict[str, Json]) -> None:
    verdict = await AnswerSchema(schema).inspect(Inspection(Task("q"), "s", "{}"))
    assert not verdict.passed
    assert "answer_schema: $" in verdict.reason


async def test_a_tool_is_passed_on_whatever_it_says_but_not_however_large_it_is() -> None:
    await check_bounds({"tools[0]": {"type": "any", "pattern": "(?<!x)(", "$ref": "elsewhere", "required": True}})
    for bomb in (EXPONENTIAL, CIRCLE, {"enum": ["x"] * MOST_VALUES}):
        with pytest.raises(ConfigError, match=r"^tools\[1\]: \$"):
            await check_bounds({"tools[0]": {"type": "object"}, "tools[1]": bomb})


@pytest.mark.parametrize("door", DOORS)
async def test_every_door_of_the_server_refuses_what_would_never_end(door: str, tmp_path: Path) -> None:
    async with served(tmp_path) as at, at.http() as client:
        for bomb in (EXPONENTIAL, CIRCLE):
            path, body = DOORS[door](0, bomb)
            answer: httpx2.Response = await client.post(path, json=body)
            assert answer.status_code == 400, answer.text
            assert re.search(r"\$\S*: (with its references|it leads back)", answer.json()["error"]["message"])
        assert (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize("door", ["chat", "responses", "runs"])
async def test_a_schema_that_is_read_off_the_event_loop_begins_a_run_as_others_do(door: str, tmp_path: Path) -> None:
    config = 'conductor = "fixed:single"\n[workers.w]\nkind = "scripted"\nanswers = "[]"\n[server]\nport = 0\n'
    async with served(tmp_path, config) as at, at.http() as client:
        path, body = DOORS[door](0, {"type": "array", "items": {"pattern": f"^{door}$"}})
        answer: httpx2.Response = await client.post(path, json=body)
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("call", [at_input, at_output])
@pytest.mark.parametrize("bomb", [EXPONENTIAL, CIRCLE])
async def test_a_tool_of_a_hostile_mcp_server_is_a_fault(
    call: object, bomb: dict[str, Json], request: pytest.FixtureRequest
) -> None:
    assert callable(call)
    with pytest.raises(WorkerError) as caught:
        await call(bomb, "{}")
    wanted = FaultKind.BAD_REQUEST if call is at_input else FaultKind.BAD_REPLY
    assert (caught.value.fault.kind, "Schema: $" in caught.value.fault.message) == (wanted, True), request.node.name


@pytest.mark.full
@pytest.mark.parametrize("door", [at_check, at_grader])
async def test_no_made_up_schema_does_more_than_be_refused_or_judged(door: object) -> None:
    assert callable(door)
    for schema, document in bombs(26, seed=7):
        try:
            await door(schema, document)
        except ValueError:  # pydantic's, for what is nested too deeply to be a configuration
            pass
        except ConfigError as refusal:
            assert "$" in str(refusal)  # noqa: PT017 - most are not refused


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, -2.5])
    | st.sampled_from(["", "a", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
types = st.sampled_from(["string", "object", "array", "boolean", "null", "number", "integer"])
names = st.sampled_from("abc")


def schemas(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    several, by_name, counts = (
        st.lists(inner, min_size=1, max_size=3),
        st.dictionaries(names, inner, max_size=3),
        st.integers(0, 3),
    )
    return st.fixed_dictionaries(
        {},
        optional={
            "type": types | st.lists(types, min_size=1, max_size=2, unique=True),
            "enum": st.lists(values, min_size=1, max_size=3),
            "const": values,
            "multipleOf": st.sampled_from([1, 2, 0.5]),
            "maximum": st.integers(-2, 2),
            "exclusiveMinimum": st.integers(-2, 2),
            "maxLength": counts,
            "minItems": counts,
            "maxProperties": counts,
            "pattern": st.sampled_from(["^a", "b$", "[a-z]{2}"]),
            "prefixItems": several,
            "items": inner,
            "contains": inner,
            "minContains": counts,
            "maxContains": counts,
            "uniqueItems": st.booleans(),
            "required": st.lists(names, max_size=2, unique=True),
            "properties": by_name,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b|c"]), inner, max_size=2),
            "additionalProperties": inner,
            "propertyNames": inner,
            "dependentRequired": st.dictionaries(names, st.lists(names, max_size=2, unique=True), max_size=2),
            "dependentSchemas": by_name,
            "allOf": several,
            "anyOf": several,
            "oneOf": several,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "unevaluatedProperties": inner,
            "unevaluatedItems": inner,
        },
    )


@pytest.mark.full
@settings(max_examples=300, deadline=None)
@given(st.recursive(st.booleans(), schemas, max_leaves=12).filter(lambda schema: isinstance(schema, dict)), values)
def test_a_document_fits_where_another_library_says_so(schema: dict[str, Json], document: Json) -> None:
    mine = SchemaCheck(schema, "schema")
    problem = asyncio.run(mine.problem(document))  # type: ignore[arg-type]  # made of JSON's own types
    assert (problem is None) == jsonschema.Draft202012Validator(schema).is_valid(document), problem


async def test_the_bombs_of_one_owner_of_work_hold_up_no_other_one() -> None:
    """Counted, not timed: of three that take a second each, the honest document waits for none."""
    bomb = SchemaCheck({"pattern": "^(a|a)*$"}, "x")
    honest = SchemaCheck({"items": {"pattern": "^[a-z]+$"}}, "x")
    done = list[str]()

    async def judge(owner: str, check: SchemaCheck, document: JsonValue) -> str | None:
        WORK_OWNER.set(WorkOwner(owner))
        try:
            return await check.problem(document)
        except TimeoutError as error:
            return str(error)
        finally:
            done.append(owner)

    async with asyncio.TaskGroup() as group:
        bombs = [group.create_task(judge("x", bomb, "a" * 5_000 + "!")) for _ in range(3)]
        await asyncio.sleep(0.05)
        fine = group.create_task(judge("y", honest, ["abc"] * 5_000))
    assert fine.result() is None
    assert {each.result() for each in bombs} == {"undecided after 1 s"}
    assert done.index("y") <= 1  # at most the one that was under way ended before
