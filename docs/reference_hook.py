"""Generate the reference pages from the code when the site is built (a hook of mkdocs).

Each page shows what the code says of itself: pydantic's descriptions, Typer's help, FastAPI's summaries, the events'
docstrings. A text that is wrong there is corrected in the code, not here. The use cases are the READMEs of `examples/`.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from shikisha.cli import COMMANDS, PLUGGED, load_command
from shikisha.config.template import config_schema
from shikisha.core import events
from shikisha.server.app import openapi_document
from shikisha.server.chat.schema import PARAMETERS
from shikisha.telemetry import conventions

USE_CASES = ("agents", "margin", "mobile", "n8n", "review", "triage")
Schema: TypeAlias = Mapping[str, Any]
Command: TypeAlias = Any  # Typer brings its own click


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the site's files."""
    for name, text in pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    examples = Path(__file__).parent.parent / "examples"
    for name in USE_CASES:
        text = (examples / name / "README.md").read_text(encoding="utf-8").replace("](../../docs/", "](../")
        for curve in sorted((examples / name).glob("*.svg")):
            text = text.replace(f"]({curve.name}", f"]({name}-{curve.name}")
            files.append(File.generated(config, f"use-cases/{name}-{curve.name}", abs_src_path=str(curve)))
        files.append(File.generated(config, f"use-cases/{name}.md", content=text))
    return files


def pages() -> dict[str, str]:
    """Return each generated page's text, by its name."""
    return {
        "configuration": configuration(),
        "cli": command_line(),
        "http": http(),
        "events": event_kinds(),
        "telemetry": telemetry(),
    }


def configuration() -> str:
    """Return the page of every key of `shikisha.toml`."""
    schema = config_schema()
    parts = [
        "# Configuration",
        "`shikisha.toml` is sparse: every key has a default, and an unknown key is an error.",
        "`shikisha init` writes a commented file; `shikisha init --schema` prints the JSON Schema behind this page.",
    ]
    parts += ["## Top level", *_table(schema, schema)]
    for key, entry in schema["properties"].items():
        for title, table in _tables(key, entry, schema):
            kind = table.get("properties", {}).get("kind", {}).get("const")
            parts += [f"## `[{title}]`" + (f', `kind = "{kind}"`' if kind else ""), *_table(table, schema)]
    return "\n\n".join(parts) + "\n"


def _tables(path: str, entry: Schema, whole: Schema, depth: int = 0) -> Iterator[tuple[str, Schema]]:
    """Yield the tables under a key: itself, those by name (`workers.NAME`), those in it."""
    if depth > 4:
        return
    found = _followed(entry, whole)
    if isinstance(found.get("additionalProperties"), dict) and "properties" not in found:
        for each in _choices(found["additionalProperties"], whole):
            yield from _tables(f"{path}.NAME", each, whole, depth + 1)
        return
    if "items" in found:
        yield from _tables(f"[{path}]", found["items"], whole, depth + 1)
        return
    if "properties" in found:
        yield path, found
        for key, inner in found["properties"].items():
            for each in _choices(inner, whole):
                if "properties" in each or ("items" in each and "properties" in _followed(each["items"], whole)):
                    yield from _tables(f"{path}.{key}", each, whole, depth + 1)


def _followed(entry: Schema, whole: Schema) -> Schema:
    """Return what an entry refers to, with the keys that it inherits (`allOf`) and those that it narrows."""
    bases = [{"$ref": entry["$ref"]}] if "$ref" in entry else entry.get("allOf", [])
    if not bases:
        return entry
    keys: dict[str, Schema] = {}
    for each in (*(_followed(_definition(base, whole), whole) for base in bases), entry):
        for key, inner in each.get("properties", {}).items():
            keys[key] = {**keys.get(key, {}), **inner}
    base = _followed(_definition(bases[0], whole), whole) if "$ref" in entry else {}
    own = {name: value for name, value in entry.items() if name not in ("$ref", "allOf")}
    return {**base, **own, **({"properties": keys} if keys else {})}


def _definition(base: Schema, whole: Schema) -> Schema:
    found: Schema = whole["$defs"][base["$ref"].rpartition("/")[2]]
    return found


def _choices(entry: Schema, whole: Schema) -> Sequence[Schema]:
    found = _followed(entry, whole)
    return [_followed(each, whole) for each in found.get("anyOf", found.get("oneOf", [found]))]


def _table(table: Schema, whole: Schema) -> list[str]:
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, entry in table.get("properties", {}).items():
        found = _followed(entry, whole)
        default = f"`{found['default']!r}`" if found.get("default") not in (None, "", [], {}) else ""
        rows.append(
            f"| `{key}` | {_cell(_type(entry, whole))} | {_cell(default)} | {_cell(entry.get('description', ''))} |"
        )
    said = inspect.cleandoc(table.get("description", ""))
    return [said, "\n".join(rows)] if said else ["\n".join(rows)]


def _type(entry: Schema, whole: Schema) -> str:
    kinds = []
    for each in _choices(entry, whole):
        if "const" in each:
            kinds.append(f"`{each['const']}`")
        elif "enum" in each:
            kinds += [f"`{value}`" for value in each["enum"]]
        elif each.get("type") == "array":
            kinds.append(f"list of {_type(each.get('items', {}), whole)}")
        elif each.get("type") == "object" or "properties" in each:
            kinds.append("table")
        elif each.get("type") != "null":
            kinds.append(str(each.get("type", "any")))
    return ", ".join(dict.fromkeys(kinds))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def command_line() -> str:
    """Return the page of every command, its arguments and options."""
    parts = ["# Command line", "The answer goes to stdout and everything else to stderr. `--json` works everywhere."]
    loaded = [pair for name in (*COMMANDS, *PLUGGED) for pair in _walk(f"shikisha {name}", load_command(name))]
    for path, command in loaded:
        parts += [f"## `{path}`" if path.count(" ") < 2 else f"### `{path}`", inspect.cleandoc(command.help or "")]
        rows = ["| option | default | meaning |", "|---|---|---|"]
        rows += [_option(each) for each in command.params if each.name != "help"]
        if len(rows) > 2:
            parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def _option(parameter: Command) -> str:
    if parameter.param_type_name != "option":
        return f"| `{str(parameter.name).upper()}` | | {_cell(parameter.help or '')} |"
    shown = ", ".join(f"`{each}`" for each in (*parameter.opts, *parameter.secondary_opts))
    plain = isinstance(parameter.default, str | int | float) and parameter.default is not False
    return f"| {shown} | {_cell(str(parameter.default)) if plain else ''} | {_cell(parameter.help or '')} |"


def _walk(path: str, command: Command) -> Iterator[tuple[str, Command]]:
    yield path, command
    if hasattr(command, "list_commands"):
        context = command.make_context(path, [], resilient_parsing=True)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _walk(f"{path} {name}", inner)


def http() -> str:
    """Return the page of every HTTP route."""
    document = openapi_document()
    parts = ["# HTTP API", "A running server gives the whole OpenAPI document at `/openapi.json`."]
    rows = [f"| `{name}` | {treatment.value} | {why} |" for name, (treatment, why) in PARAMETERS.items()]
    parts += [
        "## Parameters of a chat request",
        "\n".join(["| parameter | | what becomes of it |", "|---|---|---|", *rows]),
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(f"## `{method.upper()} {path}`")
            parts += [text for text in (operation.get("summary"), operation.get("description")) if text]
            rows = ["| parameter | in | meaning |", "|---|---|---|"]
            rows += [
                f"| `{each['name']}` | {each['in']} | {_cell(each.get('description', ''))} |"
                for each in operation.get("parameters", [])
            ]
            if len(rows) > 2:
                parts.append("\n".join(rows))
            answers = [
                f"| {code} | {_cell(each.get('description', ''))} |" for code, each in operation["responses"].items()
            ]
            parts.append("\n".join(["| status | meaning |", "|---|---|", *answers]))
    return "\n\n".join(parts) + "\n"


def event_kinds() -> str:
    """Return the page of every event that a journal holds."""
    parts = ["# Events", inspect.cleandoc(events.__doc__ or "")]
    for name, kind in vars(events).items():
        if isinstance(kind, type) and issubclass(kind, events.Event) and kind is not events.Event:
            parts += [f"## `{name}`", inspect.cleandoc(kind.__doc__ or "")]
            rows = ["| field | type |", "|---|---|"]
            for each in dataclasses.fields(kind):
                shown = each.type if isinstance(each.type, str) else getattr(each.type, "__name__", str(each.type))
                rows.append(f"| `{each.name}` | `{_cell(re.sub(r'shikisha[.a-z_]*[.]', '', str(shown)))}` |")
            parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def telemetry() -> str:
    """Return the page of every name of spans, attributes and metrics, by the comments over them."""
    parts = ["# Telemetry", inspect.cleandoc(conventions.__doc__ or "")]
    for block in inspect.getsource(conventions).split("\n\n"):
        names = re.findall(r'^[A-Z_]+ = "([a-z_.]+)"(?:  # (.*))?$', block, re.MULTILINE)
        if names and block.lstrip().startswith("# "):
            title = block.lstrip().splitlines()[0].removeprefix("# ")
            parts += [f"## {title[:1].upper()}{title[1:]}"]
            parts.append("\n".join(f"- `{name}`" + (f": {said}" if said else "") for name, said in names))
    return "\n\n".join(parts) + "\n"
