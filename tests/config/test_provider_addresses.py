"""Where variables point a provider, every door goes: the command line, the server, Python, and workers of a file.

The vendor is a proxy here that no door may reach: prompts and keys that the user sent elsewhere must not get there.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from model_servers import ModelServer, model_server, nobody_here
from serving import served_process

from shikisha import Shikisha
from shikisha.config.container import build_container, known_worker_facts
from shikisha.config.environment import with_dotenv
from shikisha.config.providers import PROVIDERS, address_of, address_variables, provider_at, reach_keys
from shikisha.core.errors import ConfigError

KEY = "sk-live-0123456789abcdef"
ELSEWHERE = [  # provider, the variable that points it elsewhere, and the path that its own client takes below it
    ("openai", "OPENAI_BASE_URL", "/v1", "/v1"),
    ("openai", "OPENAI_API_BASE", "/v1", "/v1"),
    ("anthropic", "ANTHROPIC_BASE_URL", "", "/v1"),
    ("ollama", "OLLAMA_HOST", "", "/v1"),
    ("lm_studio", "LM_STUDIO_API_BASE", "/v1", "/v1"),
    ("hosted_vllm", "VLLM_BASE_URL", "/v1", "/v1"),
    ("groq", "GROQ_BASE_URL", "", "/openai/v1"),
    ("gemini", "GOOGLE_GEMINI_BASE_URL", "", "/v1beta/openai"),
    ("mistral", "MISTRAL_API_BASE", "/v1", "/v1"),
    ("cohere", "CO_API_URL", "", "/compatibility/v1"),
    ("together_ai", "TOGETHER_BASE_URL", "/v1", "/v1"),
    ("deepseek", "DEEPSEEK_API_BASE", "/v1", "/v1"),
]


def variables(server: ModelServer, provider: str, variable: str, given: str) -> dict[str, str]:
    """The environment of a user who points a provider to a server of their own."""
    key = PROVIDERS[provider].key
    root = server.url.removesuffix(server.path)
    value = root.removeprefix("http://") if variable == "OLLAMA_HOST" else f"{root}{given}"
    return {**nobody_here(), "SHIKISHA_DISCOVERY": "all", variable: value, **({key: KEY} if key else {})}


@pytest.mark.parametrize(("provider", "variable", "given", "path"), ELSEWHERE)
async def test_python_goes_where_the_variable_points(provider: str, variable: str, given: str, path: str) -> None:
    async with model_server(ModelServer(models=["m"], path=path)) as server:
        environment = variables(server, provider, variable, given)
        answer = await Shikisha([f"{provider}:m"], environment=environment, budget=0.01).arun("Where?")
        assert (str(answer.answer), answer.dollars) == ("Paris, says m.", 0.0)
    assert server.chats == 1


async def command(environment: Mapping[str, str], folder: Path, *arguments: str) -> str:
    """What a command prints, in a folder of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shikisha", *arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), "XDG_STATE_HOME": str(folder), **environment},
    )  # fmt: skip
    out, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    return out.decode()


@pytest.mark.parametrize(("provider", "variable", "given", "path"), ELSEWHERE[:1])  # the others: above
async def test_the_three_doors_go_where_the_variable_points(
    provider: str, variable: str, given: str, path: str, tmp_path: Path
) -> None:
    async with model_server(ModelServer(models=["m"], path=path)) as server:
        environment = variables(server, provider, variable, given)
        said = await command(environment, tmp_path, "run", "-q", "--yes", "--json", "Where?")
        assert (json.loads(said)["answer"], json.loads(said)["dollars"]) == ("Paris, says m.", 0.0)
        await command(environment, tmp_path, "init")
        async with served_process(tmp_path, environment=environment) as (at, _), at.openai() as client:
            told = await client.chat.completions.create(model="shikisha", messages=[{"role": "user", "content": "?"}])
        assert told.choices[0].message.content == "Paris, says m."
        python = f"from shikisha import Shikisha; print(Shikisha(['{provider}:m']).run('Where?').answer)"
        process = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", python], env=environment | {"PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert process.stdout == "Paris, says m.\n"
        assert server.chats == 5  # `init` asks a free model twice, to see what it can
        keys = {headers.get("authorization", headers.get("x-api-key")) for _, headers in server.asked}
    assert keys <= {None, KEY, f"Bearer {KEY}"}


async def test_a_worker_of_a_file_without_an_address_goes_there_too() -> None:
    tables = {"workers": {"a": {"kind": "chat", "model": "m", "api_key_env": "OPENAI_API_KEY"}}}
    for short in ("x", "EMPTY", KEY):
        async with model_server(ModelServer()) as server:
            environment = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": short}
            container = build_container(tables, "here", Path(), environment)
            assert f'"{server.url}"' in container.resolved()
            assert container.pool().names == ("a",)
    with pytest.raises(ConfigError, match="holds fewer than 8 characters"):
        build_container(tables, "here", Path(), {"OPENAI_API_KEY": "x"}).pool()


def test_what_is_no_address_is_an_error_at_each_door() -> None:
    for given in ("127.0.0.1:9101/v1", "localhost", "//host/v1", "ftp://host/v1", "http://"):
        environment = {"OPENAI_BASE_URL": given, "OPENAI_API_KEY": KEY}
        with pytest.raises(ConfigError, match="OPENAI_BASE_URL: expected the whole URL"):
            Shikisha(["openai:m"], environment=environment)
        with pytest.raises(ConfigError, match="OPENAI_BASE_URL: expected the whole URL"):
            build_container({"workers": {"a": {"kind": "chat", "model": "m"}}}, "here", Path(), environment)
    assert address_of("openai", {"OPENAI_BASE_URL": "  "}) is None


def test_a_folders_dotenv_does_not_say_where_a_key_of_the_environment_goes(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENAI_BASE_URL=https://strangers.example/v1\n")
    with pytest.raises(ConfigError, match=r"OPENAI_BASE_URL is in .env and OPENAI_API_KEY is not"):
        address_of("openai", with_dotenv({"OPENAI_API_KEY": KEY}, tmp_path))
    both = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "https://mine.example/v1"}
    assert address_of("openai", with_dotenv(both, tmp_path)) == "https://mine.example/v1"
    with (tmp_path / ".env").open("a") as file:
        file.write("OPENAI_API_KEY=sk-of-the-folder-0123456789\n")
    assert address_of("openai", with_dotenv({}, tmp_path)) == "https://strangers.example/v1"


def test_a_server_elsewhere_needs_no_key_and_its_own_address_does() -> None:
    assert "api_key_env" not in reach_keys("openai", "m", {"OPENAI_BASE_URL": "http://gpu:8000/v1"})
    assert reach_keys("openai", "m", {})["api_key_env"] == "OPENAI_API_KEY"
    assert "AZURE_BASE_URL" not in address_variables("azure")


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("api.openai.com", "openai"),
        ("mine.openai.azure.com", "azure.ai.openai"),
        ("mine.services.ai.azure.com", "azure.ai.inference"),
        ("api.anthropic.com", "anthropic"),
        ("generativelanguage.googleapis.com", "gcp.gemini"),
        ("us-east5-aiplatform.googleapis.com", "gcp.vertex_ai"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "aws.bedrock"),
        ("bedrock-mantle.eu-west-1.api.aws", "aws.bedrock"),
        ("api.cohere.ai", "cohere"),
        ("api.cohere.com", "cohere"),
        ("api.mistral.ai", "mistral_ai"),
        ("api.x.ai", "x_ai"),
        ("api.moonshot.ai", "moonshot_ai"),
        ("notanthropic.com", "openai"),
        ("127.0.0.1", "openai"),
    ],
)
def test_telemetry_knows_providers_from_the_same_table(host: str, name: str) -> None:
    tables = {"workers": {"a": {"kind": "chat", "model": "m", "base_url": f"https://{host}/v1"}}}
    assert known_worker_facts(build_container(tables, "here", Path(), {}))["a"].provider == name == provider_at(host)
