"""Options that several commands share, as records, and the decorator that lets a command take them.

A command is a function of records like these; `command` spreads their fields out as the options that Typer sees, and
turns every error into a message and an exit code. Keys and answers never appear in a traceback, because none is shown
(SHIKISHA_DEBUG=1 shows it). Deliberately absent: a global state; what a command is told, it is told by its arguments.
"""

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, get_type_hints

import typer

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode, StopSignal, exit_code_of_error
from shikisha.core.budget import Caps
from shikisha.core.errors import PlanError, ShikishaError, TaskError

Command = Callable[..., ExitCode | None]

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="The configuration; else $SHIKISHA_CONFIG, else ./shikisha.toml.")
]
JournalOption = Annotated[str | None, typer.Option("--journal", help="The journal: a file or a database URL.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value to stdout.")]


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """What nearly every command takes."""

    config: ConfigOption = None
    journal: JournalOption = None
    json: JsonOption = False


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What a task has besides its prompt."""

    context: Annotated[str | None, typer.Option("--context", help="A file with context; - reads stdin.")] = None
    domain: Annotated[str, typer.Option("--domain", help="The task's type, for rules.")] = ""
    label: Annotated[list[str] | None, typer.Option("--label", help="A label, for rules; may be repeated.")] = None


@dataclass(frozen=True, slots=True)
class ConductorOptions:
    """Who conducts whom."""

    conductor: Annotated[
        str, typer.Option("--conductor", "-C", help="fixed:NAME, rules:FILE, lm:WORKER|DIR, or one of [conductors].")
    ] = ""
    pool: Annotated[
        str, typer.Option("--pool", "-p", help="Workers by name, as in a,b,c; else the pool configured.")
    ] = ""

    @property
    def names(self) -> list[str]:
        """The workers named."""
        return [name.strip() for name in self.pool.split(",") if name.strip()]


@dataclass(frozen=True, slots=True)
class CapOptions:
    """Caps that go before the configured ones."""

    dollars: Annotated[float | None, typer.Option("--dollars", min=0, help="Spend at most so many US dollars.")] = None
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.001, help="Take at most so long.")] = None
    tokens: Annotated[int | None, typer.Option("--tokens", min=1, help="Use at most so many tokens.")] = None
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Perform at most so many steps.")] = None
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, help="Plan at most so often.")] = None

    def apply_to(self, caps: Caps) -> Caps:
        """Return the caps with those that were given in the place of theirs."""
        return Caps(
            steps=caps.steps if self.steps is None else self.steps,
            rounds=caps.rounds if self.rounds is None else self.rounds,
            depth=caps.depth,
            tokens=caps.tokens if self.tokens is None else self.tokens,
            dollars=caps.dollars if self.dollars is None else self.dollars,
            seconds=caps.seconds if self.seconds is None else self.seconds,
            plan_steps=caps.plan_steps,
        )


def command(function: Command) -> Callable[..., None]:
    """Return the function as Typer takes it: records spread out into options, errors turned into exit codes."""
    hints = get_type_hints(function, include_extras=True)
    records = {name: hint for name, hint in hints.items() if is_dataclass(hint) and isinstance(hint, type)}
    places = {field.name: record for record, kind in records.items() for field in fields(kind)}

    def run(**given: object) -> None:
        gathered: dict[str, dict[str, object]] = {record: {} for record in records}
        plain: dict[str, object] = {}
        for name, value in given.items():
            (gathered[places[name]] if name in places else plain)[name] = value
        whole = {record: kind(**gathered[record]) for record, kind in records.items()}

        def called() -> ExitCode | None:
            _refuse_non_finite(given)
            return function(**whole, **plain)

        code = _run_with_exit_code(called, as_json=given.get("json") is True)
        if code:
            raise typer.Exit(code)

    parameters = list(_option_parameters(inspect.signature(function), hints, records))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # Typer reads it; mypy has no word for it
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    return run


def _option_parameters(
    signature: inspect.Signature, hints: Mapping[str, object], records: Mapping[str, type]
) -> Iterator[inspect.Parameter]:
    for name, parameter in signature.parameters.items():
        record = records.get(name)
        own = [parameter] if record is None else list(inspect.signature(record).parameters.values())
        types = hints if record is None else get_type_hints(record, include_extras=True)
        for each in own:
            yield each.replace(annotation=types[each.name], kind=each.KEYWORD_ONLY)


def _refuse_non_finite(given: Mapping[str, object]) -> None:
    """Refuse nan and inf, which pass every bound: nothing is ever more than nan, so a cap of nan would be none."""
    for name, value in given.items():
        if isinstance(value, float) and not isfinite(value):
            raise TaskError(f"--{name.replace('_', '-')}: expected a number, not {value:g}")


def _run_with_exit_code(function: Callable[[], ExitCode | None], *, as_json: bool) -> ExitCode:
    """Run a command; whatever goes wrong becomes a message and an exit code."""
    try:
        return function() or ExitCode.OK
    except typer.Exit:
        raise
    except ShikishaError as error:
        return _report_error(error, exit_code_of_error(error), as_json)
    except StopSignal as stopped:
        return stopped.code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # whoever read stdout has gone: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except Exception as error:  # noqa: BLE001 - the last place: a person gets a sentence, not a traceback
        if os.environ.get("SHIKISHA_DEBUG"):
            traceback.print_exc()
        return _report_error(error, ExitCode.INTERNAL, as_json)


def _report_error(error: Exception, code: ExitCode, as_json: bool) -> ExitCode:
    what = str(error) if code is not ExitCode.INTERNAL else f"unforeseen: {type(error).__name__}: {error}"
    if as_json:
        place = {"what": error.what, "where": error.where} if isinstance(error, PlanError) else {"what": what}
        output.print_json({"error": place})
    else:
        output.print_note(f"shikisha: {what}")
    return code
