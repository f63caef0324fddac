"""A LiteLLM model_list becomes workers; what cannot is said, and no key comes along."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from shikisha.config.container import load_config
from shikisha.config.litellm import import_models, load_yaml
from shikisha.config.providers import PROVIDERS
from shikisha.core.errors import ConfigError
from shikisha.workers.provider_profile import profile_at

KEY = "sk-live-0123456789abcdef"


def model(name: str, **params: object) -> dict[str, object]:
    info = params.pop("info", {})
    return {"model_name": name, "litellm_params": {"model": "openai/m", **params}, "model_info": info}


def workers(*models: Mapping[str, object], **sections: object) -> Mapping[str, Mapping[str, object]]:
    """The workers as our own configuration reads them."""
    imported = import_models({"model_list": list(models), **sections})
    tables = tomllib.loads(imported.toml())
    assert tables.get("workers", {}) == imported.workers
    return imported.workers


def test_a_model_becomes_a_chat_worker_with_prices_and_limits(tmp_path: Path) -> None:
    one = model(
        "gpt",
        model="openai/gpt-5",
        api_key="os.environ/MY_KEY",
        temperature=0.2,
        rpm=120,
        max_tokens=1000,
        info={"input_cost_per_token": 1.25e-6, "output_cost_per_token": 1e-5, "max_input_tokens": 128000},
    )
    assert workers(one)["gpt"] == {
        "kind": "chat",
        "model": "gpt-5",
        "base_url": "https://api.openai.com/v1",
        "api_key_env": "MY_KEY",
        "temperature": 0.2,
        "price": {"input": 1.25, "output": 10.0},
        "max_output_tokens": 1000,
        "context_tokens": 128000,
        "rate": 2.0,
    }
    (tmp_path / "shikisha.toml").write_text(import_models({"model_list": [one]}).toml())
    assert load_config(tmp_path / "shikisha.toml", {"MY_KEY": KEY}).pool().names == ("gpt",)


@pytest.mark.parametrize(
    ("name", "base_url", "key"),
    [
        ("gpt-5", "https://api.openai.com/v1", "OPENAI_API_KEY"),
        ("claude-x", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
        ("groq/llama/8b", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        ("ollama/qwen", "http://localhost:11434/v1", None),
        ("gemini/gemini-pro", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
        ("cohere/command-r", "https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"),
        ("mistral/mistral-large", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    ],
)
def test_a_provider_has_its_endpoint_and_variable(name: str, base_url: str, key: str | None) -> None:
    worker = workers(model("m", model=name))["m"]
    assert (worker["base_url"], worker.get("api_key_env")) == (base_url, key)


@pytest.mark.parametrize(
    ("name", "api_base", "base_url"),
    [
        ("ollama/qwen", "http://gpu:11434", "http://gpu:11434/v1"),
        ("ollama/qwen", "http://gpu:11434/", "http://gpu:11434/v1"),
        ("ollama_chat/qwen", "http://gpu:11434/v1/", "http://gpu:11434/v1"),
        ("ollama/qwen", "http://gpu:11434/api", "http://gpu:11434/v1"),
        ("openai/m", "http://gpu:8000/v1/chat/completions", "http://gpu:8000/v1"),
        ("hosted_vllm/m", "http://gpu:8000/v1/", "http://gpu:8000/v1"),
        ("azure_ai/m", "https://r.services.ai.azure.com", "https://r.services.ai.azure.com/openai/v1"),
    ],
)
def test_an_address_is_that_of_the_openai_compatible_endpoint(name: str, api_base: str, base_url: str) -> None:
    assert workers(model("m", model=name, api_base=api_base))["m"]["base_url"] == base_url


def test_a_dated_azure_deployment_keeps_its_path_version_and_header(tmp_path: Path) -> None:
    one = model(
        "m",
        model="azure/my-gpt",
        api_base="https://r.openai.azure.com/",
        api_version="2024-10-21",
        api_key="os.environ/AZURE_KEY",
    )
    worker = workers(one)["m"]
    assert worker["base_url"] == "https://r.openai.azure.com/openai/deployments/my-gpt?api-version=2024-10-21"
    assert worker["headers"] == {"api-key": "${AZURE_KEY}"}
    assert "api_key_env" not in worker
    assert import_models({"model_list": [one]}).notes == []
    (tmp_path / "shikisha.toml").write_text(import_models({"model_list": [one]}).toml())
    assert load_config(tmp_path / "shikisha.toml", {"AZURE_KEY": KEY}).pool().names == ("m",)


@pytest.mark.parametrize("version", [{}, {"api_version": "preview"}, {"api_version": "v1"}])
def test_an_azure_deployment_without_a_dated_version_is_a_model_of_the_v1_api(version: Mapping[str, str]) -> None:
    worker = workers(model("m", model="azure/my-gpt", api_base="https://r.openai.azure.com", **version))["m"]
    assert worker["base_url"] == "https://r.openai.azure.com/openai/v1"
    assert (worker["model"], worker["api_key_env"]) == ("my-gpt", "AZURE_API_KEY")


def test_what_is_left_out_says_how_to_reach_it_by_way_of_the_proxy() -> None:
    note = import_models({"model_list": [model("claude", model="bedrock/claude")]}).notes[0]
    assert "base_url = \"http://localhost:4000/v1\", model = 'claude'" in note


def test_bedrock_and_vertex_are_reached_with_a_key_and_a_token() -> None:
    aws = model("a", model="bedrock/openai.gpt-oss-120b", aws_region_name="eu-west-1")
    google = model("g", model="vertex_ai/google/gemini-3.8-flash", vertex_project="p1", vertex_location="us-east5")
    imported = import_models({"model_list": [aws, google]})
    assert {name: (worker["base_url"], worker["api_key_env"]) for name, worker in imported.workers.items()} == {
        "a": ("https://bedrock-mantle.eu-west-1.api.aws/v1", "AWS_BEARER_TOKEN_BEDROCK"),
        "g": (
            "https://us-east5-aiplatform.googleapis.com/v1/projects/p1/locations/us-east5/endpoints/openapi",
            "CLOUDSDK_AUTH_ACCESS_TOKEN",
        ),
    }
    assert [note.endswith("ask `doctor --call`") for note in imported.notes] == [True, True]
    own = model("a", model="bedrock/x", aws_region_name="eu-west-1", aws_access_key_id="os.environ/ID")
    assert import_models({"model_list": [own]}).workers == {}


def test_a_limit_is_sent_under_the_name_that_the_provider_knows() -> None:
    found = workers(model("a", model="ollama/q"), model("b", model="mistral/m"), model("c", model="openai/m"))
    profiles = [profile_at(str(each["base_url"]), cast("str | None", each.get("provider"))) for each in found.values()]
    assert [each.request.limit for each in profiles] == ["max_tokens", "max_tokens", "max_completion_tokens"]


def test_an_address_without_a_path_is_pointed_out() -> None:
    imported = import_models({"model_list": [model("m", model="hosted_vllm/q", api_base="http://gpu:8000")]})
    assert imported.workers["m"]["base_url"] == "http://gpu:8000"
    assert "http://gpu:8000 has no path; most servers want one that ends in /v1" in imported.notes[0]


def test_every_provider_says_where_it_is_or_why_not() -> None:
    for name, provider in PROVIDERS.items():
        imported = import_models({"model_list": [model("m", model=f"{name}/x", api_base="https://h.example/v1")]})
        signed = name.startswith(("bedrock", "vertex_ai"))  # their addresses are built from the account
        assert bool(imported.workers) is not (bool(provider.instead) or signed)
        assert all(note.endswith('"LITELLM_PROXY_API_KEY"') for note in imported.notes if "left out" in note)


def test_an_address_of_ones_own_goes_before_the_providers() -> None:
    assert (
        workers(model("m", model="hosted_vllm/q", api_base="http://gpu:8000/v1"))["m"]["base_url"]
        == "http://gpu:8000/v1"
    )


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (model("m", model="bedrock/x"), "Amazon Bedrock signs each call with cloud credentials"),
        (model("m", model="bedrock/x", api_base="https://b.example"), "Amazon Bedrock signs each call"),
        (model("m", model="sagemaker/x"), "Amazon SageMaker signs each call"),
        (model("m", model="vertex_ai/gemini-pro"), "Vertex AI takes Google tokens that expire"),
        (model("m", model="replicate/x"), "Replicate has a protocol of its own"),
        (
            model("m", model="nobody/x"),
            "no OpenAI-compatible endpoint of the provider 'nobody' is known; where it has one",
        ),
        (model("m", model="hosted_vllm/x"), "its api_base is missing; where it has one, give its address as api_base"),
        (model("m", model="azure/x"), "its api_base is missing"),
        (
            model("m", api_base="os.environ/BASE", model="azure/x"),
            "in the environment (os.environ/BASE): write it into",
        ),
        (model("m", api_base="gpu:8000"), "api_base: expected an http or https address, found 'gpu:8000'"),
        (model("m", api_base=7), "api_base: expected an http or https address, found '7'"),
        (model("m*", model="openai/*"), "a wildcard names no model"),
        (model("m", info={"mode": "embedding"}), "only chat models can be workers"),
        ({"model_name": "m"}, "it lacks model_name or litellm_params.model"),
        ("text", "it lacks model_name"),
    ],
)
def test_what_cannot_be_a_worker_is_said(entry: object, said: str) -> None:
    imported = import_models({"model_list": [entry]})
    assert imported.workers == {}
    assert said in imported.notes[0]
    assert imported.notes[0].startswith("model_list[0]")


def test_invariant_8_a_key_is_not_copied() -> None:
    imported = import_models({"model_list": [model("m", api_key=KEY, organization="o")]})
    assert KEY not in imported.toml() + "".join(imported.notes)
    assert "put it into the environment variable OPENAI_API_KEY" in imported.notes[0]
    assert "not taken over: organization" in imported.notes[1]


def test_deployments_of_one_name_become_workers_with_their_fallback() -> None:
    found = workers(model("a b!"), model("a b!"), model("c"), litellm_settings={"fallbacks": [{"a b!": ["x", "c"]}]})
    assert list(found) == ["a b-", "a b--2", "c"]
    assert [found[name].get("fallback") for name in found] == ["c", "c", None]


@pytest.mark.parametrize("config", [None, [], {}, {"model_list": "x"}])
def test_without_a_model_list_there_is_nothing_to_import(config: object) -> None:
    with pytest.raises(ConfigError, match="model_list: expected a list of models"):
        import_models(config)


@pytest.mark.parametrize(
    ("others", "fallback"), [("c", "c"), ([[], "c"], "c"), ([None], None), (5, None), (None, None), ({"c": 1}, None)]
)
def test_a_fallback_is_a_name_or_a_list_of_them(others: object, fallback: str | None) -> None:
    found = workers(model("a"), model("c"), router_settings={"fallbacks": [{"a": others}, 7]})
    assert found["a"].get("fallback") == fallback


def test_numbers_that_none_can_be_are_left_out() -> None:
    odd = model("a", rpm=10**400, max_tokens=True, info={"input_cost_per_token": 10**400, "max_input_tokens": -1})
    odd["litellm_params"] |= {7: "x", "y": "z"}  # type: ignore[operator]  # as YAML has them
    assert set(workers(odd)["a"]) == {"kind", "model", "base_url", "api_key_env"}


class TestFile:
    def test_json_is_read_without_a_yaml_library(self, tmp_path: Path) -> None:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"model_list": [model("m")]}))
        assert "m" in import_models(load_yaml(path)).workers

    def test_yaml_is_read_as_data(self, tmp_path: Path) -> None:
        pytest.importorskip("yaml", reason="needs the extra litellm")
        path = tmp_path / "config.yaml"
        path.write_text("model_list:\n  - model_name: m\n    litellm_params: {model: gpt-5, temperature: 0}\n")
        assert import_models(load_yaml(path)).workers["m"]["temperature"] == 0

    @pytest.mark.parametrize("text", ["a: [", "!!python/object/apply:os.system [x]", "a: &a [*a, *b]", "\t"])
    def test_bad_yaml_is_an_error_with_its_place(self, tmp_path: Path, text: str) -> None:
        pytest.importorskip("yaml", reason="needs the extra litellm")
        path = tmp_path / "config.yaml"
        path.write_text(text)
        with pytest.raises(ConfigError, match="not YAML at line 1"):
            load_yaml(path)

    @pytest.mark.parametrize("name", ["nowhere.yaml", "bad.json"])
    def test_a_file_that_cannot_be_read_is_named(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "bad.json").write_text("{")
        with pytest.raises(ConfigError, match=name):
            load_yaml(tmp_path / name)
