"""Each form of address, against a server on loopback that answers at that path alone, with that key alone."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from model_servers import ModelServer, model_server

from shikisha.config.container import build_container
from shikisha.config.providers import FIRST_RUN_PROVIDERS, PROVIDERS, account_of, chat_keys, key_variable
from shikisha.core.budget import Caps
from shikisha.core.errors import ConfigError
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder

KEY = "sk-live-0123456789abcdef"
DATED = {"AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/", "OPENAI_API_VERSION": "2025-04-01-preview"}
VERTEX = "/v1/projects/p1/locations/{}/endpoints/openapi/chat/completions"
FORMS = [  # provider, variables of the account, host, path with query
    ("openai", {}, "api.openai.com", "/v1/chat/completions"),
    ("anthropic", {}, "api.anthropic.com", "/v1/chat/completions"),
    ("gemini", {}, "generativelanguage.googleapis.com", "/v1beta/openai/chat/completions"),
    ("mistral", {}, "api.mistral.ai", "/v1/chat/completions"),
    ("groq", {}, "api.groq.com", "/openai/v1/chat/completions"),
    ("openrouter", {}, "openrouter.ai", "/api/v1/chat/completions"),
    ("deepseek", {}, "api.deepseek.com", "/v1/chat/completions"),
    ("xai", {}, "api.x.ai", "/v1/chat/completions"),
    ("together_ai", {}, "api.together.xyz", "/v1/chat/completions"),
    ("cerebras", {}, "api.cerebras.ai", "/v1/chat/completions"),
    ("cohere", {}, "api.cohere.ai", "/compatibility/v1/chat/completions"),
    ("fireworks_ai", {}, "api.fireworks.ai", "/inference/v1/chat/completions"),
    ("moonshot", {}, "api.moonshot.ai", "/v1/chat/completions"),
    ("perplexity", {}, "api.perplexity.ai", "/chat/completions"),
    (
        "azure",
        DATED,
        "mine.openai.azure.com",
        "/openai/deployments/m/chat/completions?api-version=2025-04-01-preview",
    ),
    (
        "azure",
        {"AZURE_API_BASE": "https://mine.openai.azure.com"},
        "mine.openai.azure.com",
        "/openai/v1/chat/completions",
    ),
    ("bedrock", {"AWS_REGION": "eu-west-1"}, "bedrock-mantle.eu-west-1.api.aws", "/v1/chat/completions"),
    ("vertex_ai", {"GOOGLE_CLOUD_PROJECT": "p1"}, "aiplatform.googleapis.com", VERTEX.format("global")),
    (
        "vertex_ai",
        {"GOOGLE_CLOUD_PROJECT": "p1", "GOOGLE_CLOUD_LOCATION": "us-east5"},
        "us-east5-aiplatform.googleapis.com",
        VERTEX.format("us-east5"),
    ),
    ("ollama", {}, "localhost:11434", "/v1/chat/completions"),
    ("lm_studio", {}, "localhost:1234", "/v1/chat/completions"),
    ("llamafile", {}, "127.0.0.1:8080", "/v1/chat/completions"),
]


def test_each_provider_of_a_first_run_has_its_form_here() -> None:
    assert set(FIRST_RUN_PROVIDERS) <= {name for name, *_ in FORMS}


@pytest.mark.parametrize(("name", "variables", "host", "path"), FORMS)
async def test_a_model_is_called_at_its_providers_address(
    name: str, variables: Mapping[str, str], host: str, path: str
) -> None:
    variable = PROVIDERS[name].key
    environment = {**variables, **({variable: KEY} if variable else {})}
    keys = chat_keys(name, "m", key_variable(name, environment), account=account_of(name, environment))
    parts = urlsplit(str(keys["base_url"]))
    assert (parts.netloc, parts.scheme) == (host, "http" if PROVIDERS[name].key is None else "https")
    async with model_server(ModelServer(path=parts.path)) as server:
        here = urlsplit(server.url).netloc
        keys["base_url"] = parts._replace(scheme="http", netloc=here).geturl()  # the same path, on this machine
        container = build_container({"workers": {"a": keys}}, "table", Path(), environment)
        pool = container.pool()
        run = await Engine(MemoryRecorder()).run(Task("Where?"), pool, container.conductor("", pool), Caps())
        await container.aclose()
    assert run.answer == "Paris, says m.", run.why
    (asked,) = server.asked
    assert asked[0] == path
    sent = {header: asked[1].get(header) for header in ("authorization", "api-key")}
    dated = "?" in path
    bearer = None if variable is None or dated else f"Bearer {KEY}"
    assert sent == {"authorization": bearer, "api-key": KEY if dated else None}


def test_what_an_address_needs_is_named() -> None:
    with pytest.raises(ConfigError, match=r"vertex_ai needs its project \(GOOGLE_CLOUD_PROJECT or VERTEXAI_PROJECT\)"):
        chat_keys("vertex_ai", "m")
    with pytest.raises(ConfigError, match="Replicate has a protocol of its own"):
        chat_keys("replicate", "m")
    with pytest.raises(ConfigError, match="unknown provider 'opnai'"):
        chat_keys("opnai", "m")


def test_a_key_is_found_under_each_of_its_names() -> None:
    assert key_variable("gemini", {"GOOGLE_API_KEY": KEY}) == "GOOGLE_API_KEY"
    assert key_variable("gemini", {}) == "GEMINI_API_KEY"
    assert replace(PROVIDERS["gemini"], key=None).other_keys == ("GOOGLE_API_KEY",)
