"""`init`, which writes a configuration, and the list of its workers."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.first_run import describe_found, found_json, nothing_found, obtain_container
from shikisha.cli.options import JsonOption, SharedOptions, import_errors_name_extra
from shikisha.config.discovery import Discovery, find_endpoints
from shikisha.config.template import found_template, render_schema
from shikisha.core.budget import Price
from shikisha.core.call import Card
from shikisha.core.errors import ConfigError
from shikisha.core.text import clean_text, one_line

To = Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")]
Schema = Annotated[
    bool, typer.Option("--schema", help="Print the JSON Schema of the configuration, and write nothing.")
]
Empty = Annotated[bool, typer.Option("--empty", help="Look for nothing, and write an example to fill in.")]
Vapid = Annotated[
    bool, typer.Option("--vapid", help="Print a key that signs notifications ([push] key_env), and write nothing.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]


def init(
    file: To = Path("shikisha.toml"),
    schema: Schema = False,
    force: Force = False,
    empty: Empty = False,
    vapid: Vapid = False,
    json: JsonOption = False,
) -> ExitCode:
    """Write a commented shikisha.toml of what is found here.

    Looks for keys of known providers, in the environment and in .env, and for model servers on this machine, and asks
    each for its models. That costs nothing. Prices come from a catalogue that is dated.
    """
    if vapid:
        with import_errors_name_extra("phone"):
            from shikisha.server.ops.push import new_vapid_key
        if json:
            output.print_json({"key": new_vapid_key()})
            return ExitCode.OK
        output.print_note("keep it in the environment variable that [push] key_env names; it is shown only once:")
        output.print_answer(new_vapid_key())
        return ExitCode.OK
    if schema:
        output.print_answer(render_schema())
        return ExitCode.OK
    found = Discovery() if empty else find_endpoints(probe=True)
    if not (empty or found.named):
        raise ConfigError(f"{nothing_found(found)}\nnothing is written; `shikisha init --empty` writes an example")
    output.write_new_file(file, found_template(found), force=force)
    if json:
        output.print_json({"written": str(file), "found": found_json(found), "left_out": list(found.remarks)})
        return ExitCode.OK
    for line in describe_found(found):
        output.print_wrapped_note(line)
    if found.usable:
        output.print_note(f"written: {file}. Next: shikisha doctor --call (a little money), or shikisha run")
        return ExitCode.OK
    lacking = "it is an example: name your workers" if empty else "no price is known: write `price` of each worker"
    output.print_note(f"written: {file}. Next: {lacking}, then shikisha doctor")
    return ExitCode.OK


def list_workers(shared: SharedOptions) -> ExitCode:
    """List the workers of the pool, with their ordinals and descriptions as conductors see them."""
    cards = obtain_container(shared, performs=False).cards([])
    if shared.json:
        output.print_json({"workers": [{"ordinal": ordinal, **_card_json(card)} for ordinal, card in enumerate(cards)]})
    else:
        output.make_console(to_stdout=True).print(_worker_table(cards))
    return ExitCode.OK


def _card_json(card: Card) -> Mapping[str, object]:
    return {
        "name": card.name,
        "kind": card.kind,
        "description": card.description,
        "price": None if card.price is None else price_json(card.price),
        "max_output_tokens": card.max_output_tokens,
        "concurrency": card.concurrency,
        "rate": card.rate,
        "timeout": card.timeout,
        "attempts": card.attempts,
        "fallback": card.fallback,
        "escalate": card.escalate,
        "approval": str(card.approval),
        "skills": list(card.skills),
    }


def price_json(price: Price) -> Mapping[str, object]:
    """Return a price as JSON: dollars per million tokens, and per call."""
    return asdict(price)


def _worker_table(cards: tuple[Card, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right")
    table.add_column("name", no_wrap=True, overflow="ellipsis", min_width=8)
    table.add_column("kind", no_wrap=True)
    table.add_column("price", no_wrap=True)
    table.add_column("description", overflow="fold")
    for ordinal, card in enumerate(cards):
        table.add_row(str(ordinal), one_line(card.name), card.kind, _format_price(card.price), _description(card))
    return table


def _description(card: Card) -> str:
    marks = [f"{word} {name}" for word, name in (("fallback", card.fallback), ("then", card.escalate)) if name]
    if card.approval == "always":
        marks.append("asks for approval")
    return clean_text(card.description) + (f" ({'; '.join(marks)})" if marks else "")


def _format_price(price: Price | None) -> str:
    if price is None:
        return "unknown"
    parts = [f"${price.input:g}/{price.output:g}"] if price.input or price.output else []
    parts += [f"${price.call:g}/call"] if price.call else []
    return " + ".join(parts) or "free"
