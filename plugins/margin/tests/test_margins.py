"""Rate plans: the margin of a key's requests is kept while prices change, at each class on its own."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from serving import At, served
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.config.container import load_config
from shikisha.core.budget import Amount
from shikisha.core.errors import ConfigError
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server
from shikisha_margin.margins import MarginAccount, PlanMargins, RatePlan

BEST, CHEAP = "fixed:best", "fixed:cheap"


def _serve(account: MarginAccount, prices: dict[str, float], requests: int, seed: int) -> float:
    """Serve so many requests, up to eight at once, and return what they cost together."""
    rng, open_requests, spent = random.Random(seed), [], 0.0
    for _ in range(requests):
        open_requests.append(account.book(account.choose([BEST, CHEAP])))
        while len(open_requests) > rng.randrange(9):
            done = open_requests.pop(rng.randrange(len(open_requests)))
            cost = prices[done.conductor] * rng.uniform(0.5, 1.5)
            spent += cost
            done.settle(Amount(0, cost), paid=True)
    for left in open_requests:
        spent += prices[left.conductor]
        left.settle(Amount(0, prices[left.conductor]), paid=True)
    return spent


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_price_that_triples_keeps_the_margin_within_two_points(seed: int) -> None:
    revenue, account = 0.01, MarginAccount(allowance=0.004)
    before = _serve(account, {BEST: 0.006, CHEAP: 0.0005}, 1000, seed)
    after = _serve(account, {BEST: 0.018, CHEAP: 0.0005}, 1000, seed + 10)
    for spent in (before, after):
        assert 1 - spent / (1000 * revenue) == pytest.approx(0.6, abs=0.02)


def test_what_is_saved_is_bounded_and_so_is_the_debt() -> None:
    account = MarginAccount(allowance=1.0, burst=5)
    for _ in range(100):
        account.book(CHEAP).settle(Amount(0, 0.0), paid=True)
    assert account.balance == 5.0
    account.book(BEST).settle(Amount(0, 1000.0), paid=True)
    assert account.balance == -50.0
    assert account.choose([BEST, CHEAP]) == CHEAP


def test_what_has_no_answer_brings_nothing_and_a_second_settlement_does_nothing() -> None:
    account = MarginAccount(allowance=1.0)
    request = account.book(BEST)
    request.settle(Amount(0, 0.25), paid=False)
    request.settle(Amount(0, 9.0), paid=True)
    assert account.balance == -0.25
    assert account.mean_cost(BEST) is None, "what ended early says little of what requests cost"


def test_a_resumed_run_is_charged_what_it_uses_from_then_on() -> None:
    account = MarginAccount(allowance=1.0)
    account.book(BEST, Amount(0, 0.5)).settle(Amount(0, 0.75), paid=True)
    assert account.balance == 0.75


def test_a_cost_that_nobody_has_heard_of_for_long_is_tried_again() -> None:
    now = [0.0]
    account = MarginAccount(allowance=1.0, clock=lambda: now[0])
    account.book(BEST).settle(Amount(0, 9.0), paid=True)
    account.balance = 0.0
    assert account.choose([BEST, CHEAP]) == CHEAP
    now[0] = 3600.0
    assert account.choose([BEST, CHEAP]) == BEST


def test_a_client_cannot_open_an_account_with_a_class_of_its_own() -> None:
    margins = PlanMargins([RatePlan("pro", {"": 1.0, "code": 2.0}, tenants=("acme",))])
    plan = margins.plan_of("acme", "k")
    assert plan is not None
    assert margins.account(plan, "mine") is margins.account(plan, "other") is margins.account(plan, "")
    assert margins.account(plan, "code").allowance == 2.0
    assert margins.plan_of("another", "k") is None


def test_a_conductor_that_a_key_may_not_use_is_passed_over() -> None:
    margins = PlanMargins([RatePlan("pro", {"": 1.0}, (BEST, CHEAP))])
    by = Principal("k", "", "acme", frozenset({KeyScope.RUN}))
    booked = margins.admit(by, "", "own", lambda spec: spec == CHEAP)
    assert booked is not None
    assert booked.conductor == CHEAP
    chosen = margins.admit(by, "", "own", None)
    assert chosen is not None
    assert chosen.conductor == "own", "the client asked for this one"


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("revenue_per_1k = 0", "expected more than 0"),
        ("revenue_per_1k = 1\nmargin = 1.0", "less than 1"),
        ('revenue_per_1k = 1\nover = "ask"', "'degrade' or 'refuse'"),
        ('revenue_per_1k = 1\nconductors = ["fixed:single", "fixed:single"]', "each one once, the best first"),
        ("revenue_per_1k = 1\nburst = 0", "expected at least 1"),
        ("margin = 0.5", "plans.pro.revenue_per_1k: is missing"),
        ('revenue_per_1k = 1\n[plans.pro.classes.""]\nmargin = 0.1', "the name of a task domain"),
        ("revenue_per_1k = inf", "finite"),
    ],
)
def test_a_plan_that_cannot_be_kept_is_refused(tmp_path: Path, table: str, why: str) -> None:
    file = tmp_path / "shikisha.toml"
    file.write_text(f"[plans.pro]\n{table}\n")
    with pytest.raises(ConfigError, match=why):
        load_config(file)


FILE = """
conductor = "fixed:single?worker=first"
[workers.first]
kind = "chat"
model = "m1"
base_url = "{url}"
[workers.second]
kind = "chat"
model = "m2"
base_url = "{url}"
[plans.pro]
revenue_per_1k = 10.0
margin = 0.6
conductors = ["fixed:single?worker=second", "fixed:single?worker=first"]
tenants = ["acme"]
{more}
"""


@asynccontextmanager
async def _serving(folder: Path, dollars: Mapping[str, float], more: str, drop: str = "") -> AsyncIterator[At]:
    """Serve two workers of an endpoint that states what an answer costs, by its model."""

    def answers(asked: ReceivedChatRequest) -> ScriptedAnswer:
        return ScriptedAnswer(text="fine", cost=dollars[asked.model])

    async with chat_server(answers) as url, served(folder, FILE.format(url=url, more=more).replace(drop, "")) as at:
        yield at


async def _ask(at: At, key: str, count: int) -> list[int]:
    """Ask so often, one after the other; return the statuses."""
    async with at.http(key) as http:
        asked = {"model": "shikisha", "messages": [{"role": "user", "content": "hello"}]}
        return [(await http.post("/v1/chat/completions", json=asked)).status_code for _ in range(count)]


async def _tripled(folder: Path) -> tuple[str, str, set[str]]:
    """Serve before and after a price triples; return the configuration, the key's id, and who conducted."""
    dollars = {"m2": 0.006, "m1": 0.0005}
    async with _serving(folder, dollars, "burst = 5") as at:
        key = await at.issue(KeyScope.RUN, KeyScope.READ, tenant="acme")
        assert set(await _ask(at, key.secret, 60)) == {200}
        dollars["m2"] = 0.018
        assert set(await _ask(at, key.secret, 60)) == {200}
        async with at.http() as http:
            runs = (await http.get("/runs?limit=200")).json()["data"]
        assert at.service is not None
        return str(at.service.container.file), key.key.id, {run["conductor"] for run in runs}


def test_the_server_keeps_the_margin_when_a_vendor_triples_its_price(tmp_path: Path) -> None:
    file, key, conductors = asyncio.run(_tripled(tmp_path))
    assert conductors == {"fixed:single?worker=second", "fixed:single?worker=first"}
    shown = CliRunner().invoke(app, ["margin", "--config", file, "--json"])
    (row,) = json.loads(shown.stdout)
    assert (row["plan"], row["key"], row["requests"], row["answered"]) == ("pro", key, 120, 120)
    assert row["revenue"] == pytest.approx(1.2)
    assert row["margin"] == pytest.approx(0.6, abs=0.05), "a burst of 5 is 2 points of 120 requests"
    text = CliRunner().invoke(app, ["margin", "--config", file])
    assert f"{row['margin']:.1%}" in text.stdout


async def test_a_plan_that_refuses_says_what_requests_cost_and_what_they_may(tmp_path: Path) -> None:
    costs, cheaper = {"m1": 0.2, "m2": 0.2}, ', "fixed:single?worker=first"'
    async with _serving(tmp_path, costs, 'over = "refuse"', cheaper) as at:
        key = await at.issue(KeyScope.RUN, tenant="acme")
        assert await _ask(at, key.secret, 2) == [200, 402]
        async with at.http(key.secret) as http:
            came = await http.post("/runs", json={"prompt": "hello"})
            error = came.json()["error"]
        assert error["code"] == "margin"
        assert "cost $0.20 each at present, and $0.004 is what they may cost (plans.pro)" in error["message"]
        other = await at.issue(KeyScope.RUN, tenant="another")
        assert await _ask(at, other.secret, 1) == [200], "a key without a rate plan is served as ever"


def test_margin_without_plans_or_of_an_unknown_one_says_so(tmp_path: Path) -> None:
    file = tmp_path / "shikisha.toml"
    file.write_text("")
    shown = CliRunner().invoke(app, ["margin", "--config", str(file)])
    assert shown.exit_code == 3
    file.write_text("[plans.pro]\nrevenue_per_1k = 1.0\n")
    shown = CliRunner().invoke(app, ["margin", "--config", str(file), "--plan", "gold"])
    assert shown.exit_code == 2
