"""The `model_list` of a LiteLLM proxy as [workers] tables, with notes on what was left out.

Invariants: no key is copied, only the names of environment variables; an entry that is not an OpenAI-compatible
endpoint is named in the notes, with what to do about it, and never guessed at. Routing strategies, guardrails and
callbacks are not imported; load-balanced deployments become separate workers.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TypeGuard
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from shikisha.core.errors import ConfigError, MissingExtra

LiteLLMEntry = Mapping[str, object]

_REFERENCE = "os.environ/"
_MAX_NUMBER = 2**53  # what a price, a count or a rate can be: whole in a double
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_NOT_IN_NAMES = re.compile(r"[^\w.@:+/ -]")


@dataclass(frozen=True, slots=True)
class LiteLLMProvider:
    """Where a provider's OpenAI-compatible endpoint is, and the variable that LiteLLM reads its key from.

    `base_url` None: the entry's `api_base` says where. `under`: the path of that endpoint, where LiteLLM's `api_base`
    is the server's root. `instead`: why no key opens such an endpoint of this provider.
    """

    base_url: str | None = None
    key: str | None = None
    under: str = ""
    instead: str = ""


_SIGNED = "{} signs each call with cloud credentials, which no worker does"
_OWN_FORM = "{} has a protocol of its own, which no worker speaks"
_PROXY = (  # what can be done about every provider that is not reached directly
    'keep the LiteLLM proxy running and write: kind = "chat", base_url = "http://localhost:4000/v1", model = {!r}, '
    'api_key_env = "LITELLM_PROXY_API_KEY"'
)

PROVIDERS: Mapping[str, LiteLLMProvider] = {
    "ai21": LiteLLMProvider("https://api.ai21.com/studio/v1", "AI21_API_KEY"),
    "ai21_chat": LiteLLMProvider("https://api.ai21.com/studio/v1", "AI21_API_KEY"),
    "anthropic": LiteLLMProvider("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "azure": LiteLLMProvider(key="AZURE_API_KEY"),  # see `_azure`
    "azure_ai": LiteLLMProvider(key="AZURE_AI_API_KEY", under="/openai/v1"),
    "bedrock": LiteLLMProvider(instead=_SIGNED.format("Amazon Bedrock")),
    "bedrock_converse": LiteLLMProvider(instead=_SIGNED.format("Amazon Bedrock")),
    "cerebras": LiteLLMProvider("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "codestral": LiteLLMProvider("https://codestral.mistral.ai/v1", "CODESTRAL_API_KEY"),
    "cohere": LiteLLMProvider("https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"),
    "cohere_chat": LiteLLMProvider("https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"),
    "custom_openai": LiteLLMProvider(key="OPENAI_API_KEY"),
    "dashscope": LiteLLMProvider("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    "databricks": LiteLLMProvider(key="DATABRICKS_API_KEY"),
    "deepinfra": LiteLLMProvider("https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    "deepseek": LiteLLMProvider("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "fireworks_ai": LiteLLMProvider("https://api.fireworks.ai/inference/v1", "FIREWORKS_AI_API_KEY"),
    "friendliai": LiteLLMProvider("https://api.friendli.ai/serverless/v1", "FRIENDLI_TOKEN"),
    "gemini": LiteLLMProvider("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "github": LiteLLMProvider("https://models.inference.ai.azure.com", "GITHUB_API_KEY"),
    "github_copilot": LiteLLMProvider(instead="GitHub Copilot asks a person to sign in, which no worker does"),
    "groq": LiteLLMProvider("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "hosted_vllm": LiteLLMProvider(),
    "huggingface": LiteLLMProvider("https://router.huggingface.co/v1", "HF_TOKEN"),
    "hyperbolic": LiteLLMProvider("https://api.hyperbolic.xyz/v1", "HYPERBOLIC_API_KEY"),
    "litellm_proxy": LiteLLMProvider(key="LITELLM_PROXY_API_KEY"),
    "llamafile": LiteLLMProvider("http://127.0.0.1:8080/v1"),
    "lm_studio": LiteLLMProvider("http://localhost:1234/v1"),
    "meta_llama": LiteLLMProvider("https://api.llama.com/compat/v1", "LLAMA_API_KEY"),
    "mistral": LiteLLMProvider("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "moonshot": LiteLLMProvider("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    "nebius": LiteLLMProvider("https://api.studio.nebius.ai/v1", "NEBIUS_API_KEY"),
    "novita": LiteLLMProvider("https://api.novita.ai/v3/openai", "NOVITA_API_KEY"),
    "nvidia_nim": LiteLLMProvider("https://integrate.api.nvidia.com/v1", "NVIDIA_NIM_API_KEY"),
    "oci": LiteLLMProvider(instead=_SIGNED.format("Oracle Cloud")),
    "ollama": LiteLLMProvider("http://localhost:11434/v1", under="/v1"),
    "ollama_chat": LiteLLMProvider("http://localhost:11434/v1", under="/v1"),
    "openai": LiteLLMProvider("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openai_like": LiteLLMProvider(key="OPENAI_LIKE_API_KEY"),
    "openrouter": LiteLLMProvider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "perplexity": LiteLLMProvider("https://api.perplexity.ai", "PERPLEXITYAI_API_KEY"),
    "petals": LiteLLMProvider(instead=_OWN_FORM.format("Petals")),
    "predibase": LiteLLMProvider(instead=_OWN_FORM.format("Predibase")),
    "replicate": LiteLLMProvider(instead=_OWN_FORM.format("Replicate")),
    "sagemaker": LiteLLMProvider(instead=_SIGNED.format("Amazon SageMaker")),
    "sagemaker_chat": LiteLLMProvider(instead=_SIGNED.format("Amazon SageMaker")),
    "sambanova": LiteLLMProvider("https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
    "snowflake": LiteLLMProvider(instead=_OWN_FORM.format("Snowflake Cortex")),
    "text-completion-openai": LiteLLMProvider(instead="text completion is no chat"),
    "together_ai": LiteLLMProvider("https://api.together.xyz/v1", "TOGETHERAI_API_KEY"),
    "vertex_ai": LiteLLMProvider(
        instead="Vertex AI takes Google tokens that expire within the hour (with an API key: gemini/MODEL)"
    ),
    "vertex_ai_beta": LiteLLMProvider(
        instead="Vertex AI takes Google tokens that expire within the hour (with an API key: gemini/MODEL)"
    ),
    "vllm": LiteLLMProvider(
        instead="vllm/ loads the model into LiteLLM's own process (a vLLM server is hosted_vllm/MODEL)"
    ),
    "volcengine": LiteLLMProvider("https://ark.cn-beijing.volces.com/api/v3", "VOLCENGINE_API_KEY"),
    "watsonx": LiteLLMProvider(instead=_OWN_FORM.format("watsonx.ai")),
    "xai": LiteLLMProvider("https://api.x.ai/v1", "XAI_API_KEY"),
    "xinference": LiteLLMProvider("http://127.0.0.1:9997/v1"),
}
MAX_TOKENS_PROVIDERS = frozenset(  # whose documentation knows `max_tokens` and no `max_completion_tokens`
    {"ai21", "ai21_chat", "codestral", "cohere", "cohere_chat", "deepseek", "llamafile", "lm_studio", "mistral"}
    | {"ollama", "ollama_chat", "perplexity", "together_ai"}
)
_COPIED = ("temperature", "top_p", "seed", "timeout")
_UNDERSTOOD = frozenset(
    {*_COPIED, "model", "api_base", "base_url", "api_key", "api_version", "max_tokens", "max_completion_tokens", "rpm"}
    | {"max_parallel_requests", "input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost"}
)


@dataclass(slots=True)
class LiteLLMImport:
    """Workers by name, each a table's keys; and in words what was left out or needs a look."""

    workers: dict[str, dict[str, object]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def toml(self) -> str:
        """Return the workers as TOML."""
        return "\n".join(_toml_table(name, keys) for name, keys in self.workers.items())


def load_yaml(path: Path) -> object:
    """Read a YAML (or JSON) file; ConfigError when it cannot be read, MissingExtra without the YAML library."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if path.suffix == ".json":
        return _read_json(path, text)
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise MissingExtra("litellm", f"reading {path}") from None
    try:
        loaded: object = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        place = getattr(error, "problem_mark", None)
        line = f" at line {place.line + 1}" if place else ""
        raise ConfigError(f"{path}: not YAML{line}") from None
    return loaded


def _read_json(path: Path, text: str) -> object:
    try:
        loaded: object = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(f"{path}: not JSON") from None
    return loaded


def import_models(config: object, file: str = "config.yaml") -> LiteLLMImport:
    """Turn a LiteLLM configuration into workers; ConfigError when it has no model_list."""
    models = config.get("model_list") if isinstance(config, Mapping) else None
    if not isinstance(models, Sequence) or isinstance(models, str):
        raise ConfigError(f"{file}: model_list: expected a list of models")
    imported = LiteLLMImport()
    groups: dict[str, list[str]] = {}
    for place, entry in enumerate(models):
        worker = _import_worker(entry, imported, f"model_list[{place}]")
        if worker is None:
            continue
        group = str(entry["model_name"])
        name = _free_name(_NOT_IN_NAMES.sub("-", group), imported.workers)
        groups.setdefault(group, []).append(name)
        imported.workers[name] = worker
    _add_fallbacks(config, groups, imported)
    return imported


def _import_worker(entry: object, imported: LiteLLMImport, where: str) -> dict[str, object] | None:
    """Return the keys of a worker's table, or None with a note why it is none."""
    params, info = _part(entry, "litellm_params"), _part(entry, "model_info")
    name, model = _part_text(entry, "model_name"), params.get("model")
    if not name or not isinstance(model, str):
        imported.notes.append(f"{where}: left out: it lacks model_name or litellm_params.model")
        return None
    where = f"{where} ({name})"
    if "*" in name or "*" in model:
        imported.notes.append(f"{where}: left out: a wildcard names no model")
        return None
    if info.get("mode", "chat") != "chat":
        imported.notes.append(f"{where}: left out: only chat models can be workers")
        return None
    provider, bare = _split_model(model)
    if provider.startswith("openai_") and provider not in PROVIDERS:
        provider = "openai_like"
    known = PROVIDERS.get(provider)
    base = _base_url(params, known)
    if base is None or (known is not None and known.instead):
        imported.notes.append(f"{where}: left out: {_why_not_imported(provider, known, params)}; {_PROXY.format(name)}")
        return None
    key = _key_variable(params.get("api_key"), known, where, imported)
    unused = sorted(str(key) for key in set(params) - _UNDERSTOOD)
    if unused:
        imported.notes.append(f"{where}: not taken over: {', '.join(unused)}")
    worker: dict[str, object] = {"kind": "chat", "model": bare}
    worker |= _azure_keys(base, bare, params, key) if provider == "azure" else _endpoint_keys(base, known, key)
    worker |= {"max_tokens_field": "max_tokens"} if provider in MAX_TOKENS_PROVIDERS else {}
    if known is not None and known.base_url is None and not urlsplit(str(worker["base_url"])).path.strip("/"):
        imported.notes.append(
            f"{where}: {base} has no path; most servers want one that ends in /v1: ask `doctor --call`"
        )
    return worker | {key: params[key] for key in _COPIED if _is_number(params.get(key))} | dict(_limits(params, info))


def _base_url(params: LiteLLMEntry, known: LiteLLMProvider | None) -> str | None:
    """Return the address that an entry gives, or its provider's."""
    given = params.get("api_base") or params.get("base_url")
    if given is None:
        return known.base_url if known else None
    return given if isinstance(given, str) and urlsplit(given).scheme in ("http", "https") else None


def _why_not_imported(provider: str, known: LiteLLMProvider | None, params: LiteLLMEntry) -> str:
    """Say why an entry cannot be called."""
    given = params.get("api_base") or params.get("base_url")
    if known is not None and known.instead:
        return known.instead
    if isinstance(given, str) and given.startswith(_REFERENCE):
        return f"its address is in the environment ({given}): write it into api_base, it is no secret"
    if given is not None:
        return f"api_base: expected an http or https address, found {str(given)[:60]!r}"
    what = (
        "its api_base is missing" if known else f"no OpenAI-compatible endpoint of the provider {provider!r} is known"
    )
    return f"{what}; where it has one, give its address as api_base"


def _endpoint_keys(base: str, known: LiteLLMProvider | None, key: str | None) -> dict[str, object]:
    """Return the keys that say where an OpenAI-compatible endpoint is and what opens it."""
    base = base.rstrip("/").removesuffix("/chat/completions").rstrip("/")
    if known is not None and known.under:
        base = f"{base.removesuffix('/api').removesuffix(known.under).rstrip('/')}{known.under}"
    found: dict[str, object] = {"base_url": base}
    return found | ({"api_key_env": key} if key else {})


def _azure_keys(base: str, deployment: str, params: LiteLLMEntry, key: str | None) -> dict[str, object]:
    """Return the keys of an Azure OpenAI deployment.

    With a dated `api_version` that is `/openai/deployments/NAME` with the version as a query and the key in a header of
    its own; without one Azure's v1 API, to which a deployment is a model.
    """
    parts = urlsplit(base)
    root = f"{parts.scheme}://{parts.netloc}"
    dated = params.get("api_version") or dict(parse_qsl(parts.query)).get("api-version")
    if not isinstance(dated, str) or not dated[:1].isdigit():
        return _endpoint_keys(f"{root}/openai/v1", None, key)
    query = urlencode({"api-version": dated})
    found: dict[str, object] = {"base_url": f"{root}/openai/deployments/{quote(deployment)}?{query}"}
    return found | ({"headers": {"api-key": f"${{{key}}}"}} if key else {})


def _split_model(model: str) -> tuple[str, str]:
    provider, slash, bare = model.partition("/")
    if slash:
        return provider, bare
    return ("anthropic" if model.startswith("claude") else "openai"), model


def _key_variable(given: object, known: LiteLLMProvider | None, where: str, imported: LiteLLMImport) -> str | None:
    default = known.key if known else None
    if isinstance(given, str) and given.startswith(_REFERENCE):
        return given.removeprefix(_REFERENCE)
    if isinstance(given, str) and given not in ("", "none", "None", "dummy"):
        default = default or "API_KEY"
        imported.notes.append(f"{where}: its key is not copied: put it into the environment variable {default}")
    return default


def _limits(params: LiteLLMEntry, info: LiteLLMEntry) -> Iterator[tuple[str, object]]:
    both = {**info, **params}
    prices = {
        "input": both.get("input_cost_per_token"),
        "output": both.get("output_cost_per_token"),
        "cached": both.get("cache_read_input_token_cost"),
    }
    if price := {key: float(f"{value * 1e6:.6g}") for key, value in prices.items() if _is_number(value)}:
        yield "price", price
    for ours, theirs in (
        ("max_output_tokens", ("max_completion_tokens", "max_tokens", "max_output_tokens")),
        ("context_tokens", ("max_input_tokens",)),
        ("concurrency", ("max_parallel_requests",)),
    ):
        found = next((both[key] for key in theirs if _is_whole(both.get(key)) and both[key]), None)
        if found is not None:
            yield ours, found
    if _is_number(rpm := params.get("rpm")) and rpm:
        yield "rate", float(f"{rpm / 60:.6g}")


def _add_fallbacks(config: object, groups: Mapping[str, Sequence[str]], imported: LiteLLMImport) -> None:
    for section in ("litellm_settings", "router_settings"):
        rules = _part(config, section).get("fallbacks")
        for rule in rules if isinstance(rules, Sequence) else ():
            for group, named in rule.items() if isinstance(rule, Mapping) else ():
                others = named if isinstance(named, list) else [named]
                stand_in = next(
                    (groups[other][0] for other in others if isinstance(other, str) and other in groups), None
                )
                for name in groups.get(group, ()) if stand_in else ():
                    imported.workers[name]["fallback"] = stand_in


def _free_name(name: str, taken: Mapping[str, object]) -> str:
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free


def _part(whole: object, key: str) -> LiteLLMEntry:
    part = whole.get(key) if isinstance(whole, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def _part_text(whole: object, key: str) -> str:
    part = whole.get(key) if isinstance(whole, Mapping) else None
    return part if isinstance(part, str) else ""


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_NUMBER


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and _is_number(value)


def _toml_table(name: str, keys: Mapping[str, object]) -> str:
    lines = [f"{key} = {_toml_literal(value)}" for key, value in keys.items()]
    return "\n".join([f"[workers.{_quoted_key(name)}]", *lines, ""])


def _quoted_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _toml_literal(name)


def _toml_literal(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_quoted_key(key)} = {_toml_literal(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
