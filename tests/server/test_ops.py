"""What whoever runs a server sees of it: metrics, whether it lives and is ready, and a log without keys."""

import asyncio
import io
import json
import logging
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving import At, served

from shikisha.core.secrets import SecretStore
from shikisha.server.keys.key import KeyScope
from shikisha.server.ops import logs

QUESTION = {"model": "shikisha", "messages": [{"role": "user", "content": "What is 2 + 2?"}]}


async def scraped(at: At, key: str | None = "") -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample of /metrics, by name and labels; the text must parse."""
    async with at.http(key) as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


async def asked(at: At, key: str = "") -> str:
    """Ask one question, and return the run's id."""
    async with at.http(key) as client:
        answer = await client.post("/v1/chat/completions", json=QUESTION)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-shikisha-run-id"]


async def test_a_run_is_counted_with_its_request_its_calls_and_its_key(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        await asked(at)
        seen = await scraped(at)
    route = (("method", "POST"), ("route", "/v1/chat/completions"), ("status", "200"))
    assert seen["shikisha_requests_total", route] == 1
    assert seen["shikisha_request_seconds_count", (("route", "/v1/chat/completions"),)] == 1
    assert seen["shikisha_runs_total", (("status", "done"),)] == 1
    assert seen["shikisha_runs_begun_total", ()] == 1
    assert sum(value for (name, _), value in seen.items() if name == "shikisha_calls_total") >= 1
    keys = {dict(labels)["key"] for (name, labels) in seen if name == "shikisha_tokens_total"}
    assert len(keys) == 1
    assert at.key not in str(keys)
    assert seen["shikisha_runs_active", ()] == 0
    assert seen["shikisha_lease_seconds_left", ()] > 0
    assert seen["process_resident_memory_bytes", ()] > 1e6


async def test_of_keys_a_reader_sees_those_of_its_own_tenant(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        mine = await at.issue(KeyScope.RUN, KeyScope.READ, tenant="mine")
        other = await at.issue(KeyScope.RUN, tenant="other")
        await asked(at, mine.secret)
        await asked(at, other.secret)
        seen = await scraped(at, mine.secret)
        every = await scraped(at)
    shown, all_shown = (
        {dict(labels)["key"] for (name, labels) in samples if name == "shikisha_tokens_total"}
        for samples in (seen, every)
    )
    assert (shown, all_shown) == ({mine.key.id}, {mine.key.id, other.key.id})


async def test_metrics_need_a_key_that_may_read_and_say_why_not(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        runs_only = await at.issue(KeyScope.RUN)
        for key, status in ((None, 401), ("sk-shikisha-nobody-nothing", 401), (runs_only.secret, 403)):
            async with at.http(key) as client:
                assert (await client.get("/metrics")).status_code == status
        seen = await scraped(at)
    reasons = {dict(labels)["reason"] for (name, labels) in seen if name == "shikisha_refusals_total"}
    assert {"missing_scope"} < reasons


async def test_an_address_that_the_configuration_names_scrapes_without_a_key(tmp_path: Path) -> None:
    async with served(tmp_path, '[telemetry]\nscrape = ["127.0.0.0/8"]\n') as at:
        assert await scraped(at, None)


async def test_health_and_readiness_need_no_key_and_tell_nothing_else(tmp_path: Path) -> None:
    async with served(tmp_path) as at, at.http(None) as client:
        lives, ready = await client.get("/healthz"), await client.get("/readyz")
        assert (lives.status_code, lives.json()) == (200, {"status": "ok"})
        assert (ready.status_code, ready.json()) == (200, {"status": "ready"})


async def test_a_server_that_was_taken_for_dead_is_not_ready(tmp_path: Path) -> None:
    async with served(tmp_path) as at, at.http(None) as client:
        assert at.service is not None
        await at.service.journal.write(at.service.store.member.leave)
        answer = await client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["code"] in {"server_expelled", "journal_unavailable"}
        assert answer.headers["retry-after"] == "1"
        assert (await client.get("/healthz")).status_code == 200


async def test_a_request_and_its_run_are_logged_with_ids_and_nothing_secret(tmp_path: Path) -> None:
    out = io.StringIO()
    undo = logs.configure_logging(SecretStore({}), "debug", out)
    try:
        async with served(tmp_path) as at:
            run = await asked(at)
            async with at.http(None) as client:
                await client.get("/v1/models?api_key=sk-in-a-query", headers={"Authorization": f"Bearer {at.key}x"})
            key = at.key
    finally:
        undo()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    (request,) = [line for line in lines if line.get("route") == "/v1/chat/completions"]
    assert request["run"] == run
    assert request["request"].startswith("req_")
    assert (request["method"], request["status"]) == ("POST", 200)
    assert request["key"]
    assert request["key"] in key
    told = [line["message"] for line in lines if line.get("run") == run and line["logger"] == "shikisha.runs"]
    assert (told[0], told[-1]) == ("run begun", "run ended")
    assert "attempt begun" in told
    assert key not in out.getvalue()
    assert "sk-in-a-query" not in out.getvalue()
    assert "2 + 2" not in out.getvalue()


def record(message: str, *args: object, said: dict[str, object] | None = None) -> logging.LogRecord:
    made = logging.LogRecord("a", logging.INFO, "f", 1, message, args, None)
    made.said = said
    return made


def test_keys_are_masked_wherever_in_a_record_they_are() -> None:
    secret_store = SecretStore({"KEY": "planted-0123456789"})
    secret_store.read("KEY")
    lines = logs.JsonFormatter(secret_store)
    try:
        raise ValueError("with planted-0123456789 inside")
    except ValueError as error:
        held = record("%s", "planted-0123456789", said={"note": "planted-0123456789"})
        held.exc_info = (type(error), error, error.__traceback__)
    line = lines.format(held)
    assert "planted" not in line.replace('"with planted', "")
    assert json.loads(line)["note"] == "[key removed]"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Authorization: Bearer abc.def", "Authorization: Bearer [key removed]"),
        ("sk-shikisha-k1-SECRET was sent", "sk-shikisha-k1-[key removed] was sent"),
        ("postgresql://me:hunter2@host/db", "postgresql://me:[key removed]@host/db"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_what_looks_like_a_key_is_masked_though_no_vault_knows_it(text: str, told: str) -> None:
    assert json.loads(logs.JsonFormatter(SecretStore({})).format(record(text)))["message"] == told


def test_a_record_with_wrong_arguments_is_told_all_the_same() -> None:
    assert (
        json.loads(logs.JsonFormatter(SecretStore({})).format(record("%d apples", "no number")))["message"]
        == "%d apples"
    )


async def test_a_client_that_leaves_is_logged_as_gone(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        host, port = at.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        seen = await scraped(at)
    assert any(name == "shikisha_requests_total" for name, _ in seen)


async def test_invariant_8_a_worker_s_key_is_in_no_log_and_no_metric_when_all_goes_wrong(tmp_path: Path) -> None:
    out, key = io.StringIO(), "planted-0123456789abcdef"
    config = (
        '[workers.gone]\nkind = "chat"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = "PLANTED"\n'
        'attempts = 1\nheaders = { "x-key" = "${PLANTED}" }\n[telemetry]\nlog = "debug"\n'
    )
    async with served(tmp_path, config, {"PLANTED": key}) as at:
        assert at.service is not None
        undo = logs.configure_logging(at.service.container.secret_store, "debug", out)
        try:
            async with at.http() as client:
                question = {"model": "shikisha", "messages": [{"role": "user", "content": f"my key is {key}"}]}
                answer = await client.post("/v1/chat/completions", json=question)
                shown = await client.get("/metrics")
        finally:
            undo()
    assert answer.status_code >= 400
    assert 'worker="gone"' in shown.text
    assert "attempt ended" in out.getvalue()
    assert [where for where in (answer.text, shown.text, out.getvalue()) if key in where] == []
