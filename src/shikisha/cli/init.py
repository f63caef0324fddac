"""Before the first run: `init`, `workers`, and `import litellm`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import ConductorOptions, JsonOption, SharedOptions
from shikisha.core.budget import Price
from shikisha.core.errors import TaskError
from shikisha.core.text import clean_text, one_line

if TYPE_CHECKING:
    from rich.table import Table

    from shikisha.core.call import Card

To = Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")]
Schema = Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of the configuration instead.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there.")]
Source = Annotated[Path, typer.Argument(metavar="CONFIG", help="LiteLLM's config.yaml (or the same as JSON).")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file; else to stdout.")]


def init(
    file: To = Path("shikisha.toml"), schema: Schema = False, force: Force = False, json: JsonOption = False
) -> ExitCode:
    """Write a commented shikisha.toml."""
    if schema:
        from shikisha.config.template import render_schema

        output.print_answer(render_schema())
        return ExitCode.OK
    from shikisha.config.template import TEMPLATE

    _write_new(file, TEMPLATE, force)
    if json:
        output.print_json({"written": str(file)})
    output.print_note(
        f"{file} is written: it is valid as it stands; name your workers in it, then try: shikisha doctor"
    )
    return ExitCode.OK


def workers(conducting: ConductorOptions, shared: SharedOptions) -> ExitCode:
    """List the pool's workers.

    With their ordinals, and described as conductors see them.
    """
    composition = session.load_container(shared)
    cards = composition.cards(conducting.names)
    if shared.json:
        output.print_json({"workers": [{"ordinal": ordinal, **_card_json(card)} for ordinal, card in enumerate(cards)]})
    else:
        output.make_console(to_stdout=True).print(_worker_table(cards))
    return ExitCode.OK


def litellm(config: Source, to: Out = None, force: Force = False, json: JsonOption = False) -> ExitCode:
    """Turn a LiteLLM model_list into workers.

    Prints [workers] tables for shikisha.toml; keys are not copied.
    """
    from shikisha.config.litellm import import_models, load_yaml

    imported = import_models(load_yaml(config), str(config))
    if json:
        output.print_json({"workers": imported.workers, "notes": imported.notes})
        return ExitCode.OK
    for note in imported.notes:
        output.print_note(note)
    if to is None:
        output.print_answer(imported.toml())
    else:
        _write_new(to, imported.toml(), force)
    output.print_note(f"{len(imported.workers)} workers from {config}")
    return ExitCode.OK


def _write_new(file: Path, text: str, force: bool) -> None:
    try:
        with file.open("w" if force else "x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise TaskError(f"{file} is there already; --force replaces it") from None
    except OSError as error:
        raise TaskError(f"{file}: cannot be written: {error.strerror}") from None


def _card_json(card: "Card") -> Mapping[str, object]:
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


def _worker_table(cards: "tuple[Card, ...]") -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right")
    table.add_column("name", no_wrap=True, overflow="ellipsis", min_width=8)
    table.add_column("kind", no_wrap=True)
    table.add_column("price", no_wrap=True)
    table.add_column("description", overflow="fold")
    for ordinal, card in enumerate(cards):
        table.add_row(str(ordinal), one_line(card.name), card.kind, _format_price(card.price), _description(card))
    return table


def _description(card: "Card") -> str:
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
