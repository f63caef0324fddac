"""`shikisha keys`: what a person at a terminal does with the keys of a server."""

import asyncio
from pathlib import Path

import pytest
from authenticator import Authenticator
from test_cli import Cli

from shikisha.cli.exit_codes import ExitCode
from shikisha.journal import open_journal
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys import Key, KeyManager, KeyRefusal
from shikisha.server.keys.passkeys import Passkeys, PasskeySite


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


async def found(cli: Cli, secret: str) -> Key | KeyRefusal:
    """What a server finds for a secret."""
    async with open_journal(str(cli.folder / "shikisha.db")) as journal:
        return await KeyManager(journal).find(secret)


def test_a_key_is_made_used_and_taken_back(cli: Cli) -> None:
    made = cli("keys", "create", "Ann", "--tenant", "acme", "--scope", "run", "--worker", "a", "--dollars", "2").strip()
    key = asyncio.run(found(cli, made))
    assert isinstance(key, Key)
    assert (key.name, key.tenant, sorted(key.scopes), key.workers) == ("Ann", "acme", ["run"], ("a",))
    assert key.caps.dollars == 2.0
    assert made not in cli("keys", "list") + cli.said
    again = cli("keys", "revoke", key.id, "--renew").strip()
    assert asyncio.run(found(cli, made)) is KeyRefusal.UNKNOWN
    cli("keys", "revoke", again)
    assert again not in cli.said
    assert asyncio.run(found(cli, again)) is KeyRefusal.REVOKED
    assert "revoked" in cli("keys", "list")


def test_json_has_the_secret_once(cli: Cli) -> None:
    made = cli.json("keys", "create", "Ann", "--label", "confidential", "--days", "1")
    assert str(made["secret"]).startswith(f"sk-shikisha-{made['id']}-")
    assert made["labels"] == ["confidential"]
    assert "secret" not in cli.json("keys", "budget", str(made["id"]))


def test_a_budget_is_shown_and_changed(cli: Cli) -> None:
    key = str(cli.json("keys", "create", "Ann", "--cap", "dollars=1", "--cap", "tokens=10")["id"])
    told = cli.json("keys", "budget", key, "--cap", "dollars=none", "--cap", "requests-per-day=5")
    caps = told["caps"]
    assert isinstance(caps, dict)
    assert (caps["dollars"], caps["tokens"], caps["requests_per_day"], told["used"]) == (None, 10, 5, [])
    assert "tokens 10, requests per day 5" in cli("keys", "budget", key)


def test_a_link_logs_a_device_in_once_and_passkeys_are_listed_and_removed(cli: Cli) -> None:
    key = str(cli.json("keys", "create", "Ann", "--scope", "approve")["id"])
    told = cli.json("keys", "devices", key, "--link", "--url", "https://ai.example.com/")
    link, _, token = str(told["link"]).partition("#")
    assert (link, told["seconds"]) == ("https://ai.example.com/ui/link", 300)

    async def use() -> str:
        async with open_journal(str(cli.folder / "shikisha.db")) as journal:
            passkeys = Passkeys(KeyManager(journal))
            taken = await passkeys.take_link(token)
            with pytest.raises(ApiError, match="used before"):
                await passkeys.take_link(token)
            site = PasskeySite("localhost", "http://localhost")
            options = await passkeys.registration_options(taken, site, "")
            await passkeys.register(taken, Authenticator(site.origin, site.host).make(options), "phone")
            return taken.id

    assert asyncio.run(use()) == key
    shown = cli("keys", "devices", key, "--link", "--url", "http://192.0.2.1:8100")
    assert "█" in cli.said
    assert shown.startswith("http://192.0.2.1:8100/ui/link#")
    assert "phone" in cli("keys", "devices", key)
    assert "no passkeys" in cli("keys", "devices", key, "--remove", "all") + cli.said
    assert len(cli("init", "--vapid").strip()) == 43


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["devices", "nobody", "--link", "--url", "https://x.example"], "there is no valid key"),
        (["devices", "nobody", "--link"], "expected the address"),
        (["create", "a", "--days", "0"], "expected more than 0"),
        (["create", "a", "--days", "inf"], "expected a number"),
        (["create", "a", "--scope", "god"], "expected one of run, read, approve, admin"),
        (["create", "a", "--worker", "nobody"], "no worker 'nobody'"),
        (["create", "a", "--cap", "tokens=many"], "a cap is a number or none, not 'many'"),
        (["revoke", "nobody"], "there is no key 'nobody'"),
        (["revoke", "nobody", "--renew"], "there is no key 'nobody'"),
        (["budget", "nobody", "--dollars", "1"], "there is no key 'nobody'"),
        (["budget", "nobody"], "there is no key 'nobody'"),
    ],
)
def test_what_cannot_be_done_is_said(cli: Cli, arguments: list[str], said: str) -> None:
    cli("keys", "create", "first")
    cli("keys", *arguments, code=ExitCode.INPUT)
    assert said in cli.said


def test_a_cap_below_nothing_is_refused(cli: Cli) -> None:
    cli("keys", "create", "a", "--dollars", "-1", code=ExitCode.CONFIG)
    assert "expected a number from 0" in cli.said
