"""What is found without a configuration: real servers on loopback, also such that answer nonsense."""

import asyncio
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from model_servers import ModelServer, model_server, nobody_here
from paths import ROOT

from shikisha.config.container import build_container, load_config
from shikisha.config.discovery import Discovery, describe_endpoint, discover, found_tables, worker_names
from shikisha.config.environment import VARIABLES, read_dotenv, with_dotenv
from shikisha.config.providers import (
    FIRST_RUN_PROVIDERS,
    PROVIDERS,
    is_free,
    is_own_address,
    known_price,
    local_address,
)
from shikisha.config.template import found_template
from shikisha.core.budget import Caps
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder
from shikisha.testing import black_hole

KEY = "sk-live-0123456789abcdef"


async def test_a_local_server_is_found_with_its_models_and_windows() -> None:
    rows = [{"id": "qwen2.5:7b", "max_model_len": 8192}, "llama3.2", "mistral", "nomic-embed-text"]
    async with model_server(ModelServer(models=rows)) as server:
        found = await discover({**nobody_here(), "OLLAMA_HOST": server.url.removesuffix("/v1")})
    (endpoint,) = found.endpoints
    assert (endpoint.label, endpoint.free, [model.name for model in endpoint.models], endpoint.others) == (
        "Ollama", True, ["qwen2.5:7b", "llama3.2"], 1,
    )  # fmt: skip
    assert endpoint.models[0].context_tokens == 8192
    assert describe_endpoint(endpoint)[2:] == ("qwen2.5:7b, llama3.2 and 1 more", "free")


def test_where_nobody_listens_no_http_client_is_imported() -> None:
    looked = "import asyncio, os, sys; from shikisha.config.discovery import discover; "
    looked += "print(asyncio.run(discover(os.environ)).endpoints, 'aiohttp' in sys.modules)"
    command = [sys.executable, "-c", looked]
    done = subprocess.run(command, env=nobody_here(), capture_output=True, text=True, check=True)  # noqa: S603 - our own
    assert done.stdout.split() == ["()", "False"]


async def test_ollama_says_its_windows_in_its_own_protocol() -> None:
    shown = {"model_info": {"general.architecture": "qwen2", "qwen2.context_length": 32768}}
    async with model_server(ModelServer(extra={"/api/show": shown})) as server:
        found = await discover({**nobody_here(), "OLLAMA_HOST": server.url})
    assert [model.context_tokens for _, model in found.usable] == [32768]


@pytest.mark.parametrize(
    ("answers", "able"),
    [
        ({"schema": '{"ready": true}', "tools": "I am ready."}, ["schema"]),
        ({"schema": "I am ready.", "tools": None}, ["tools"]),
        ({"schema": 400, "tools": 400}, []),
    ],
)
async def test_what_a_free_model_can_is_probed_and_written(answers: dict[str, object], able: list[str]) -> None:
    def chat(asked: Mapping[str, object]) -> object:
        said = answers["tools" if "tools" in asked else "schema"]
        call = {"id": "a", "type": "function", "function": {"name": "report", "arguments": "{}"}}
        message = {"content": said} if said is not None else {"content": None, "tool_calls": [call]}
        return said if said == 400 else {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    rows = [{"id": "smol", "meta": {"n_ctx": 1024, "n_ctx_train": 8192}}]
    async with model_server(ModelServer(models=rows, chat=chat)) as server:
        unasked = await discover({**nobody_here(), "LLAMAFILE_API_BASE": server.url})
        assert server.chats == 0
        found = await discover({**nobody_here(), "LLAMAFILE_API_BASE": server.url}, probe=True)
    assert unasked.endpoints[0].models[0].able is None
    (endpoint,) = found.endpoints
    assert (endpoint.models[0].context_tokens, sorted(endpoint.models[0].able or ())) == (1024, able)
    assert describe_endpoint(endpoint)[2] == f"smol ({', '.join(['1,024 tokens', *able])})"
    table = found_tables(found)["workers"]["smol"]  # type: ignore[index]
    assert (table.get("structured_output", False), table["tools"]) == ("schema" in able, "tools" in able)


async def test_a_provider_is_found_by_its_key_and_elsewhere_the_catalogues_prices_are_not_its_own() -> None:
    async with model_server(ModelServer(models=["gpt-6.1-terra", "tts-1", "gpt-6-luna", "gpt-4o"])) as server:
        found = await discover({**nobody_here(), "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url})
        assert server.asked[0][1]["authorization"] == f"Bearer {KEY}"
    (endpoint,) = found.endpoints
    assert [model.name for model in endpoint.models] == ["gpt-6-luna", "gpt-6.1-terra"]
    assert (endpoint.models[0].price, endpoint.free) == ({}, True)
    assert server.chats == 0
    for url, own in (
        ("https://eu.api.openai.com/v1", True),
        ("https://api.openai.com.example/v1", False),
        (None, True),
    ):
        assert is_own_address("openai", url) is own
        assert not is_free("openai", url)


async def test_anthropic_is_asked_in_its_own_protocol() -> None:
    async with model_server(ModelServer(models=["claude-haiku-5-5"])) as server:
        url = server.url.removesuffix("/v1")
        found = await discover({**nobody_here(), "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": url})
        assert (server.asked[0][1]["x-api-key"], "authorization" in server.asked[0][1]) == (KEY, False)
    assert found.usable[0][1].name == "claude-haiku-5-5"


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (ModelServer(body="<html>Welcome</html>"), "answers, and not with a list of models"),
        (ModelServer(body='{"data": {"id": 1}}'), "answers, and not with a list of models"),
        (ModelServer(body="[" * 100_000), "answers, and not with a list of models"),
        (ModelServer(body=" " * (5 * 2**20)), "the body is larger than 4,194,304 bytes"),
        (ModelServer(status=500), "answers with status 500"),
        (ModelServer(status=401), "the key is missing or refused"),
    ],
)
async def test_a_server_that_answers_nonsense_is_a_remark_and_the_rest_goes_on(server: ModelServer, said: str) -> None:
    async with model_server(server), model_server(ModelServer()) as good:
        found = await discover({**nobody_here(), "VLLM_BASE_URL": server.url, "OLLAMA_HOST": good.url})
    assert [each.label for each in found.endpoints] == ["Ollama"]
    assert said in "".join(found.remarks)


async def test_names_that_are_none_are_left_out() -> None:
    rows = [{"id": 1}, {"id": ""}, {"id": "a\x1b[31m"}, {"id": "x" * 500}, "no row", 7, {"id": "good"}]
    async with model_server(ModelServer(models=rows)) as server:
        server.body = json.dumps({"data": [*rows[:4], None, "text", {"id": "good"}]})
        found = await discover({**nobody_here(), "OLLAMA_HOST": server.url})
    assert [model.name for _, model in found.usable] == ["good"]


async def test_a_place_that_never_answers_delays_nobody_for_long() -> None:
    with black_hole() as url:
        async with asyncio.timeout(10):
            found = await discover({**nobody_here(), "OLLAMA_HOST": url})
    assert found.endpoints == ()
    assert any("Ollama at" in remark and "does not answer" in remark for remark in found.remarks)


async def test_a_refused_key_is_named_by_its_variable_and_never_shown() -> None:
    async with model_server(ModelServer(status=401)) as server:
        found = await discover({**nobody_here(), "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url})
    (remark,) = [each for each in found.remarks if each.startswith("openai")]
    place = server.url.split("/")[2]
    assert remark == f"openai (OPENAI_API_KEY at {place}): the key is missing or refused (status 401)"
    assert KEY not in "".join(found.remarks)


async def test_what_an_account_needs_is_named() -> None:
    found = await discover({**nobody_here(), "AZURE_OPENAI_API_KEY": KEY, "AWS_BEARER_TOKEN_BEDROCK": KEY})
    said = " ".join(found.remarks)
    assert "azure needs its endpoint (AZURE_OPENAI_ENDPOINT or AZURE_API_BASE)" in said
    assert "bedrock needs its region (AWS_REGION or AWS_DEFAULT_REGION or AWS_REGION_NAME)" in said


async def test_a_litellm_proxy_tells_its_prices() -> None:
    info = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6, "max_input_tokens": 1000}
    proxy = ModelServer(models=["team"], extra={"/model/info": {"data": [{"model_name": "team", "model_info": info}]}})
    async with model_server(proxy) as server:
        found = await discover({**nobody_here(), "LITELLM_PROXY_API_BASE": server.url})
    ((endpoint, model),) = found.usable
    assert (endpoint.free, model.price and model.price["input"], model.context_tokens) == (False, 1.0, 1000)


async def test_a_model_without_a_known_price_is_not_called_unasked(tmp_path: Path) -> None:
    async with model_server(ModelServer(models=["house-model"])) as server:
        found = await discover({**nobody_here(), "LITELLM_PROXY_API_BASE": server.url})
    assert (len(found.endpoints), found.usable) == (1, ())
    file = tmp_path / "shikisha.toml"
    file.write_text(found_template(found))
    assert load_config(file, {}).cards()[0].price is None
    switched_on = file.read_text().replace("\n#price", "\nprice")
    assert tomllib.loads(switched_on)["workers"]["house-model"]["price"] == {"input": 0.0, "output": 0.0}


async def both(own: ModelServer, paid: ModelServer) -> Discovery:
    """What is found of a local server and of a provider."""
    keyed = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": paid.url}
    return await discover({**nobody_here(), **keyed, "OLLAMA_HOST": own.url})


async def test_two_endpoints_with_one_model_name_are_two_workers(tmp_path: Path) -> None:
    async with (
        model_server(ModelServer(models=["gpt-oss-20b"])) as own,
        model_server(ModelServer(models=["gpt-oss-20b"])) as paid,
    ):
        found = await both(own, paid)
    assert worker_names(found.usable) == ["ollama/gpt-oss-20b", "openai/gpt-oss-20b"]
    file = tmp_path / "shikisha.toml"
    file.write_text(found_template(found))
    assert load_config(file, {"OPENAI_API_KEY": KEY}).pool().names == ("ollama/gpt-oss-20b", "openai/gpt-oss-20b")


async def test_a_key_without_credit_is_said_once_and_the_next_model_answers() -> None:
    async with (
        model_server(ModelServer(models=["gpt-6-luna"], chat_status=429)) as paid,
        model_server(ModelServer(models=["mistral-large-4"])) as other,
    ):
        keyed = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": paid.url, "MISTRAL_API_KEY": f"{KEY}2"}
        found = await discover({**nobody_here(), **keyed, "MISTRAL_BASE_URL": other.url})
        tables = found_tables(found)
        tables["conductor"] = "fixed:single?worker=gpt-6-luna"
        tables["workers"]["gpt-6-luna"]["fallback"] = "mistral-large-4"  # type: ignore[index]  # a table of tables
        container = build_container(tables, "found", Path(), keyed)
        pool = container.pool()
        run = await Engine(MemoryRecorder()).run(
            Task("Where?"), pool, container.conductor("", pool), Caps(dollars=0.25)
        )
        await container.aclose()
    assert run.answer == "Paris, says mistral-large-4."
    assert paid.chats == 1  # asking again would only take time


async def test_the_written_file_says_what_was_found_and_when_prices_were_looked_up(tmp_path: Path) -> None:
    pricing = {"prompt": "2e-7", "completion": "7.5e-7"}
    rows = [{"id": "gpt-6-luna", "pricing": pricing}]
    async with model_server(ModelServer()) as own, model_server(ModelServer(models=rows)) as paid:
        text = found_template(await both(own, paid))
    file = tmp_path / "shikisha.toml"
    file.write_text(text)
    container = load_config(file, {"OPENAI_API_KEY": KEY})
    price = container.workers["gpt-6-luna"].price
    assert price is not None
    assert (price.input, price.output, price.as_of) == (0.2, 0.75, datetime.now(UTC).date())
    assert container.conductor("", container.pool()).name == "fixed:single?worker=qwen2.5:7b"
    assert KEY not in text


def test_each_model_for_a_first_run_has_a_price() -> None:
    for name in FIRST_RUN_PROVIDERS:
        for model in PROVIDERS[name].models:
            assert known_price(name, model), f"{name}: {model}"


def test_the_catalogue_names_models_and_guesses_none() -> None:
    assert known_price("openai", "gpt-5-mini-2025-08-07")["context_tokens"] == 400_000
    assert known_price("openai", "gpt-99-giant") == {}
    assert known_price("nobody", "gpt-5") == {}


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("", "http://localhost:11434/v1"),
        ("gpu", "http://gpu:11434/v1"),
        ("gpu:8080", "http://gpu:8080/v1"),
        ("0.0.0.0:11434", "http://127.0.0.1:11434/v1"),
        ("https://gpu.example", "https://gpu.example:443/v1"),
        ("http://[::1]:5/v1/", "http://[::1]:5/v1"),
    ],
)
def test_an_address_is_read_as_ollama_reads_it(given: str, address: str) -> None:
    assert local_address(given, "http://localhost:11434/v1") == address


def test_dotenv_is_read_and_the_environment_wins(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        '# a comment\nexport ONE="a \\"b\\" # c"\nTWO=two words # comment\n'
        "THREE='x#y'\nnonsense line\n=x\nFOUR=f#g\r\nFIVE=\n"
    )
    assert read_dotenv(tmp_path) == {"ONE": 'a "b" # c', "TWO": "two words", "THREE": "x#y", "FOUR": "f#g", "FIVE": ""}
    assert with_dotenv({"ONE": "mine"}, tmp_path)["ONE"] == "mine"
    assert read_dotenv(tmp_path / "nowhere") == {}


def test_a_key_in_dotenv_beside_the_file_opens_its_workers(tmp_path: Path) -> None:
    worker = '[workers.a]\nkind = "chat"\nbase_url = "http://h/v1"\nmodel = "m"\napi_key_env = "MY_KEY"\n'
    (tmp_path / "shikisha.toml").write_text(worker)
    (tmp_path / ".env").write_text(f"MY_KEY={KEY}\n")
    assert load_config(tmp_path / "shikisha.toml", {}).pool().names == ("a",)


def test_variables_are_described_in_the_documentation() -> None:
    text = (ROOT / "docs" / "how-to" / "endpoints.md").read_text()
    rows = dict(re.findall(r"^\| `(SHIKISHA_\w+)` \| (.+?) \|$", text, re.MULTILINE))
    told = {name: said.replace("`", "") for name, said in VARIABLES.items()}
    assert {name: said.replace("`", "") for name, said in rows.items()} == told
