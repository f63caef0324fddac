"""OpenAPI documents as tools: what is read, and what is refused with its place."""

import json
import time
from collections.abc import Mapping

import pytest
from openapi_documents import COMPONENTS, SHOP, document, operation

from shikisha.core.errors import ConfigError
from shikisha.core.json_schema import SchemaCheck
from shikisha.core.tools import ToolEffect
from shikisha.tools.catalogue_entry import CatalogueEntry
from shikisha.tools.catalogue_source import parse_document, read_openapi


def entries(whole: Mapping[str, object]) -> dict[str, CatalogueEntry]:
    return {each.tool.name: each for each in read_openapi("shop", whole, "shop.json").entries}


def refusals(whole: Mapping[str, object]) -> dict[str, str]:
    return {each.name: each.reason for each in read_openapi("shop", whole, "shop.json").refused}


def with_body(schema: object, schemas: Mapping[str, object] | None = None) -> dict[str, object]:
    body = {"content": {"application/json": {"schema": schema}}, "required": True}
    paths = {"/x": {"post": operation(operationId="bad", requestBody=body), "get": operation(operationId="good")}}
    return document(paths, components={"schemas": schemas or {}})


def test_every_operation_is_a_tool_with_its_effect_and_its_call() -> None:
    shop = entries(SHOP)
    assert list(shop) == ["getOrder", "deleteOrder", "listOrders", "createOrder"]
    assert shop["getOrder"].tool.effect is ToolEffect.READ
    assert shop["createOrder"].tool.effect is ToolEffect.WRITE
    assert not shop["createOrder"].tool.repeatable
    assert shop["deleteOrder"].tool.idempotent
    assert shop["getOrder"].tool.description == "Gets an order."
    assert shop["getOrder"].group == "Shop orders"
    call = shop["getOrder"].call
    assert call is not None
    assert (call.method, call.path, call.base_url) == ("GET", "/orders/{id}", "https://eu.shop.example/v1")
    assert [each.wire for each in shop["listOrders"].call.parameters] == ["page", "status", "X-Trace"]  # type: ignore[union-attr]


async def test_a_schema_says_what_openapi_3_0_says_otherwise() -> None:
    schema = entries(SHOP)["createOrder"].tool.schema
    check = SchemaCheck(schema, "createOrder")
    assert await check.problem({"body": {"item": "tea", "gift": None, "parts": [{"item": "cup"}]}}) is None
    assert "body" in str(await check.problem({}))
    assert await check.problem({"body": {"item": "tea", "count": 0}}) is not None  # an exclusive bound as a flag
    assert await check.problem({"body": {"item": "tea", "parts": [{"gift": "x"}]}}) is not None  # the recursive part


def test_yaml_and_json_read_the_same() -> None:
    pytest.importorskip("yaml")
    text = "openapi: 3.1.0\ninfo: {title: T, version: 2026-01-01}\npaths:\n  /a:\n    get: {operationId: a}\n"
    found = parse_document(text, "a.yaml")
    assert found["info"] == {"title": "T", "version": "2026-01-01"}  # and no date
    assert list(entries(found)) == ["a"]


def test_an_operation_without_an_id_is_named_by_method_and_path_and_long_names_stay_apart() -> None:
    long = {f"/{'x' * 80}/{n}": {"get": operation()} for n in (1, 2)}
    names = list(entries(document({"/a b/{c}": {"get": operation(parameters=[path_parameter("c")])}, **long})))
    assert names[0] == "get_a_b_c"
    assert len(set(names)) == 3
    assert all(len(name) <= 64 for name in names)


def path_parameter(name: str) -> dict[str, object]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def doubled(levels: int) -> dict[str, object]:
    """Schemas of which each names the next twice, in allOf: 2 ** levels with every reference expanded."""
    made: dict[str, object] = {"S0": {"type": "object"}}
    for level in range(1, levels + 1):
        below = {"$ref": f"#/components/schemas/S{level - 1}"}
        made[f"S{level}"] = {"allOf": [below, below]}
    return made


def nested(levels: int) -> object:
    schema: object = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


LOOP = {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}}
BAD_SCHEMAS: list[tuple[object, Mapping[str, object], str]] = [
    ({"$ref": "#/components/schemas/S40"}, doubled(40), "schemas apply to one value"),
    ({"$ref": "#/components/schemas/A"}, LOOP, "leads back to itself"),
    ({"$ref": "#/components/schemas/None"}, {}, "leads nowhere"),
    ({"$ref": "https://elsewhere.example/schema"}, {}, "leads out of the document"),
    ({"$ref": "other.yaml#/Order"}, {}, "leads out of the document"),
    (nested(80), {}, "nested deeper than"),
    ({"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(20_000)}}, {}, "more than"),
    ({"type": "object", "required": "name"}, {}, "required"),
    ({"type": 7}, {}, "type"),
    ("a text", {}, "expected a schema"),
    ({"enum": [list(range(50_000))]}, {}, "more than"),
]


@pytest.mark.parametrize(("schema", "schemas", "what"), BAD_SCHEMAS, ids=range(len(BAD_SCHEMAS)))
def test_a_schema_that_cannot_be_used_is_refused_with_its_place_and_the_others_stay(
    schema: object, schemas: Mapping[str, object], what: str
) -> None:
    began = time.process_time()
    read = read_openapi("shop", with_body(schema, schemas), "shop.json")
    assert time.process_time() - began < 10
    assert [each.tool.name for each in read.entries] == ["good"]
    (refused,) = read.refused
    assert refused.name == "bad"
    assert refused.reason.startswith("catalogue shop, tool bad: ")
    assert what in refused.reason
    assert "$." in refused.reason


def test_a_parameter_that_refers_to_itself_is_refused_with_its_place() -> None:
    parameters = {"P": {"$ref": "#/components/parameters/Q"}, "Q": {"$ref": "#/components/parameters/P"}}
    looped = operation(operationId="bad", parameters=[{"$ref": "#/components/parameters/P"}])
    paths = {"/x": {"get": looped}, "/y": {"get": operation(operationId="good")}}
    whole = document(paths, components={"parameters": parameters})
    assert "leads back to itself" in refusals(whole)["bad"]
    assert "parameters[0]" in refusals(whole)["bad"]
    assert list(entries(whole)) == ["good"]


def test_two_tools_of_one_name_are_both_refused() -> None:
    same = {f"/{n}": {"get": operation(operationId="same")} for n in (1, 2)}
    whole = document({**same, "/3": {"get": operation(operationId="other")}})
    assert list(entries(whole)) == ["other"]
    assert refusals(whole) == {"same": "catalogue shop: 2 tools are named same; expected one"}


def test_a_description_of_ten_megabytes_is_refused_and_names_its_tool() -> None:
    whole = document({"/a": {"get": operation(operationId="a", description="x" * 10_000_000)}})
    assert (
        refusals(whole)["a"]
        == "catalogue shop, tool a: a description of 10,000,000 characters; expected at most 100,000"
    )


@pytest.mark.parametrize(
    ("paths", "what"),
    [
        ({"/x/{id}": {"get": operation(operationId="bad")}}, "the path's parameters"),
        ({"/x": {"get": operation(operationId="bad", parameters=[path_parameter("id")])}}, "the path's parameters"),
        ({"/x": {"get": operation(operationId="bad", parameters=[{"name": "a"}])}}, "in = path, query"),
        (
            {
                "/x": {
                    "post": operation(operationId="bad", requestBody={"required": True, "content": {"image/png": {}}})
                }
            },
            "found image/png",
        ),
        (
            {"/x": {"get": operation(operationId="bad", parameters=[{"name": "s", "in": "cookie", "required": True}])}},
            "cookie",
        ),
    ],
)
def test_an_operation_that_cannot_be_called_is_refused(paths: Mapping[str, object], what: str) -> None:
    assert what in refusals(document(paths))["bad"]


@pytest.mark.parametrize(
    ("whole", "what"),
    [
        ({"swagger": "2.0"}, "expected openapi 3.0 or 3.1, found 2.0"),
        ({}, "found nothing"),
        ({"openapi": "4.0"}, "found 4.0"),
        ({"openapi": "3.1.0", "paths": []}, r"\$.paths: expected an object"),
    ],
)
def test_another_document_is_refused(whole: Mapping[str, object], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        read_openapi("shop", whole, "shop.json")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "a: " + "[" * 100_000,
        "a: &a [x]\nb: &b [*a, *a]\n<<: [*b, *b]",
        "? [a]\n: b",
        "\x00",
        "- a",
        "!!python/object/apply:os.system ['true']",
        "a: &a [" + "*a, " * 20_000 + "]",
        '{"a": ',
    ],
)
def test_what_is_no_document_is_refused_in_bounded_time(text: str) -> None:
    pytest.importorskip("yaml")
    began = time.process_time()
    with pytest.raises(ConfigError):
        read_openapi("shop", parse_document(text, "evil.yaml"), "evil.yaml")
    assert time.process_time() - began < 10


def test_reading_is_the_same_after_json() -> None:
    again = json.loads(json.dumps(SHOP))
    assert {name: each.pin for name, each in entries(again).items()} == {n: e.pin for n, e in entries(SHOP).items()}
    assert COMPONENTS["parameters"]
