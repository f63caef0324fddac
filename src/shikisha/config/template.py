"""The commented `shikisha.toml` that `shikisha init` writes.

Invariant: it is valid as it stands, and valid with every commented-out setting (`#key`, no space) switched on; a test
does both. Deliberately absent: keys that only few will set; the JSON Schema lists them all.

The JSON Schema of `shikisha.toml`, for editors and for whoever writes one by program.

Invariant: it is made from the very models that validate the file, adapters' keys included. Deliberately absent: what
only several tables together can say (that a stand-in exists, that a name is known).
"""

import json
from collections.abc import Mapping

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from shikisha.config import adapters
from shikisha.config.settings import ShikishaSettings

TEMPLATE = """\
# Shikisha's configuration. Every key is optional: what is not here has its default.
# Keys are never written here; name the environment variable that holds one.
# All keys, for editors: shikisha init --schema > shikisha.schema.json

# Who conducts: fixed:NAME (single, vote, cascade, ...), rules:FILE, lm:WORKER, lm:DIR, or a name from [conductors].
conductor = "fixed:single"

# Which workers a run may use, in order; without it all of [workers].
#pool = ["cheap", "dear", "calculator"]

# Without any [workers] the embedded orchestra plays: small tools and two simulated models, no key needed.
#[workers.cheap]
#kind = "chat"                      # any OpenAI-compatible endpoint
#description = "Quick and cheap; good at short, clear tasks."
#base_url = "http://localhost:11434/v1"
#model = "qwen2.5:7b"
#max_output_tokens = 2048
#price = { input = 0.0, output = 0.0 }
#concurrency = 4
#escalate = "dear"                  # who is asked when a check fails or nothing comes
#checks = ["short", { check = "sound", on_fail = "escalate" }]

#[workers.dear]
#kind = "chat"
#description = "Slow, careful, strong at reasoning and code."
#base_url = "https://api.openai.com/v1"
#model = "gpt-5"
#api_key_env = "OPENAI_API_KEY"
#price = { input = 1.25, output = 10.0, cached = 0.125 }   # dollars per million tokens
#max_output_tokens = 8192
#timeout = 120
#structured_output = true
#tools = true                       # it may call the tools of the server's clients
#takes = ["image"]                  # and file, audio: what it can be shown of what clients attach

#[workers.calculator]
#kind = "python"                    # runs code in a sandbox
#description = "Runs a short Python program and returns what it prints."

#[workers.me]
#kind = "human"                     # asks whoever sits at the terminal
#description = "The person who asked."

# What must hold of a worker's answer before anyone else sees it; on_fail is redo (the default), escalate, stop or pass.
# Kinds: pattern, length, json_schema, predicate (an expression over answer and question), opinion (asks a worker).
#[checks.short]
#kind = "length"
#max_words = 400

#[checks.sound]
#kind = "opinion"
#worker = "dear"

# Conductors with options.
#[conductors.planner]
#kind = "lm"
#endpoint = "dear"
#fallback = "fixed:single"          # who plans when it writes no plan; recorded with the run

#[conductors.jury]
#kind = "fixed"
#topology = "vote"
#workers = ["cheap"]
#n = 3
#roles = { join = "dear" }

#[conductors.learned]
#kind = "policy"
#file = "our.policy"                # what `shikisha learn` made, or a shelf's folder
#quality = 1.0                      # or max_cost = 0.2, or budget_per_1k = 1.5

# Hard caps of one run. Without a price a worker is refused as soon as there is a dollar cap.
[budgets]
rounds = 8
seconds = 600
#dollars = 0.50
#tokens = 200_000

# Whether a person must approve each call: "never" or "always"; a worker's own `approval` goes first.
[autonomy]
approval = "never"
#expires = 86400                    # seconds after which a question that nobody answered counts as a no

# How much runs may do on their own, by class of task; the first class that fits decides. Modes: review (a person
# approves, changes or refuses the answer), escalate (where a rule says so), autonomous.
#[[autonomy.classes]]
#name = "payments"
#domain = "finance"                 # and labels = [...], conductor = "..."
#mode = "escalate"
#workers = ["calculator"]           # a person approves each call to these
#check = true                       # or dollars, substitution, disagreement, confidence
#on_failure = "rollback"            # what its calls did is undone by the workers that compensate them

# Where runs are written; a path is relative to this file.
[journal]
file = "shikisha.db"
#url_env = "SHIKISHA_JOURNAL"       # a PostgreSQL URL in this environment variable

# `shikisha serve`: the address to listen on (0.0.0.0: all of this machine's), and where others reach it.
#[server]
#host = "0.0.0.0"                   # or `shikisha serve --host 0.0.0.0`; no TLS here: put a proxy in front
#port = 8100
#url = "https://ai.example.com"     # where people and clients reach it, through a proxy too: for links
#hosts = ["ai.example.com", "*.lan"] # only these names in a request's Host header; what is refused for it gets a 421
"""


def config_schema() -> Mapping[str, object]:
    """Return the schema (JSON Schema 2020-12)."""
    workers = {kind: adapters.worker_table(kind) for kind in adapters.WORKER_KINDS}
    checks = {kind: adapters.check_table(kind) for kind in adapters.CHECK_MODULES}
    models: list[type[BaseModel]] = [ShikishaSettings, *workers.values(), *checks.values()]
    references, whole = models_json_schema([(model, "validation") for model in models], ref_template="#/$defs/{model}")
    places = {model: references[model, "validation"]["$ref"].rpartition("/")[2] for model in models}
    definitions = whole["$defs"]
    settings = definitions.pop(places[ShikishaSettings])
    for key, tables in (("workers", workers), ("checks", checks)):
        for kind, model in tables.items():
            definitions[places[model]]["properties"]["kind"] = {"const": kind}
        entries = [{"$ref": f"#/$defs/{places[model]}"} for model in tables.values()]
        settings["properties"][key]["additionalProperties"] = {"oneOf": entries}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **settings, "$defs": definitions}


def render_schema() -> str:
    """Return the schema as a file's text."""
    return json.dumps(config_schema(), indent=2, ensure_ascii=False) + "\n"
