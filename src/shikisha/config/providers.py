"""Providers of language models: where the OpenAI-compatible endpoint of each is, and which variables open it.

One table for everybody who needs an address: `import litellm`, `shikisha init`, the endpoints that a first run finds,
workers without `base_url`, "provider:model" in Python, and the provider's name in telemetry. Invariants: no key is ever
read here, only the name of the variable that holds it; where a variable points a provider elsewhere, every door goes
there; an address that depends on an account (Azure, Bedrock, Vertex AI) is built from variables that the provider's own
tools read, and what is missing is named. Deliberately absent: signed requests. Bedrock and Vertex AI are reached with
an API key and an access token of theirs.

What models of known providers cost, and how much they read: a dated catalogue that `scripts/prices` writes.
"""

import json
from collections import ChainMap
from collections.abc import Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from ipaddress import ip_address
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.fast_dataclass import dataclass
from shikisha.workers.endpoint import LOCAL_URL
from shikisha.workers.provider_profile import UNKNOWN_ENDPOINT, profile_at, profile_named


@dataclass(frozen=True, slots=True)
class ChatProvider:
    """Where a provider's OpenAI-compatible endpoint is, and the variable that holds its key.

    `base_url` None: whoever names the provider says where. `under`: the path of that endpoint, where people give the
    server's root. `instead`: why no key opens such an endpoint of this provider. `other_keys`: further names of the
    variable. `base_url_env`: the variable by which the provider's own client is pointed elsewhere, besides those made
    of its key's name (`address_variables`). `models`: a cheap and a strong one, for who names none. `prices`: the
    provider's name in the price catalogue, where it is another. `usual`: where such a server listens, for who looks.
    """

    base_url: str | None = None
    key: str | None = None
    under: str = ""
    instead: str = ""
    other_keys: tuple[str, ...] = ()
    base_url_env: str = ""
    models: tuple[str, ...] = ()
    prices: str = ""
    usual: str = ""


_SIGNED = "{} signs each call with cloud credentials, which no worker does"
_OWN_FORM = "{} has a protocol of its own, which no worker speaks"

_OLLAMA = ChatProvider("http://localhost:11434/v1", under="/v1", base_url_env="OLLAMA_HOST")
_BEDROCK = ChatProvider(key="AWS_BEARER_TOKEN_BEDROCK", models=("openai.gpt-oss-20b", "openai.gpt-oss-120b"))
_VERTEX = ChatProvider(
    key="CLOUDSDK_AUTH_ACCESS_TOKEN",
    models=("google/gemini-3.5-flash-lite", "google/gemini-3.8-flash"),
    prices="gemini",
)
_COHERE = ChatProvider(
    "https://api.cohere.ai/compatibility/v1",
    "COHERE_API_KEY",
    under="/compatibility/v1",
    other_keys=("CO_API_KEY",),
    base_url_env="CO_API_URL",
    models=("command-r7b-12-2024", "command-a-03-2025"),
)
PROVIDERS: Mapping[str, ChatProvider] = {
    "ai21": ChatProvider("https://api.ai21.com/studio/v1", "AI21_API_KEY"),
    "ai21_chat": ChatProvider("https://api.ai21.com/studio/v1", "AI21_API_KEY"),
    "anthropic": ChatProvider(
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
        under="/v1",
        models=("claude-haiku-5-5", "claude-sonnet-5-5"),
    ),
    "azure": ChatProvider(key="AZURE_API_KEY", other_keys=("AZURE_OPENAI_API_KEY",), prices="openai"),
    "azure_ai": ChatProvider(key="AZURE_AI_API_KEY", under="/openai/v1"),
    "bedrock": _BEDROCK,
    "bedrock_converse": _BEDROCK,
    "cerebras": ChatProvider("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", models=("gpt-oss-120b",)),
    "codestral": ChatProvider("https://codestral.mistral.ai/v1", "CODESTRAL_API_KEY"),
    "cohere": _COHERE,
    "cohere_chat": _COHERE,
    "custom_openai": ChatProvider(key="OPENAI_API_KEY"),
    "dashscope": ChatProvider("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    "databricks": ChatProvider(key="DATABRICKS_API_KEY"),
    "deepinfra": ChatProvider("https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    "deepseek": ChatProvider(
        "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", models=("deepseek-v4-flash", "deepseek-v4-pro")
    ),
    "fireworks_ai": ChatProvider(
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_AI_API_KEY",
        other_keys=("FIREWORKS_API_KEY",),
        models=("accounts/fireworks/models/gpt-oss-20b", "accounts/fireworks/models/gpt-oss-120b"),
    ),
    "friendliai": ChatProvider("https://api.friendli.ai/serverless/v1", "FRIENDLI_TOKEN"),
    "gemini": ChatProvider(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        under="/v1beta/openai",
        other_keys=("GOOGLE_API_KEY",),
        base_url_env="GOOGLE_GEMINI_BASE_URL",
        models=("gemini-3.5-flash-lite", "gemini-3.8-flash"),
    ),
    "github": ChatProvider("https://models.inference.ai.azure.com", "GITHUB_API_KEY"),
    "github_copilot": ChatProvider(instead="GitHub Copilot asks a person to sign in, which no worker does"),
    "groq": ChatProvider(
        "https://api.groq.com/openai/v1",
        "GROQ_API_KEY",
        under="/openai/v1",
        models=("openai/gpt-oss-20b", "openai/gpt-oss-120b"),
    ),
    "hosted_vllm": ChatProvider(usual="http://localhost:8000/v1", base_url_env="VLLM_BASE_URL"),
    "huggingface": ChatProvider("https://router.huggingface.co/v1", "HF_TOKEN"),
    "hyperbolic": ChatProvider("https://api.hyperbolic.xyz/v1", "HYPERBOLIC_API_KEY"),
    "litellm_proxy": ChatProvider(
        key="LITELLM_PROXY_API_KEY", other_keys=("LITELLM_MASTER_KEY",), usual="http://localhost:4000/v1"
    ),
    "llamafile": ChatProvider("http://127.0.0.1:8080/v1", base_url_env="LLAMAFILE_API_BASE"),
    "local": ChatProvider(LOCAL_URL),
    "lm_studio": ChatProvider("http://localhost:1234/v1", base_url_env="LM_STUDIO_API_BASE"),
    "meta_llama": ChatProvider("https://api.llama.com/compat/v1", "LLAMA_API_KEY"),
    "mistral": ChatProvider(
        "https://api.mistral.ai/v1", "MISTRAL_API_KEY", models=("mistral-small-latest", "mistral-large-4")
    ),
    "moonshot": ChatProvider("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY", models=("kimi-k2.6", "kimi-k3.1-pro")),
    "nebius": ChatProvider("https://api.studio.nebius.ai/v1", "NEBIUS_API_KEY"),
    "novita": ChatProvider("https://api.novita.ai/v3/openai", "NOVITA_API_KEY"),
    "nvidia_nim": ChatProvider("https://integrate.api.nvidia.com/v1", "NVIDIA_NIM_API_KEY"),
    "oci": ChatProvider(instead=_SIGNED.format("Oracle Cloud")),
    "ollama": _OLLAMA,
    "ollama_chat": _OLLAMA,
    "openai": ChatProvider(
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        models=("gpt-6-luna", "gpt-6.1-terra"),
    ),
    "openai_like": ChatProvider(key="OPENAI_LIKE_API_KEY"),
    "openrouter": ChatProvider(
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        models=("openai/gpt-oss-20b", "deepseek/deepseek-v4-pro"),
    ),
    "perplexity": ChatProvider(
        "https://api.perplexity.ai", "PERPLEXITYAI_API_KEY", other_keys=("PERPLEXITY_API_KEY",), models=("sonar",)
    ),
    "petals": ChatProvider(instead=_OWN_FORM.format("Petals")),
    "predibase": ChatProvider(instead=_OWN_FORM.format("Predibase")),
    "replicate": ChatProvider(instead=_OWN_FORM.format("Replicate")),
    "sagemaker": ChatProvider(instead=_SIGNED.format("Amazon SageMaker")),
    "sagemaker_chat": ChatProvider(instead=_SIGNED.format("Amazon SageMaker")),
    "sambanova": ChatProvider("https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
    "snowflake": ChatProvider(instead=_OWN_FORM.format("Snowflake Cortex")),
    "text-completion-openai": ChatProvider(instead="text completion is no chat"),
    "together_ai": ChatProvider(
        "https://api.together.xyz/v1",
        "TOGETHERAI_API_KEY",
        other_keys=("TOGETHER_API_KEY",),
        models=("openai/gpt-oss-120b", "moonshotai/Kimi-K3"),
    ),
    "vertex_ai": _VERTEX,
    "vertex_ai_beta": _VERTEX,
    "vllm": ChatProvider(
        instead="vllm/ loads the model into LiteLLM's own process (a vLLM server is hosted_vllm/MODEL)"
    ),
    "volcengine": ChatProvider("https://ark.cn-beijing.volces.com/api/v3", "VOLCENGINE_API_KEY"),
    "watsonx": ChatProvider(instead=_OWN_FORM.format("watsonx.ai")),
    "xai": ChatProvider("https://api.x.ai/v1", "XAI_API_KEY", models=("grok-4-1-fast-non-reasoning", "grok-4.7")),
    "xinference": ChatProvider("http://127.0.0.1:9997/v1"),
}
# What OpenTelemetry's conventions call a provider, and what its hosts end with besides that of `base_url`.
_TELEMETRY: Mapping[str, Sequence[str]] = {
    "openai": ["openai"],
    "azure": ["azure.ai.openai", "openai.azure.com"],
    "gemini": ["gcp.gemini"],
    "azure_ai": ["azure.ai.inference", "services.ai.azure.com"],
    "anthropic": ["anthropic", "anthropic.com"],
    "vertex_ai": ["gcp.vertex_ai", "aiplatform.googleapis.com"],
    "deepseek": ["deepseek"],
    "groq": ["groq"],
    "bedrock": ["aws.bedrock", "amazonaws.com", "api.aws"],
    "cohere": ["cohere", "cohere.ai", "cohere.com"],
    "mistral": ["mistral_ai", "mistral.ai"],
    "moonshot": ["moonshot_ai", "moonshot.cn"],
    "xai": ["x_ai"],
    "perplexity": ["perplexity"],
}
LOCAL_PROVIDERS = frozenset(
    {"ollama", "ollama_chat", "vllm", "hosted_vllm", "lm_studio", "llamafile", "local", "xinference"}
)
# Whose key alone says that somebody wants to call a model; HF_TOKEN and the like also stand for other things.
FIRST_RUN_PROVIDERS = (
    *("openai", "anthropic", "gemini", "mistral", "groq", "openrouter", "deepseek", "xai", "together_ai", "cerebras"),
    *("cohere", "fireworks_ai", "moonshot", "perplexity", "azure", "bedrock", "vertex_ai"),
)

_ACCOUNT: Mapping[str, Mapping[str, tuple[str, ...]]] = {  # what an address needs: the variables that hold it
    "azure": {
        "endpoint": ("AZURE_OPENAI_ENDPOINT", "AZURE_API_BASE"),
        "deployment": ("AZURE_OPENAI_DEPLOYMENT", "AZURE_OPENAI_DEPLOYMENT_NAME"),
        "version": ("OPENAI_API_VERSION", "AZURE_OPENAI_API_VERSION", "AZURE_API_VERSION"),
    },
    "bedrock": {"region": ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_REGION_NAME")},
    "vertex_ai": {
        "project": ("GOOGLE_CLOUD_PROJECT", "VERTEXAI_PROJECT"),
        "location": ("GOOGLE_CLOUD_LOCATION", "VERTEXAI_LOCATION"),
    },
}
_OPTIONAL = frozenset({"version", "location"})
_FAMILY = {**{name: name for name in _ACCOUNT}, "bedrock_converse": "bedrock", "vertex_ai_beta": "vertex_ai"}


def provider_of(name: str) -> ChatProvider:
    """Return a provider that a key or an address opens; UnknownName or ConfigError says why there is none."""
    if name not in PROVIDERS:
        raise UnknownName("provider", name, PROVIDERS)
    known = PROVIDERS[name]
    if known.instead:
        raise ConfigError(known.instead)
    return known


def key_variable(name: str, environment: Mapping[str, str]) -> str | None:
    """Return the variable that holds the provider's key here; the usual one where none is set."""
    known = PROVIDERS[name]
    names = [each for each in (known.key, *known.other_keys) if each]
    return next((each for each in names if environment.get(each, "").strip()), names[0] if names else None)


def address_variables(name: str) -> tuple[str, ...]:
    """Return the variables that point a provider elsewhere, as clients read them (OPENAI_BASE_URL, OPENAI_API_BASE)."""
    known = PROVIDERS[name]
    if name in _FAMILY:
        return ()  # whose addresses belong to an account: see `account_of`
    stems = [each.removesuffix("_API_KEY") for each in (known.key, *known.other_keys) if each and "_API_KEY" in each]
    made = [f"{stem}{end}" for stem in stems for end in ("_BASE_URL", "_API_BASE")]
    return (*([known.base_url_env] if known.base_url_env else []), *made)


def address_of(name: str, environment: Mapping[str, str]) -> str | None:
    """Return where variables point a provider, None where none does; ConfigError for what is no address."""
    variable = next((each for each in address_variables(name) if environment.get(each, "").strip()), None)
    if variable is None:
        return None
    if isinstance(environment, ChainMap) and variable not in environment.maps[0]:  # a folder's `.env` names it
        key = key_variable(name, environment.maps[0])
        if key is not None and environment.maps[0].get(key, "").strip():
            raise ConfigError(
                f"{variable} is in .env and {key} is not: a file in a folder does not say where your own key goes; "
                f"set {variable} in the environment, too, or put both into .env"
            )
    given, usual = environment[variable].strip(), PROVIDERS[name].base_url or PROVIDERS[name].usual
    if is_loopback(urlsplit(usual).hostname or ""):
        return local_address(given, usual)
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{variable}: expected the whole URL, as in http://localhost:8000/v1")
    return given


def reach_keys(name: str, model: str, environment: Mapping[str, str], base_url: str | None = None) -> dict[str, object]:
    """Return the keys of [workers.NAME] that reach a model from here: address, key and account as variables say.

    `base_url` goes before them. Only the provider's own servers surely want a key: elsewhere one that is not set is
    left out. ConfigError says what is missing.
    """
    elsewhere, variable = base_url or address_of(name, environment), key_variable(name, environment)
    keys = chat_keys(name, model, variable, elsewhere or PROVIDERS[name].usual or None, account_of(name, environment))
    if elsewhere and variable and not environment.get(variable, "").strip():
        keys.pop("api_key_env", None)
    return keys


def is_free(name: str, base_url: str | None) -> bool:
    """Whether calls cost nothing: local servers, and any address of this machine but a proxy's, which may bill them."""
    return name in LOCAL_PROVIDERS or (name != "litellm_proxy" and is_loopback(urlsplit(base_url or "").hostname or ""))


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name alone."""
    try:
        return host.rstrip(".") == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_own_address(name: str, base_url: str | None) -> bool:
    """Whether an address is the provider's own, for which its list prices hold; None: where it usually is."""
    host = urlsplit(base_url or "").hostname or ""
    return base_url is None or name == "azure" or _is_host_of(name, host)


def provider_at(host: str) -> str:
    """Return the name that OpenTelemetry's conventions have for the provider at this host.

    For any other host they want the protocol's name, and all chat endpoints are called by OpenAI's.
    """
    return next((words[0] for name, words in _TELEMETRY.items() if _is_host_of(name, host)), "openai")


def _is_host_of(name: str, host: str) -> bool:
    own = urlsplit(PROVIDERS[name].base_url or "").hostname
    ends = (*([own] if own else []), *_TELEMETRY.get(_FAMILY.get(name, name), ("",))[1:])
    return any(host == end or host.endswith((f".{end}", f"-{end}")) for end in ends)


def account_of(name: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the address of a provider needs of an account, as far as variables say it."""
    found = {
        part: next((environment[each] for each in variables if environment.get(each)), "")
        for part, variables in _ACCOUNT.get(_FAMILY.get(name, name), {}).items()
    }
    return {part: value for part, value in found.items() if value}


def chat_keys(
    name: str, model: str, key: str | None = None, base_url: str | None = None, account: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Return the keys of [workers.NAME] that reach a model: address, key variable, and whose it is if it does not say.

    `key`: the variable that holds the key; by default the provider's usual one. ConfigError names what is missing.
    """
    known = provider_of(name)
    variable = key or known.key
    if base_url is None and name in _FAMILY:
        base_url = _account_address(_FAMILY[name], account or {})
    base_url = base_url or known.base_url
    if base_url is None:
        raise ConfigError(f"{name} has no address of its own; expected base_url")
    keys: dict[str, object] = {"kind": "chat", "model": model}
    if name == "azure":
        keys |= azure_keys(base_url, model, (account or {}).get("version"), variable)
    else:
        keys |= endpoint_keys(base_url, known.under, variable)
    profile = profile_named(name)
    return keys if profile in (UNKNOWN_ENDPOINT, profile_at(str(keys["base_url"]))) else keys | {"provider": name}


def _account_address(name: str, account: Mapping[str, str]) -> str:
    """Return the address of an account's own endpoint."""
    missing = [part for part in _ACCOUNT[name] if part not in account and part not in _OPTIONAL | {"deployment"}]
    if missing:
        wanted = "; ".join(f"{part} ({' or '.join(_ACCOUNT[name][part])})" for part in missing)
        raise ConfigError(f"{name} needs its {wanted}, or base_url")
    match name:
        case "azure":
            return account["endpoint"]
        case "bedrock":
            return f"https://bedrock-mantle.{quote(account['region'])}.api.aws/v1"
        case _:
            location, project = quote(account.get("location", "global")), quote(account["project"])
            host = "aiplatform.googleapis.com" if location == "global" else f"{location}-aiplatform.googleapis.com"
            return f"https://{host}/v1/projects/{project}/locations/{location}/endpoints/openapi"


def endpoint_keys(base: str, under: str, key: str | None) -> dict[str, object]:
    """Return the keys that say where an OpenAI-compatible endpoint is and what opens it."""
    base = base.rstrip("/").removesuffix("/chat/completions").rstrip("/")
    if under:
        base = f"{base.removesuffix('/api').removesuffix(under).rstrip('/')}{under}"
    found: dict[str, object] = {"base_url": base}
    return found | ({"api_key_env": key} if key else {})


def azure_keys(base: str, deployment: str, version: object, key: str | None) -> dict[str, object]:
    """Return the keys of an Azure OpenAI deployment.

    With a dated `api-version` that is `/openai/deployments/NAME` with the version as a query and the key in a header of
    its own; without one Azure's v1 API, to which a deployment is a model.
    """
    parts = urlsplit(base)
    root = f"{parts.scheme}://{parts.netloc}"
    dated = version or dict(parse_qsl(parts.query)).get("api-version")
    if not isinstance(dated, str) or not dated[:1].isdigit():
        return endpoint_keys(f"{root}/openai/v1", "", key)
    query = urlencode({"api-version": dated})
    found: dict[str, object] = {"base_url": f"{root}/openai/deployments/{quote(deployment)}?{query}"}
    return found | ({"headers": {"api-key": f"${{{key}}}"}} if key else {})


def local_address(given: str, default: str) -> str:
    """Return a base URL from what OLLAMA_HOST and the like hold: a URL, HOST:PORT, HOST, or nothing."""
    given = given.strip().rstrip("/")
    if not given:
        return default
    usual = urlsplit(default)
    parts = urlsplit(given if "://" in given else f"{usual.scheme}://{given}")
    host = parts.hostname or usual.hostname or "localhost"
    if host in ("0.0.0.0", "::"):  # noqa: S104 - what a server listens on; its clients on this machine call loopback
        host = "127.0.0.1"
    port = parts.port or (usual.port if parts.scheme == usual.scheme else 443)
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{port}{parts.path or usual.path}"


def model_names(names: Sequence[str]) -> list[str]:
    """Return the names of models that chat, as far as names tell: without those that embed, draw, speak or rank."""
    return [each for each in names if not any(mark in each.lower() for mark in _NO_CHAT)]


_NO_CHAT = (
    *("embed", "whisper", "tts", "dall-e", "image", "rerank", "moderation", "transcribe", "realtime", "audio", "bge-"),
    *("clip", "guard", "sora", "veo", "imagen", "davinci", "babbage", "e5-", "minilm", "live", "robotics", "ocr"),
)


MAX_PRICE_DAYS = 30  # after which `doctor` says that a price is old


@cache
def _catalogue() -> Mapping[str, object]:
    text = resources.files("shikisha.config").joinpath("prices.json").read_text(encoding="utf-8")
    loaded: Mapping[str, object] = json.loads(text)
    return loaded


def catalogue_date() -> date:
    """Return the day on which the catalogue was written."""
    return date.fromisoformat(str(_catalogue()["as_of"]))


def catalogue_source() -> str:
    """Return what the catalogue was made from."""
    return str(_catalogue()["source"])


def known_price(provider: str, model: str) -> dict[str, object]:
    """Return `price` and `context_tokens` of a model, as in [workers.NAME]; empty where it is not known."""
    named = PROVIDERS[provider].prices if provider in PROVIDERS else ""
    table = _catalogue().get(named or provider)
    row = _find_row(table, model.lower()) if isinstance(table, Sequence) and not isinstance(table, str) else None
    if row is None and isinstance(table, Sequence):  # google/gemini-... on Vertex AI, and Bedrock's two endpoints
        other = f"{model}-1:0" if provider == "bedrock" else model.rpartition("/")[2]
        row = _find_row(table, other.lower())
    if row is None:
        return {}
    dollars, output, cached, window, *_ = row
    price: dict[str, object] = {"input": dollars, "output": output}
    price |= {} if cached is None else {"cached": cached}
    found: dict[str, object] = {"price": price | {"as_of": catalogue_date()}}
    return found if window is None else found | {"context_tokens": window}


def _find_row(table: Sequence[Sequence[object]], model: str) -> Sequence[object] | None:
    """Return the row that names the model; an exact name before a pattern, a longer pattern before a shorter one."""
    fitting = [
        (name == model, len(str(name)), row)
        for row in table
        for name in row[4:]
        if name == model or ("*" in str(name) and fnmatchcase(model, str(name)))
    ]
    return max(fitting, key=lambda found: found[:2])[2] if fitting else None
