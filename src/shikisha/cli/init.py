"""`init`, which writes a configuration, and `workers`, which lists its pool."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import ConductorOptions, JsonOption, SharedOptions
from shikisha.config.container import load_config
from shikisha.config.template import TEMPLATE, render_schema
from shikisha.core.budget import Price
from shikisha.core.call import Card
from shikisha.core.text import clean_text, one_line

To = Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")]
Schema = Annotated[
    bool, typer.Option("--schema", help="Print the JSON Schema of the configuration, and write nothing.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]


def init(
    file: To = Path("shikisha.toml"), schema: Schema = False, force: Force = False, json: JsonOption = False
) -> ExitCode:
    """Write a commented shikisha.toml."""
    if schema:
        output.print_answer(render_schema())
        return ExitCode.OK
    output.write_new_file(file, TEMPLATE, force=force)
    if json:
        output.print_json({"written": str(file)})
    output.print_note(f"written: {file}. It is valid as it stands. Name your workers in it, then try: shikisha doctor")
    return ExitCode.OK


def workers(conducting: ConductorOptions, shared: SharedOptions) -> ExitCode:
    """List the workers of the pool.

    Shows their ordinals and descriptions as conductors see them.
    """
    composition = load_config(shared.config)
    cards = composition.cards(conducting.names)
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
    return {"input": price.input, "output": price.output, "cached": price.cached, "call": price.call}


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
