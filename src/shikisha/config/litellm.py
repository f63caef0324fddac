"""The `model_list` of a LiteLLM proxy as [workers] tables, with notes on what was left out.

Invariants: no key is copied, only the names of environment variables; an entry that is not an OpenAI-compatible
endpoint is named in the notes, with what to do about it, and never guessed at. Routing strategies, guardrails and
callbacks are not imported; load-balanced deployments become separate workers.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TypeGuard
from urllib.parse import urlsplit

from shikisha.config.providers import PROVIDERS, ChatProvider, account_of, chat_keys
from shikisha.core.errors import ConfigError, MissingExtra
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.toml import quoted_key, table_text

LiteLLMEntry = Mapping[str, object]

_REFERENCE = "os.environ/"
_MAX_NUMBER = 2**53  # what a price, a count or a rate can be: whole in a double
_NOT_IN_NAMES = re.compile(r"[^\w.@:+/ -]")


_PROXY = (  # what can be done about every provider that is not reached directly
    'keep the LiteLLM proxy running and write: kind = "chat", base_url = "http://localhost:4000/v1", model = {!r}, '
    'api_key_env = "LITELLM_PROXY_API_KEY"'
)

_SIGNED_CALLS = {
    **dict.fromkeys(
        ("bedrock", "bedrock_converse"),
        "Amazon Bedrock signs each call with cloud credentials, which no worker does (with a Bedrock API key: give "
        "aws_region_name, and no access key)",
    ),
    **dict.fromkeys(
        ("vertex_ai", "vertex_ai_beta"),
        "Vertex AI takes Google tokens that expire within the hour (with an API key: gemini/MODEL; with a token that "
        "something renews: give vertex_project)",
    ),
}
_TOKENS = {
    **dict.fromkeys(
        ("bedrock", "bedrock_converse"), "it needs a Bedrock API key, and not every model answers at this address"
    ),
    **dict.fromkeys(
        ("vertex_ai", "vertex_ai_beta"),
        "it needs an access token, which expires within the hour (gcloud auth print-access-token)",
    ),
}
_ACCOUNT_KEYS = {
    "aws_region_name": "AWS_REGION",
    "vertex_project": "GOOGLE_CLOUD_PROJECT",
    "vertex_location": "GOOGLE_CLOUD_LOCATION",
    "api_version": "OPENAI_API_VERSION",
}
_COPIED = ("temperature", "top_p", "seed", "timeout")
_UNDERSTOOD = frozenset(
    {*_COPIED, "model", "api_base", "base_url", "api_key", "api_version", "max_tokens", "max_completion_tokens", "rpm"}
    | set(_ACCOUNT_KEYS)
    | {"max_parallel_requests", "input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost"}
    | {
        "cache_creation_input_token_cost",
        "cache_creation_input_token_cost_above_1hr",
        "output_cost_per_reasoning_token",
    }
    | {"input_cost_per_audio_token", "output_cost_per_audio_token"}
)


@dataclass(slots=True)
class LiteLLMImport:
    """Workers by name, each a table's keys; and in words what was left out or needs a look."""

    workers: dict[str, dict[str, object]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def toml(self) -> str:
        """Return the workers as TOML."""
        return "\n".join(table_text(f"workers.{quoted_key(name)}", keys) for name, keys in self.workers.items())


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
    base, account = _base_url(params, known), _account(provider, params)
    left = _SIGNED_CALLS.get(provider) if not account or base else None
    addressed = base is not None or (provider in _SIGNED_CALLS and account)
    if not addressed or left or (known is not None and known.instead):
        imported.notes.append(
            f"{where}: left out: {left or _why_not_imported(provider, known, params)}; {_PROXY.format(name)}"
        )
        return None
    key = _key_variable(params.get("api_key"), known, where, imported)
    unused = sorted(str(key) for key in set(params) - _UNDERSTOOD)
    if unused:
        imported.notes.append(f"{where}: not taken over: {', '.join(unused)}")
    worker = chat_keys(provider if known else "hosted_vllm", bare, key, base, account)
    if provider in _SIGNED_CALLS:
        imported.notes.append(f"{where}: {_TOKENS[provider]}: ask `doctor --call`")
    if known is not None and known.base_url is None and not urlsplit(str(worker["base_url"])).path.strip("/"):
        imported.notes.append(
            f"{where}: {base} has no path; most servers want one that ends in /v1: ask `doctor --call`"
        )
    return worker | {key: params[key] for key in _COPIED if _is_number(params.get(key))} | dict(_limits(params, info))


def _account(provider: str, params: LiteLLMEntry) -> dict[str, str]:
    """Return what the address of an account's own endpoint needs, as far as the entry says it."""
    given = {variable: str(params[name]) for name, variable in _ACCOUNT_KEYS.items() if params.get(name)}
    if "aws_access_key_id" in params or given.get("AWS_REGION", "").startswith(_REFERENCE):
        return {}
    found = account_of(provider, given)
    return {} if set(found) == {"location"} else found


def _base_url(params: LiteLLMEntry, known: ChatProvider | None) -> str | None:
    """Return the address that an entry gives, or its provider's."""
    given = params.get("api_base") or params.get("base_url")
    if given is None:
        return known.base_url if known else None
    return given if isinstance(given, str) and urlsplit(given).scheme in ("http", "https") else None


def _why_not_imported(provider: str, known: ChatProvider | None, params: LiteLLMEntry) -> str:
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


def _split_model(model: str) -> tuple[str, str]:
    provider, slash, bare = model.partition("/")
    if slash:
        return provider, bare
    return ("anthropic" if model.startswith("claude") else "openai"), model


def _key_variable(given: object, known: ChatProvider | None, where: str, imported: LiteLLMImport) -> str | None:
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
        "cache_write": both.get("cache_creation_input_token_cost"),
        "cache_write_1h": both.get("cache_creation_input_token_cost_above_1hr"),
        "reasoning": both.get("output_cost_per_reasoning_token"),
        "audio": both.get("input_cost_per_audio_token"),
        "audio_output": both.get("output_cost_per_audio_token"),
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
