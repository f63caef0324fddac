"""`shikisha tools`: catalogues pinned, compared, imported, searched and tried at the command line."""

import json
from pathlib import Path

import pytest
from openapi_documents import SHOP, document, operation
from test_cli import CONFIG, Cli

from shikisha.cli.exit_codes import ExitCode
from shikisha.testing import closed_port

BASE = f'base_url = "{closed_port()}"'
TABLE = f"""
[catalogues.shop]
kind = "openapi"
source = "shop.json"
{BASE}
timeout = 2.0
attempts = 1
"""
PLAIN = TABLE.replace(BASE, "")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    made = Cli(tmp_path)
    (tmp_path / "shop.json").write_text(json.dumps(SHOP))
    made.config.write_text(CONFIG + TABLE)
    return made


def test_a_catalogue_is_pinned_compared_and_searched(cli: Cli) -> None:
    assert "catalogue shop is not pinned" in refused(cli, "tools", "find", "order")
    told = cli("tools", "pin")
    assert "4 tools pinned" in told
    assert "4 added: createOrder, deleteOrder, getOrder, listOrders" in cli.said
    assert cli("tools", "pin", "--check") == "shop: as pinned\n"
    found = cli.json("tools", "find", "delete this order, please", "-n", "2")["tools"]
    assert isinstance(found, list)
    assert found[0]["name"] == "deleteOrder"
    assert len(found) == 2
    assert found[0]["effect"] == "write"
    assert "shop/deleteOrder" in cli("tools", "find", "delete this order, please")


def refused(cli: Cli, *arguments: str, code: int = ExitCode.CONFIG) -> str:
    cli(*arguments, code=code)
    return cli.said


def test_what_changed_is_named_before_and_after_pinning(cli: Cli) -> None:
    cli("tools", "pin", "shop")
    paths = {**SHOP["paths"], "/refunds": {"post": operation(operationId="refund")}}  # type: ignore[dict-item]
    del paths["/orders/{id}"]
    paths["/twice"] = {method: operation(operationId="same") for method in ("get", "put")}
    (cli.folder / "shop.json").write_text(json.dumps(document(paths, components=SHOP["components"])))
    assert cli("tools", "pin", "--check", code=ExitCode.FAILED) == "shop: NOT as pinned\n"
    assert "1 added: refund" in cli.said
    assert "2 removed: deleteOrder, getOrder" in cli.said
    assert "refused: catalogue shop: 2 tools are named same" in cli.said
    assert shown(cli, "get order")[0]["name"] != "refund"  # the lock decides, not the source
    told = cli.json("tools", "pin")
    assert told["catalogues"]["shop"].items() >= {"tools": 3, "removed": ["deleteOrder", "getOrder"]}.items()  # type: ignore[index]
    assert shown(cli, "refund")[0]["name"] == "refund"


def shown(cli: Cli, query: str) -> list[dict[str, object]]:
    found = cli.json("tools", "find", query)["tools"]
    assert isinstance(found, list)
    return found


def test_a_call_is_a_journaled_run_with_its_fault(cli: Cli) -> None:
    cli("tools", "pin")
    told = cli.json("tools", "try", "shop/getOrder", '{"id": "7"}', code=ExitCode.FAILED)
    assert "catalogue shop, tool getOrder: " in str(told["fault"])
    assert str(told["run"]) in cli("runs", "--json")
    assert "id" in refused(cli, "tools", "try", "shop/getOrder", code=ExitCode.FAILED)  # the argument that is missing
    assert "unknown tool of catalogue shop 'getOrders'" in refused(cli, "tools", "try", "shop/getOrders")
    assert "expected CATALOGUE/TOOL" in refused(cli, "tools", "try", "shop", code=ExitCode.INPUT)


def test_doctor_names_the_tools_that_write_without_a_person(cli: Cli) -> None:
    cli("tools", "pin")
    assert "no person approves what may write: createOrder, deleteOrder" in cli("doctor")
    cli.config.write_text(CONFIG + TABLE + 'approval = "writes"\n')
    assert "no person approves" not in cli("doctor")
    cli("tools", "try", "shop/deleteOrder", '{"id": "7"}', code=ExitCode.WAITING)
    lock = cli.folder / "shop.tools.jsonl"
    lock.write_text(lock.read_text().replace("Deletes an order", "Deletes all orders"))
    assert "tool deleteOrder is not what was pinned" in cli("doctor", code=ExitCode.CONFIG)


def test_import_prints_the_table_that_configures_a_document(cli: Cli) -> None:
    source = cli.folder / "shop.json"
    table = cli("tools", "import", str(source))
    assert "4 tools, of which 2 may write; 0 refused" in cli.said
    cli.config.write_text(CONFIG + table)
    assert "4 tools pinned" in cli("tools", "pin", "shop")
    assert "expected openapi 3.0 or 3.1" in refused(cli, "tools", "import", str(swagger(cli.folder)))


def swagger(folder: Path) -> Path:
    (folder / "old.json").write_text('{"swagger": "2.0"}')
    return folder / "old.json"


def test_a_server_that_nobody_named_is_refused_and_one_that_moved_is_said(cli: Cli) -> None:
    headers = 'headers = { Authorization = "Bearer ${TOKEN}" }\n'
    cli.config.write_text(CONFIG + PLAIN + headers)
    said = refused(cli, "tools", "pin")
    assert "tool getOrder: https://eu.shop.example:443 is refused: the document names it" in said
    assert 'write base_url = "https://eu.shop.example/v1" if they may' in said
    cli.config.write_text(CONFIG + PLAIN + f'base_url = "https://eu.shop.example/v1"\n{headers}')
    assert "4 tools pinned" in cli("tools", "pin")
    assert cli("tools", "pin", "--check") == "shop: as pinned\n"
    moved = {**SHOP, "servers": [{"url": "https://evil.example"}]}
    (cli.folder / "shop.json").write_text(json.dumps(moved))
    assert cli("tools", "pin", "--check", code=ExitCode.FAILED) == "shop: NOT as pinned\n"
    both = "https://eu.shop.example:443, https://evil.example:443"
    assert f"the server is not the one that was pinned: https://eu.shop.example:443 → {both}" in cli.said
    (cli.folder / "shop.json").write_text(json.dumps(SHOP))
    cli.config.write_text(CONFIG + PLAIN + f'base_url = "https://shop.example/v1"\n{headers}')
    told = cli.json("tools", "pin", "--check", code=ExitCode.FAILED)["catalogues"]
    assert "→ https://eu.shop.example:443, https://shop.example:443" in told["shop"]["server"]  # type: ignore[index]
    cli.config.write_text(CONFIG + PLAIN + headers)
    assert cli("tools", "pin", "--check", code=ExitCode.FAILED) == "shop: NOT as pinned\n"
    assert "https://eu.shop.example:443 is refused" in cli.said


def test_names_and_tables_that_are_not_there_are_said(cli: Cli) -> None:
    assert "unknown catalogue 'bank'" in refused(cli, "tools", "pin", "bank")
    cli.config.write_text(CONFIG)
    assert "expected a table [catalogues.NAME]" in refused(cli, "tools", "find", "x")


def test_too_few_runs_teach_nothing(cli: Cli) -> None:
    cli("tools", "pin")
    cli("run", "six times seven?")
    told = refused(cli, "tools", "learn", "shop", "--from-journal", "--out", str(cli.folder / "r.json"))
    assert "expected at least" in told
    assert not (cli.folder / "r.json").exists()
