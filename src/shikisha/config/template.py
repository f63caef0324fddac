"""The commented `shikisha.toml` that `shikisha init` writes, and the JSON Schema of that file for editors.

Invariants: the template is valid as it stands, and with every commented-out setting (`#key`, no space) switched on; the
schema is made from the models that validate the file, adapters' keys included. It cannot say what only several tables
together can, for example that a name is known.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from inspect import get_annotations
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from shikisha.config import adapters
from shikisha.config.config_table import PluggedTable
from shikisha.config.context_settings import FilesSourceTable, GitSourceTable, McpSourceTable, PluggedSourceTable
from shikisha.config.discovery import Discovery, describe_endpoint, found_tables, worker_keys, worker_names
from shikisha.config.providers import catalogue_date, catalogue_source
from shikisha.config.settings import ShikishaSettings
from shikisha.core.text import one_line
from shikisha.core.toml import literal_text, quoted_key, table_text
from shikisha.tools.catalogue_settings import JsonlCatalogue, McpCatalogue, OpenApiCatalogue

TEMPLATE = """\
# Shikisha's configuration. Every key is optional: what is not here has its default.
# Keys are never written here; name the environment variable that holds one.
# All keys, for editors: shikisha init --schema > shikisha.schema.json

# The conductor: fixed:NAME (single, vote, cascade, ...), rules:FILE, lm:WORKER, lm:DIR, or a name from [conductors].
#conductor = "fixed:single"

# The workers of a run, in order; by default all of [workers].
#pool = ["cheap", "strong", "calculator"]

# A file without workers is refused. This one is an example: name your own. `pool = ["simulated"]` in place of all
# workers plays with simulated ones.
[workers.cheap]
kind = "chat"                       # any OpenAI-compatible endpoint
description = "Quick and cheap; good at short, clear tasks."
base_url = "http://localhost:11434/v1"
model = "qwen2.5:7b"
max_output_tokens = 2048
price = { input = 0.0, output = 0.0 }
#concurrency = 4
#escalate = "strong"                # the worker that is asked when a check fails or no answer comes
#checks = ["short", { check = "sound", on_fail = "escalate" }]

#[workers.strong]
#kind = "chat"
#description = "Slow, careful, strong at reasoning and code."
#base_url = "https://api.openai.com/v1"
#model = "gpt-5"
#api_key_env = "OPENAI_API_KEY"
#price = { input = 1.25, output = 10.0, cached = 0.125 }   # dollars per million tokens
#max_output_tokens = 8192
#timeout = 120
#structured_output = true
#tools = true                       # it can call the tools of the server's clients
#takes = ["image"]                  # and file, audio: attachments that it accepts

#[workers.calculator]
#kind = "python"                    # runs code in a sandbox
#description = "Runs a short Python program and returns what it prints."

#[workers.clerk]
#kind = "agent"                     # a chat worker that uses tools
#description = "Works out what needs several calculations."
#endpoint = "strong"
#tools = ["calculator"]             # other workers, and catalogues as in "@crm"

#[workers.me]
#kind = "human"                     # asks the person at the terminal
#description = "The person who asked."

# Checks that an answer must pass before later steps see it; on_fail is redo (the default), escalate, stop or pass.
# Kinds: pattern, length, json_schema, predicate (an expression over answer and question), opinion (asks a worker).
#[checks.short]
#kind = "length"
#max_words = 400

#[checks.sound]
#kind = "opinion"
#worker = "strong"

# Conductors with options.
#[conductors.planner]
#kind = "lm"
#endpoint = "strong"
#fallback = "fixed:single"          # plans when it writes no valid plan; recorded with the run

#[conductors.jury]
#kind = "fixed"
#topology = "vote"
#workers = ["cheap"]
#n = 3
#roles = { join = "strong" }

#[conductors.learned]
#kind = "policy"
#file = "our.policy"                # a policy of `shikisha learn`, or the folder of a registry
#quality = 1.0                      # or max_cost = 0.2, or budget_per_1k = 1.5

# Hard caps of one run. With a cap on dollars, a worker without a price is refused.
[budgets]
rounds = 8
seconds = 600
#dollars = 0.50
#tokens = 200_000

# Whether a person must approve each call: "never" or "always"; a worker's own `approval` takes precedence.
[autonomy]
approval = "never"
#expires = 86400                    # seconds after which an open question counts as a no

# How much runs may do on their own, by class of task; the first class that fits decides. Modes: review (a person
# approves, changes or refuses the answer), escalate (a person is asked where a rule says so), autonomous.
#[[autonomy.classes]]
#name = "payments"
#domain = "finance"                 # and labels = [...], conductor = "..."
#mode = "escalate"
#workers = ["calculator"]           # a person approves each call to these
#check = true                       # or dollars, substitution, disagreement, confidence
#on_failure = "rollback"            # workers with `compensate` undo the effects of its calls

# Runs teach later ones who does what, from the first one on; a tenth of the dollars tries what is not known well.
#[learning]
#on = true

# Where runs are recorded; a path is relative to this file.
[journal]
file = "shikisha.db"
#url_env = "SHIKISHA_JOURNAL"       # the environment variable with the URL of a PostgreSQL database

# `shikisha serve`: the address to listen on (0.0.0.0: all addresses), and where clients reach it.
#[server]
#host = "0.0.0.0"                   # or `shikisha serve --host 0.0.0.0`; no TLS here: put a proxy in front
#port = 8100
#url = "https://ai.example.com"     # where people and clients reach it, for links
#hosts = ["ai.example.com", "*.lan"] # the only names in a Host header; others get a 421
"""


_OWN_KINDS: Sequence[type[BaseModel]] = (
    OpenApiCatalogue,
    McpCatalogue,
    JsonlCatalogue,
    FilesSourceTable,
    GitSourceTable,
    McpSourceTable,
)


def found_template(found: Discovery) -> str:
    """Return a commented configuration of the endpoints that were found; the plain template where there are none."""
    if not found.named:
        return TEMPLATE
    tables = found_tables(found)
    lines = [
        "# Shikisha's configuration, from what `shikisha init` found. Every key is optional.",
        "# Keys are never written here: each worker names the variable of the environment or of .env that holds one.",
        "# All keys: docs/reference/configuration.md, and for editors shikisha init --schema > shikisha.schema.json",
        f"# Prices: dollars per million tokens, of {catalogue_date()} ({catalogue_source()}), or as the endpoint says.",
        "",
        "# The cheapest model gets the whole task. Others: fixed:vote, fixed:cascade, lm:WORKER, policy:FILE, ...",
        f"conductor = {literal_text(tables.get('conductor', 'fixed:single'))}",
        "",
        "# Hard caps of one run. With a cap on dollars, a worker without a price is refused.",
        table_text("budgets", _mapping(tables["budgets"])),
        "# Runs teach later ones who does what (docs/how-to/learning.md).\n#[learning]\n#on = true\n",
        "# Where runs are recorded; a path is relative to this file.",
        table_text("journal", {"file": "shikisha.db"}),
    ]
    workers = _mapping(tables["workers"])
    named = {id(model): name for (_, model), name in zip(found.named, worker_names(found.named), strict=True)}
    for endpoint in found.endpoints:
        label, place, models, cost = describe_endpoint(endpoint)
        lines.append(f"# {label} ({place}): {models}. {cost}.")
        for model in endpoint.models:
            name = named.get(id(model))
            if name is not None and model.price is not None:
                lines.append(table_text(f"workers.{quoted_key(name)}", _mapping(workers[name])))
                continue
            keys = worker_keys(endpoint, model) if name is None else _mapping(workers[name])
            unpriced = table_text(f"workers.{quoted_key(name or model.name)}", keys).rstrip().split("\n")
            mark = "#" if name is None else ""
            lines.append("# Its price is not known, so it is not called: fill it in, and take away the marks.")
            lines += [*(f"{mark}{line}" for line in unpriced), "#price = { input = 0.0, output = 0.0 }\n"]
    lines += [f"# left out: {one_line(remark, 200)}" for remark in found.remarks]
    return "\n".join(lines).rstrip() + "\n"


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def config_schema() -> Mapping[str, object]:
    """Return the schema of the whole file (JSON Schema 2020-12), with the kinds of the plug-ins that are installed."""
    conductors = {kind: found for kind, found in adapters.CONDUCTOR_KINDS.items() if found.team is None}
    tables: Mapping[str, Mapping[str, type[BaseModel]]] = {
        "workers": {kind: adapters.worker_table(kind) for kind in adapters.WORKER_KINDS},
        "checks": {kind: adapters.check_table(kind) for kind in adapters.CHECK_KINDS},
        "guards": {kind: adapters.guard_table(kind) for kind in adapters.GUARD_KINDS},
        "conductors": {kind: adapters.conductor_table(kind) for kind in conductors},
        "sources": {kind: adapters.source_table(kind) for kind in adapters.GATHERER_KINDS},
    }
    plans = [adapters.ADMISSIONS["plans"].settings] if "plans" in adapters.ADMISSIONS else []
    teams = [kind.settings for kind in adapters.CONDUCTOR_KINDS.values() if kind.team is not None]
    kinds: list[type[BaseModel]] = [model for of_key in tables.values() for model in of_key.values()] + teams + plans
    shared = _shared_bases([*kinds, *_OWN_KINDS])
    models: list[type[BaseModel]] = [ShikishaSettings, *kinds, *shared]
    references, whole = models_json_schema([(model, "validation") for model in models], ref_template="#/$defs/{model}")
    places = {model: references[model, "validation"]["$ref"].rpartition("/")[2] for model in models}
    definitions = whole["$defs"]
    settings = definitions.pop(places[ShikishaSettings])
    places |= {model: model.__name__ for model in _OWN_KINDS}
    _state_once({model: definitions[places[model]] for model in (*kinds, *_OWN_KINDS)}, shared, places, definitions)
    entries = {
        key: [
            {"$ref": f"#/$defs/{places[model]}", "properties": {"kind": {"const": kind}}}
            for kind, model in of_key.items()
        ]
        for key, of_key in tables.items()
    }
    definitions["WorkerTable"]["properties"]["guards"]["items"] = {"oneOf": entries["guards"]}
    for key in ("workers", "checks"):
        settings["properties"][key]["additionalProperties"] = {"oneOf": entries[key]}
    # In place of the table that stands for all plug-ins: those that are there.
    for key, of, stand_in in (
        ("conductors", settings, PluggedTable),
        ("sources", definitions["ContextTable"], PluggedSourceTable),
    ):
        own = of["properties"][key]["additionalProperties"]["oneOf"]
        own.remove({"$ref": f"#/$defs/{stand_in.__name__}"})
        own += entries[key]
        del definitions[stand_in.__name__]
    if plans:
        settings["properties"]["plans"]["additionalProperties"] = {"$ref": f"#/$defs/{places[plans[0]]}"}
    if teams:
        settings["properties"]["teams"]["additionalProperties"] = {"$ref": f"#/$defs/{places[teams[0]]}"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **settings, "$defs": definitions}


def _shared_bases(models: Sequence[type[BaseModel]]) -> list[type[BaseModel]]:
    """Return the classes with keys of their own that several of these models inherit."""
    bases = (base for model in models for base in model.__mro__ if issubclass(base, BaseModel))
    return [base for base, heirs in Counter(bases).items() if heirs > 1 and _own_keys(base)]


def _own_keys(model: type[BaseModel]) -> set[str]:
    return model.model_fields.keys() & get_annotations(model).keys()


def _state_once(
    tables: Mapping[type[BaseModel], dict[str, Any]],
    shared: Sequence[type[BaseModel]],
    places: Mapping[type[BaseModel], str],
    definitions: Mapping[str, dict[str, Any]],
) -> None:
    """Let the tables refer to the keys that they inherit: a schema that repeats them is three times as long."""
    for base in shared:
        table = definitions[places[base]]
        own = {field.alias or name for name, field in base.model_fields.items() if name in _own_keys(base)}
        table["properties"] = {key: value for key, value in table["properties"].items() if key in own}
        table.pop("additionalProperties", None)
    for model, table in tables.items():
        for base in (base for base in shared if issubclass(model, base)):
            inherited = definitions[places[base]]["properties"]
            table["properties"] = {k: v for k, v in table["properties"].items() if inherited.get(k) != v}
            table.setdefault("allOf", []).append({"$ref": f"#/$defs/{places[base]}"})
            if table.pop("additionalProperties", None) is False:
                table["unevaluatedProperties"] = False  # sees what allOf has, which additionalProperties does not


def render_schema() -> str:
    """Return the schema as a file's text."""
    return json.dumps(config_schema(), indent=2, ensure_ascii=False) + "\n"
