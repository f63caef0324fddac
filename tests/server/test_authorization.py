"""What a request may narrow, which models there are, and which workers are left for an order."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi import Request
from serving import served

from shikisha.config.container import Container, build_container, load_config
from shikisha.config.settings import ServerTable
from shikisha.core.budget import Caps
from shikisha.core.fair_work import WORK_OWNER, WorkOwner
from shikisha.core.messages import Attachment, Json, MediaKind
from shikisha.core.task import Task
from shikisha.server.chat.models import ModelCatalog
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.auth import MAX_WAITING, authenticate, limited_client
from shikisha.server.http.request import MetadataDetail, read_request_options
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.authorization import Api, AuthorizedRun, RequestedRun, RunAuthorizer
from shikisha.server.ops.watchdog import run_context

FILE = """
conductor = "plain"
[workers.dear]
kind = "chat"
model = "d"
sees = ["secret"]
price = {input = 10.0, output = 30.0}
takes = ["image"]
[workers.cheap]
kind = "chat"
model = "c"
price = {input = 0.1, output = 0.4}
tools = true
[workers.fixed]
kind = "scripted"
[conductors.plain]
kind = "fixed"
topology = "single"
[conductors.named]
kind = "fixed"
topology = "single"
roles = {worker = "dear"}
[conductors.thrifty]
kind = "fixed"
topology = "single"
roles = {worker = "cheap"}
[labels]
guarded = ["secret"]
[budgets]
dollars = 1.0
steps = 10
"""
SERVED = """
conductor = "fixed:single"
[server]
port = 0
[workers.a]
kind = "scripted"
answers = "42"
"""
IMAGE = Attachment(MediaKind.IMAGE, url="https://example.com/a.png")
TOOL: Mapping[str, Json] = {"type": "function", "function": {"name": "add"}}


@pytest.fixture
def composition(tmp_path: Path) -> Container:
    file = tmp_path / "shikisha.toml"
    file.write_text(FILE)
    return load_config(file, {})


def someone(
    *, workers: tuple[str, ...] | None = None, conductors: tuple[str, ...] | None = None, label: str = ""
) -> Principal:
    labels = (label,) if label else ()
    return Principal("k1", "me", "ours", frozenset({KeyScope.RUN}), workers, conductors, labels)


def order(
    composition: Container,
    by: Principal | None = None,
    task: Task | None = None,
    model: str = "shikisha",
    **headers: str,
) -> AuthorizedRun:
    named = {f"x-shikisha-{name.replace('_', '-')}": value for name, value in headers.items()}
    wish = RequestedRun(model, task or Task("hello"), Api.CHAT, read_request_options(named))
    return RunAuthorizer(composition, ModelCatalog(composition)).authorize(wish, by or someone())


@pytest.mark.parametrize(
    ("peer", "forwarded", "found"),
    [
        ("203.0.113.5", [], "203.0.113.5/32"),
        ("203.0.113.5", ["198.51.100.1"], "203.0.113.5/32"),  # a stranger says so
        ("127.0.0.1", ["198.51.100.1"], "198.51.100.1/32"),
        ("127.0.0.1", ["9.9.9.9, 198.51.100.1"], "198.51.100.1/32"),  # what the proxy was sent, and what it saw
        ("127.0.0.1", ["9.9.9.9", "198.51.100.1, 10.1.2.3"], "198.51.100.1/32"),  # two proxies
        ("127.0.0.1", ["10.1.2.3, 10.1.2.4"], "10.1.2.3/32"),
        ("::ffff:127.0.0.1", ["2001:db8::1:2"], "2001:db8::/64"),
        ("127.0.0.1", ["2001:db8:0:0:ffff::9"], "2001:db8::/64"),
        ("127.0.0.1", ["nonsense"], "127.0.0.1/32"),
        ("127.0.0.1", ["198.51.100.1, nonsense"], "127.0.0.1/32"),
        ("", ["198.51.100.1"], "unknown"),
    ],
)
def test_an_address_is_taken_from_a_trusted_proxy_and_from_nobody_else(
    peer: str, forwarded: list[str], found: str
) -> None:
    settings = ServerTable(proxies=("127.0.0.0/8", "10.0.0.0/8"))
    app = SimpleNamespace(state=SimpleNamespace(service=SimpleNamespace(settings=settings)))
    headers = [(b"x-forwarded-for", each.encode()) for each in forwarded]
    request = Request({"type": "http", "app": app, "client": (peer, 1) if peer else None, "headers": headers})
    assert limited_client(request).removesuffix("/32") == found.removesuffix("/32")


def refused(status: int, code: str, composition: Container, *args: object, **headers: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        order(composition, *args, **headers)  # type: ignore[arg-type]  # passed on as they are
    assert (caught.value.status, caught.value.code) == (status, code)
    return caught.value


def test_headers_narrow_caps_and_workers_and_add_labels(composition: Container) -> None:
    made = order(
        composition, budget_dollars="0.25", budget_steps="2", workers="dear, cheap", labels="green", domain="x"
    )
    assert (made.caps.dollars, made.caps.steps, made.caps.seconds) == (0.25, 2, Caps().seconds)
    assert made.pool == ("dear", "cheap")
    assert (made.task.labels, made.task.domain) == (("green",), "x")


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"budget_dollars": "2"}, 400, "budget_widened"),
        ({"budget_steps": "11"}, 400, "budget_widened"),
        ({"budget_dollars": "-1"}, 400, "invalid_header"),
        ({"budget_dollars": "nan"}, 400, "invalid_header"),
        ({"budget_tokens": "1.5"}, 400, "invalid_header"),
        ({"workers": "dear,,cheap"}, 400, "invalid_header"),
        ({"workers": "nobody"}, 400, "no_worker"),
        ({"metadata": "everything"}, 400, "invalid_header"),
        ({"progress": "loud"}, 400, "invalid_header"),
        ({"colour": "red"}, 400, "invalid_header"),
    ],
)
def test_a_header_that_does_not_narrow_is_refused(
    composition: Container, headers: dict[str, str], status: int, code: str
) -> None:
    assert "X-Shikisha-" in refused(status, code, composition, **headers).message


def test_without_headers_nothing_is_narrowed() -> None:
    plain = read_request_options({"content-type": "application/json"})
    assert (plain.workers, plain.labels, plain.detail, plain.progress) == (None, (), MetadataDetail.NONE, False)
    assert plain.narrow_caps(Caps(steps=3)) == Caps(steps=3)


def test_a_key_s_workers_are_all_that_there_are(composition: Container) -> None:
    assert order(composition, someone(workers=("cheap",))).pool == ("cheap",)
    refused(403, "no_worker", composition, someone(workers=("cheap",)), workers="dear")
    refused(403, "no_worker", composition, someone(workers=("gone",)))


def test_only_workers_that_are_cleared_for_the_labels_are_left(composition: Container) -> None:
    assert order(composition, someone(label="secret")).pool == ("dear",)
    assert order(composition, labels="secret").pool == ("dear",)
    refused(403, "not_cleared", composition, someone(workers=("cheap",), label="secret"))


def test_only_workers_that_can_do_what_the_task_needs_are_left(composition: Container) -> None:
    assert order(composition, task=Task("look", attachments=(IMAGE,)), workers="dear,cheap").pool == ("dear",)
    assert order(composition, task=Task("add", tools=(TOOL,)), workers="dear,cheap").pool == ("cheap",)
    refused(400, "unsupported_content", composition, someone(workers=("cheap",)), Task("look", attachments=(IMAGE,)))
    refused(400, "unsupported_tools", composition, someone(workers=("dear",)), Task("add", tools=(TOOL,)))


@pytest.mark.parametrize(
    ("task", "by", "headers", "code", "why"),
    [
        (Task("look", attachments=(IMAGE,)), None, {}, "unsupported_content", "takes no attachments of the kind image"),
        (Task("hello"), ("dear",), {}, "no_worker", "which this key may not use"),
        (Task("hello"), None, {"workers": "dear,fixed"}, "no_worker", "which X-Shikisha-Workers leaves out"),
        (Task("hello"), None, {"labels": "secret"}, "not_cleared", "which is not cleared for data labelled secret"),
    ],
)
def test_a_conductor_whose_worker_is_taken_away_is_told_by_what(
    composition: Container, task: Task, by: tuple[str, ...] | None, headers: dict[str, str], code: str, why: str
) -> None:
    by_whom = someone(workers=by)
    told = refused(400, code, composition, by_whom, task, "shikisha/thrifty", **headers).message
    assert told.startswith("the model 'shikisha/thrifty' needs the worker 'cheap', ")
    assert why in told
    assert "unknown" not in told


def test_a_conductor_whose_worker_cannot_call_tools_says_so(composition: Container) -> None:
    told = refused(400, "unsupported_tools", composition, None, Task("add", tools=(TOOL,)), "shikisha/named").message
    assert "needs the worker 'dear', which cannot call a client's tools" in told


def test_a_conductor_that_misses_its_worker_is_refused_before_anything_begins(composition: Container) -> None:
    said = refused(400, "no_worker", composition, someone(workers=("cheap",)), None, "shikisha/named").message
    assert "dear" in said


def test_the_names_are_a_rolling_one_a_pin_one_a_conductor_and_a_cheap_one(composition: Container) -> None:
    catalogue = ModelCatalog(composition, created=1_780_000_000)
    names = [model.name for model in catalogue.listed(someone())]
    assert names == ["shikisha", catalogue.pin, "shikisha/plain", "shikisha/named", "shikisha/thrifty", "shikisha-mini"]
    assert catalogue.pin.startswith("shikisha-2026-05-28-")
    assert order(composition, model="shikisha-mini").conductor == "fixed:single?worker=cheap"


def test_a_pin_holds_while_the_configuration_does(composition: Container, tmp_path: Path) -> None:
    pin = ModelCatalog(composition).pin
    earlier = f"shikisha-2020-01-01-{pin[-8:]}"
    assert ModelCatalog(composition).find(earlier, someone()).name == pin
    file = tmp_path / "shikisha.toml"
    file.write_text(FILE.replace("10.0", "11.0"))
    with pytest.raises(ApiError, match=r"is no more: .* known are: shikisha, ") as caught:
        ModelCatalog(load_config(file, {})).find(pin, someone())
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


def test_a_key_s_conductors_are_all_that_it_sees(composition: Container) -> None:
    by = someone(conductors=("named",))
    assert [model.name for model in ModelCatalog(composition).listed(by)] == ["shikisha/named"]
    refused(403, "model_not_allowed", composition, by)
    refused(404, "model_not_found", composition, by, None, "gpt-4o")


def test_who_asks_for_simulated_workers_has_them() -> None:
    container = build_container({"pool": ["simulated"]}, "here", Path(), {})
    catalogue = ModelCatalog(container)
    mini = catalogue.find("shikisha-mini", someone())
    assert mini.spec(container.cards()) == "fixed:single?worker=simulated-small"


def test_a_task_is_the_tenants_of_the_key_whatever_the_request_says(composition: Container) -> None:
    assert order(composition).task.tenant == "ours"
    assert order(composition, task=Task("hello", tenant="theirs")).task.tenant == "ours"


async def test_work_is_its_key_s_from_the_request_to_the_end_of_the_run(tmp_path: Path) -> None:
    """A request's work is bounded, and a run's, which was accepted, is not."""
    async with served(tmp_path, SERVED) as at:
        assert at.service is not None
        key = await at.service.keys.find(at.key)
        app = SimpleNamespace(state=SimpleNamespace(service=at.service))
        headers = [(b"authorization", f"Bearer {at.key}".encode())]
        request = Request({"type": "http", "app": app, "client": None, "headers": headers, "state": {}})
        assert await authenticate(request) == key
        assert WORK_OWNER.get() == WorkOwner(key.id, MAX_WAITING)
        assert run_context("r", "k").run(WORK_OWNER.get) == WorkOwner("k")
