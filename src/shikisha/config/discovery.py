"""What is there to answer with: providers whose key is set, and model servers on this machine.

Each is asked for its list of models, all at once, which costs nothing. Invariants: no model is called here, but where
its abilities are probed, and then only one that is free; a place
that answers nonsense, slowly, without end or not at all is a remark and delays nobody beyond a few seconds; a key goes
to the provider that issued it and appears in no remark. A configuration made of what was found has a cap on dollars, so
that no model without a known price is called by it. Deliberately absent: other hosts of the network, and asking anybody
whether to spend (see `cli.first_run`).
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shikisha.config.environment import DISCOVERY_VARIABLE, with_dotenv
from shikisha.config.providers import (
    FIRST_RUN_PROVIDERS,
    PROVIDERS,
    account_of,
    address_of,
    address_variables,
    is_free,
    is_loopback,
    is_own_address,
    key_variable,
    known_price,
    model_names,
    reach_keys,
)
from shikisha.core.budget import Price, Usage
from shikisha.core.errors import ConfigError, FaultKind, WorkerError
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.secrets import SecretStore
from shikisha.core.text import one_line
from shikisha.engine.worker import Card
from shikisha.workers.endpoint import LOCAL_URL, key_headers
from shikisha.workers.http_connections import HttpConnections
from shikisha.workers.provider_profile import profile_named

if TYPE_CHECKING:
    from shikisha.workers.http_client import HttpClient

LOCAL_SERVERS: Mapping[str, str] = {  # provider: what people call it
    "ollama": "Ollama",
    "hosted_vllm": "vLLM",
    "lm_studio": "LM Studio",
    "llamafile": "llama.cpp",
    "litellm_proxy": "LiteLLM proxy",
}
_MODES = ("all", "local", "free", "off")
FIRST_RUN_DOLLARS = 0.25  # the cap on one run of a configuration that nobody wrote
_LOCAL_SECONDS, _REMOTE_SECONDS = 3.0, 4.0  # a local server on a busy machine needs more than one
_MAX_BYTES = 4 * 2**20  # OpenRouter's list has one megabyte
_MAX_MODELS = 5_000
_MAX_NAME = 200
_MODELS_EACH = 2  # of a provider or server, in a configuration that nobody wrote
_OUTPUT_TOKENS = 4096
_TYPICAL = Usage(1_000, 500)
_PROBE_SECONDS = 60.0  # a local server may have to load the model first
_WINDOW_KEYS = ("max_model_len", "context_length", "max_context_length", "context_window", "max_input_tokens")


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that an endpoint has: its name there, its price as in [workers.NAME], and its context window.

    `able`: which of tools, schema and logprobs a call showed; None where none was made.
    """

    name: str
    price: Mapping[str, object] | None = None
    context_tokens: int | None = None
    able: frozenset[str] | None = None

    @property
    def dollars(self) -> float:
        """What a question of 1,000 tokens with an answer of 500 costs; infinite where the price is not known."""
        return float("inf") if self.price is None else _price(self.price).of(_TYPICAL)


@dataclass(frozen=True, slots=True)
class FoundEndpoint:
    """A provider or server that answered: where it is, the keys that reach a model of it, and the models to use.

    `base_url`: where variables point it, None at the provider's own address. `others`: how many more models it has.
    """

    provider: str
    place: str
    base_url: str | None
    keys: Mapping[str, object] = field(default_factory=dict)
    models: tuple[FoundModel, ...] = ()
    others: int = 0

    @property
    def label(self) -> str:
        """What people call it."""
        return LOCAL_SERVERS.get(self.provider, self.provider)

    @property
    def free(self) -> bool:
        """Whether calling it costs nothing."""
        states_price = any(model.price is not None and model.dollars for model in self.models)
        return is_free(self.provider, self.base_url) and not states_price


@dataclass(frozen=True, slots=True)
class Discovery:
    """What was found, cheapest first, and remarks on what was there but cannot be used."""

    endpoints: tuple[FoundEndpoint, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def free(self) -> "Discovery":
        """The part that costs nothing."""
        return replace(self, endpoints=tuple(each for each in self.endpoints if each.free))

    @property
    def usable(self) -> tuple[tuple[FoundEndpoint, FoundModel], ...]:
        """The models with a known price, cheapest first."""
        pairs = [(each, model) for each in self.endpoints for model in each.models if model.price is not None]
        return tuple(sorted(pairs, key=lambda pair: pair[1].dollars))

    @property
    def named(self) -> tuple[tuple[FoundEndpoint, FoundModel], ...]:
        """The models to name as workers: the usable ones, and only where there are none those without a known price."""
        return self.usable or tuple((each, model) for each in self.endpoints for model in each.models)


async def discover(environment: Mapping[str, str], *, remote: bool = True, probe: bool = False) -> Discovery:
    """Look for providers whose key is in the environment, and for model servers on this machine.

    `probe`: free models are called, twice each, to see what they can.
    """
    secret_store = SecretStore(environment)
    asked = [_ask_local(name, environment, secret_store) for name in LOCAL_SERVERS]
    if remote:
        told = {name: (key_variable(name, environment) or "", *address_variables(name)) for name in FIRST_RUN_PROVIDERS}
        keyed = [name for name, each in told.items() if any(environment.get(variable, "").strip() for variable in each)]
        asked += [_ask_provider(name, environment, secret_store) for name in keyed]
    results = await asyncio.gather(*asked)
    found = [each for each in results if isinstance(each, FoundEndpoint)]
    if probe:
        found = [await _probed(each, secret_store) if each.free and each.base_url else each for each in found]
    remarks = [each for each in results if isinstance(each, str)]
    cheapest = {id(each): min((model.dollars for model in each.models), default=float("inf")) for each in found}
    return Discovery(tuple(sorted(found, key=lambda each: cheapest[id(each)])), tuple(remarks))


def local_models() -> Discovery:
    """Return the models that were pulled to this machine, the largest first; none where no runtime is installed.

    They answer where nothing else is found: they are free and weak.
    """
    from shikisha.workers import local_model, model_files  # only where nothing else is found

    if not local_model.has_runtime():
        return Discovery()
    return Discovery(
        tuple(
            FoundEndpoint(
                "local",
                f"{model.title}, on this machine",
                LOCAL_URL,
                {
                    "kind": "chat",
                    "base_url": LOCAL_URL,
                    "provider": "local",
                    "temperature": 0.0,
                    "description": f"{model.title}, free, on this machine.",
                },
                (FoundModel(name, {}, model.context_tokens, frozenset({"schema", "tools"})),),
            )
            for name, model in reversed(tuple(model_files.pulled_models(model_files.models_folder()).items()))
        )
    )


def find_endpoints(environment: Mapping[str, str] | None = None, *, probe: bool = False) -> Discovery:
    """Look for endpoints as far as $SHIKISHA_DISCOVERY allows; ConfigError where it says nothing known."""
    environment = os.environ if environment is None else environment
    mode = environment.get(DISCOVERY_VARIABLE, "") or "all"
    if mode not in _MODES:
        raise ConfigError(f"{DISCOVERY_VARIABLE}: expected one of {', '.join(_MODES)}, not {mode!r}")
    if mode == "off":
        return Discovery()
    found = asyncio.run(discover(with_dotenv(environment, Path()), remote=mode == "all", probe=probe))
    found = found.free if mode == "free" else found
    return found if found.named else replace(local_models(), remarks=found.remarks)


def found_tables(found: Discovery) -> dict[str, object]:
    """Return a configuration of what was found: the cheapest model answers, and the next one stands in for it."""
    pairs = found.named
    names = worker_names(pairs)
    workers: dict[str, dict[str, object]] = {}
    for place, (endpoint, model) in enumerate(pairs):
        after = names[place + 1] if place + 1 < len(names) else None
        workers[names[place]] = worker_keys(endpoint, model) | ({"fallback": after} if after else {})
    first = {"conductor": f"fixed:single?worker={names[0]}"} if names else {}
    return {**first, "budgets": {"dollars": FIRST_RUN_DOLLARS}, "workers": workers}


def worker_names(pairs: Sequence[tuple[FoundEndpoint, FoundModel]]) -> list[str]:
    """Return a name for each worker: the model's, with the provider's in front where two have a model of one name."""
    models = [model.name for _, model in pairs]
    names = [
        _fit_name(model.name if models.count(model.name) == 1 else f"{endpoint.provider}/{model.name}")
        for endpoint, model in pairs
    ]
    return [name if names.index(name) == place else f"{name}-{place}" for place, name in enumerate(names)]


def worker_keys(endpoint: FoundEndpoint, model: FoundModel) -> dict[str, object]:
    """Return [workers.NAME] of a model that was found."""
    reached = {**endpoint.keys, "model": model.name}
    cost = "free" if endpoint.free else "price not known" if model.price is None else f"{_price_text(model.price)}"
    keys = {"kind": "chat", "description": f"{model.name} of {endpoint.label} ({cost})."} | reached
    keys |= {} if model.price is None else {"price": dict(model.price)}
    keys |= {} if model.context_tokens is None else {"context_tokens": model.context_tokens}
    keys |= {"max_output_tokens": min(_OUTPUT_TOKENS, max((model.context_tokens or 2 * _OUTPUT_TOKENS) // 2, 1))}
    able, assumed = model.able, profile_named(endpoint.provider).request.schema_mode
    keys |= {"structured_output": True} if (assumed if able is None else "schema" in able) else {}
    return keys | {"tools": able is None or "tools" in able}


def describe_endpoint(endpoint: FoundEndpoint) -> tuple[str, str, str, str]:
    """Return an endpoint as a row: what it is, where, its models, what they cost per million tokens."""
    names = ", ".join(map(_model_text, endpoint.models)) or "no model that chats"
    more = f" and {endpoint.others:,} more" if endpoint.others else ""
    prices = [model.price for model in endpoint.models]
    known = list(dict.fromkeys(_price_text(each) for each in prices if each is not None))
    per = [f"{' and '.join(known)} per million tokens"] if known else []
    unknown = ["price not known"] if None in prices else []
    cost = "free" if endpoint.free else ", ".join([*per, *unknown])
    return endpoint.label, endpoint.place, f"{names}{more}", cost


def _model_text(model: FoundModel) -> str:
    if model.able is None:
        return model.name
    window = "window not known" if model.context_tokens is None else f"{model.context_tokens:,} tokens"
    return f"{model.name} ({', '.join([window, *sorted(model.able)])})"


def _price_text(price: Mapping[str, object]) -> str:
    return f"${_price(price).input:g}/{_price(price).output:g}"


def _price(price: Mapping[str, object]) -> Price:
    dollars = {name: value for name, value in price.items() if isinstance(value, int | float)}
    return Price(dollars.get("input", 0.0), dollars.get("output", 0.0), dollars.get("cached"), dollars.get("call", 0.0))


def _fit_name(name: str) -> str:
    name = name.rpartition("/")[2].removesuffix(".gguf") if name.startswith("/") else name  # llama.cpp names its file
    kept = "".join(letter if letter.isalnum() or letter in "_.@:+/-" else "-" for letter in name)[:_MAX_NAME]
    return kept if kept[:1].isalnum() or kept[:1] == "_" else f"m{kept}"


async def _ask_local(
    name: str, environment: Mapping[str, str], secret_store: SecretStore
) -> FoundEndpoint | str | None:
    """Return a server of this machine with its models, a remark, or None where nobody listens."""
    label, pointed = LOCAL_SERVERS[name], address_of(name, environment)
    base_url = pointed or PROVIDERS[name].base_url or PROVIDERS[name].usual
    place, keys = urlsplit(base_url).netloc, reach_keys(name, "", environment, base_url)
    try:
        await _refuse_closed_port(base_url)
        async with _lister(keys, {}, secret_store, _LOCAL_SECONDS) as asking:
            rows = await asking.models(base_url)
            if name == "litellm_proxy":
                rows = await asking.with_prices(base_url, rows)
            if name == "ollama":
                rows = await asking.with_windows(base_url, rows)
    except _NotThereError:
        return f"{label} at {place} ({address_variables(name)[0]}) does not answer" if pointed else None
    except (_UnusableError, ConfigError) as error:
        return f"{place}, where {label} usually is: {error}"
    return _found(FoundEndpoint(name, place, base_url, keys), rows)


async def _refuse_closed_port(base_url: str) -> None:
    """Raise _NotThereError where an address of this machine takes no connection.

    Most people have none of these servers, and the HTTP client takes longer to import than all of them to refuse.
    """
    parts = urlsplit(base_url)
    try:
        host, port = parts.hostname or "", parts.port or {"https": 443}.get(parts.scheme, 80)
    except ValueError:
        return  # the client has words for it
    if not is_loopback(host):
        return
    try:
        async with asyncio.timeout(_LOCAL_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        raise _NotThereError(f"nothing listens on {host}:{port}") from None
    writer.close()


async def _probed(endpoint: FoundEndpoint, secret_store: SecretStore) -> FoundEndpoint:
    """Return an endpoint that costs nothing, with what its models show that they can."""
    async with _lister(endpoint.keys, {}, secret_store, _PROBE_SECONDS) as asking:
        told = [
            replace(each, able=await asking.abilities(endpoint.base_url or "", each.name)) for each in endpoint.models
        ]
    return replace(endpoint, models=tuple(told))


async def _ask_provider(name: str, environment: Mapping[str, str], secret_store: SecretStore) -> FoundEndpoint | str:
    """Return a provider with its models, or a remark on why it cannot be used."""
    known, account, key = PROVIDERS[name], account_of(name, environment), key_variable(name, environment)
    try:
        pointed = address_of(name, environment)
        model = account.get("deployment", known.models[0] if known.models else "model")
        keys = reach_keys(name, model, environment)
    except ConfigError as error:
        return f"{name} ({key}): {error}"
    address = str(keys["base_url"])
    place = str(key) if pointed is None else f"{key} at {urlsplit(pointed).netloc}"
    endpoint = FoundEndpoint(name, place, pointed, keys)
    if name in _WITHOUT_LIST and pointed is None:  # what one may call is in the account: no list is had with this key
        names = [account["deployment"]] if "deployment" in account else list(known.models)
        if not names:
            return f"{name} ({key}): AZURE_OPENAI_DEPLOYMENT should name the deployment to call"
        return _found(endpoint, [{"id": each} for each in names])
    try:
        headers = _LIST_HEADERS.get(name, {}) if "api_key_env" in keys else {}
        async with _lister(keys, headers, secret_store) as asking:
            rows = await asking.models(address)
    except _NotThereError as error:
        return f"{name} ({place}): cannot be reached: {error}"
    except (_UnusableError, ConfigError) as error:
        return f"{name} ({place}): {error}"
    return _found(endpoint, rows)


_WITHOUT_LIST = frozenset({"azure", "cohere", "perplexity", "vertex_ai"})
_LIST_HEADERS: Mapping[str, Mapping[str, str]] = {  # where the list of models is of the provider's own protocol
    "anthropic": {"x-api-key": "${ANTHROPIC_API_KEY}", "anthropic-version": "2023-06-01"}
}


def _found(endpoint: FoundEndpoint, rows: Sequence[Mapping[str, object]]) -> FoundEndpoint:
    """Return the endpoint with the models to use: those that we know as good ones, else the first or the cheapest."""
    by_name = {name: row for row in rows if (name := str(row["id"]).removeprefix("models/"))}
    names = model_names(list(by_name)) or list(by_name)
    models = {name: _model(endpoint, name, by_name[name]) for name in names}
    wanted = [name for name in PROVIDERS[endpoint.provider].models if name in models]
    if not wanted:
        wanted = names if endpoint.free else sorted(names, key=lambda name: models[name].dollars)
    chosen = tuple(models[name] for name in wanted[:_MODELS_EACH])
    return replace(endpoint, models=chosen, others=len(names) - len(chosen))


def _model(endpoint: FoundEndpoint, name: str, row: Mapping[str, object]) -> FoundModel:
    meta = row.get("meta")  # llama.cpp's: what it was started with
    stated = [meta.get("n_ctx") if isinstance(meta, Mapping) else None, *map(row.get, _WINDOW_KEYS)]
    window = next(filter(_is_whole, stated), None)
    free = is_free(endpoint.provider, endpoint.base_url)
    # What another server asks for a model of this name is not in the catalogue.
    known = known_price(endpoint.provider, name) if is_own_address(endpoint.provider, endpoint.base_url) else {}
    price = _price_of_row(row) or ({} if free else known.get("price"))
    tokens = window if isinstance(window, int) else known.get("context_tokens")
    return FoundModel(name, price if isinstance(price, Mapping) else None, tokens if isinstance(tokens, int) else None)


def _price_of_row(row: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the price that a list of models itself states (OpenRouter, LiteLLM), in dollars per million tokens."""
    stated = row.get("pricing")
    stated = stated if isinstance(stated, Mapping) else row
    dollars = [
        next((number for key in keys if (number := _number(stated.get(key))) is not None), None)
        for keys in (("prompt", "input_cost_per_token"), ("completion", "output_cost_per_token"))
    ]
    if dollars[0] is None or dollars[1] is None:
        return None
    each = [float(f"{number * 1e6:.6g}") for number in dollars if number is not None]
    return {"input": each[0], "output": each[1], "as_of": datetime.now(UTC).date()}


def _number(value: object) -> float | None:
    with suppress(ValueError, TypeError, OverflowError):
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else -1.0
        return number if isfinite(number) and 0 <= number < 1 else None  # dollars for one token
    return None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**40


class _NotThereError(Exception):
    """Nobody listens there."""


class _UnusableError(Exception):
    """Somebody answers, and not as an endpoint that could be used."""


class _ModelLister:
    """Asks one endpoint for its models."""

    def __init__(self, client: "HttpClient", secret_store: SecretStore) -> None:
        self._client, self._secrets = client, secret_store

    async def models(self, base_url: str) -> list[Mapping[str, object]]:
        """Return the rows of its list of models; each has an `id` that is a name."""
        path, mark, query = base_url.partition("?")
        body = await self._get(f"{path.rstrip('/')}/models{mark}{query}")
        return list(_rows(body, "id"))[:_MAX_MODELS]

    async def with_prices(self, base_url: str, rows: list[Mapping[str, object]]) -> list[Mapping[str, object]]:
        """Return the rows with what a LiteLLM proxy says of prices and windows, where it says so."""
        try:
            body = await self._get(f"{base_url.rstrip('/').removesuffix('/v1')}/model/info")
            told = {str(row["model_name"]): row.get("model_info") for row in _rows(body, "model_name")}
        except (_NotThereError, _UnusableError):
            return rows
        return [{**(info if isinstance(info := told.get(str(row["id"])), Mapping) else {}), **row} for row in rows]

    async def with_windows(self, base_url: str, rows: list[Mapping[str, object]]) -> list[Mapping[str, object]]:
        """Return the rows, the first ones with the context windows that Ollama says in its own protocol."""
        told: dict[str, object] = {}
        for name in model_names([str(row["id"]) for row in rows])[:_MODELS_EACH]:
            with suppress(_NotThereError, _UnusableError):
                body = json.dumps({"model": name}).encode()
                shown = await self._get(f"{base_url.rstrip('/').removesuffix('/v1')}/api/show", body)
                info = shown.get("model_info") if isinstance(shown, Mapping) else None
                for key, value in info.items() if isinstance(info, Mapping) else ():
                    if str(key).endswith(".context_length"):
                        told[name] = value
        return [{"max_input_tokens": told[str(row["id"])], **row} if row["id"] in told else row for row in rows]

    async def abilities(self, base_url: str, name: str) -> frozenset[str] | None:
        """Return which of tools, schema and logprobs two short calls of a model show; None where it cannot be told."""
        shown = set[str]()
        for ability, wanted in _PROBES.items():
            asked = {"model": name, "messages": [{"role": "user", "content": "Report that you are ready."}]}
            body = json.dumps({**asked, "max_tokens": 48, "temperature": 0, **wanted}).encode()
            try:
                reply = await self._get(f"{base_url.rstrip('/')}/chat/completions", body)
            except _NotThereError:
                return None
            except _UnusableError:
                continue  # it refuses what was asked for
            match reply:
                case {"choices": [{"message": {"tool_calls": [{"function": {"name": "report"}}]}}]}:
                    shown.add("tools")
                case {"choices": [{"message": {"content": str(said)}, **more}]}:
                    with suppress(ValueError, RecursionError):
                        shown |= {ability} if isinstance(json.loads(said), dict) else set()
                    shown |= {"logprobs"} if isinstance(more.get("logprobs"), dict) else set()
        return frozenset(shown)

    async def _get(self, url: str, body: bytes | None = None) -> object:
        method, headers = ("GET", {}) if body is None else ("POST", _JSON)
        try:
            async with self._client.ask(method, url, headers, body) as response:
                if not response.succeeded:
                    raise _UnusableError(_STATUS.get(response.status, f"answers with status {response.status}"))
                answered = await response.read_all()
        except WorkerError as error:
            if error.fault.kind in (FaultKind.CONNECT, FaultKind.TIMEOUT):
                raise _NotThereError(one_line(self._secrets.scrub(str(error)), 120)) from None
            raise _UnusableError(one_line(self._secrets.scrub(str(error)), 120)) from None
        try:
            loaded: object = json.loads(answered)
        except (ValueError, RecursionError):
            raise _UnusableError(_NONSENSE) from None
        return loaded


_READY = {"type": "object", "properties": {"ready": {"type": "boolean"}}, "required": ["ready"]}
_PROBES: Mapping[str, Mapping[str, object]] = {
    "schema": {
        "logprobs": True,
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": _READY}},
    },
    "tools": {
        "tools": [{"type": "function", "function": {"name": "report", "parameters": _READY}}],
        "tool_choice": "required",
    },
}
_JSON = {"Content-Type": "application/json"}
_NONSENSE = 'answers, and not with a list of models ({"data": [{"id": NAME}]})'
_STATUS = {
    401: "the key is missing or refused (status 401)",
    402: "the account has no credit (status 402)",
    403: "the key may not do this (status 403)",
    429: "the key has no credit or too many requests (status 429)",
}


def _rows(body: object, name: str) -> Iterator[Mapping[str, object]]:
    """Yield the rows of a list that have a printable name; Unusable where it is no such list."""
    rows = body.get("data") if isinstance(body, Mapping) else None
    if not isinstance(rows, list):
        raise _UnusableError(_NONSENSE)
    for row in rows:
        found = row.get(name) if isinstance(row, Mapping) else None
        if isinstance(found, str) and 0 < len(found) <= _MAX_NAME and found.isprintable():
            yield row


@asynccontextmanager
async def _lister(
    keys: Mapping[str, object],
    headers: Mapping[str, str],
    secret_store: SecretStore,
    seconds: float = _REMOTE_SECONDS,
) -> AsyncIterator[_ModelLister]:
    """Yield what asks an endpoint; the key goes into the headers that want it, else into `Authorization`."""
    base_url, key = str(keys["base_url"]), None if headers else keys.get("api_key_env")
    sent = key_headers(headers, key if isinstance(key, str) else None, base_url, secret_store)
    card = Card("discovery", timeout=seconds)
    async with aclosing(HttpConnections(card, base_url, _MAX_BYTES, sent, secret_store)) as connections:
        yield _ModelLister(connections.open(), secret_store)
