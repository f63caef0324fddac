"""`/v1/tools/search`: the tools of pinned catalogues, over HTTP."""

import json
from pathlib import Path

from openapi_documents import SHOP
from responding import by_model, responding

from shikisha.tools.catalogue_source import read_openapi
from shikisha.tools.lock_file import CatalogueLock, write_lock

TABLES = """
[catalogues.shop]
kind = "openapi"
source = "shop.json"

[catalogues.bank]
kind = "openapi"
source = "bank.json"
"""


async def test_tools_are_searched_and_what_cannot_be_is_said(tmp_path: Path) -> None:
    lock = CatalogueLock("shop", "shop.json", read_openapi("shop", SHOP, "shop.json").entries)
    write_lock(lock, tmp_path / "shop.tools.jsonl")
    async with responding(tmp_path, by_model, end=TABLES) as (at, _), at.http() as http:
        asked = {"query": "delete this order", "catalogues": ["shop"], "limit": 2}
        answer = await http.post("/v1/tools/search", json=asked)
        assert answer.status_code == 200
        found = answer.json()["data"]
        assert found[0]["name"] == "deleteOrder"
        assert len(found) == 2
        assert found[0].items() >= {"catalogue": "shop", "effect": "write"}.items()
        refused: list[tuple[dict[str, object], int, str]] = [
            ({"query": "x", "catalogues": ["nobody"]}, 404, "catalogue_not_found"),
            ({"query": "x"}, 503, "catalogue_unusable"),  # the bank is not pinned
            ({"query": ""}, 400, "invalid_value"),
            ({"query": "x", "limit": 1000}, 400, "invalid_value"),
        ]
        for body, status, code in refused:
            answer = await http.post("/v1/tools/search", json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), json.dumps(body)
