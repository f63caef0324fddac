"""Options that several commands share, and the decorator that turns a function into a command.

A command is a function of records of options; `command` spreads their fields out as the options that Typer sees,
because Typer itself takes no records, and `eval` has 25 options. Every error becomes a message and an exit code. No
traceback is shown, so that no key or answer can be in one (SHIKISHA_DEBUG=1 shows it).
"""

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Annotated, get_type_hints

import typer

from shikisha.cli.exit_codes import ExitCode, StopSignal, exit_code_of_error
from shikisha.cli.output import STDOUT, print_json, print_note
from shikisha.config.environment import SIMULATED
from shikisha.core.budget import Caps
from shikisha.core.errors import MissingExtra, PlanError, ShikishaError, TaskError
from shikisha.core.fast_dataclass import MISSING, dataclass, fields, is_dataclass, replace

Command = Callable[..., ExitCode | None]

TenantOption = Annotated[
    str | None,
    typer.Option("--tenant", help="Whose runs to learn from, for its tasks alone; '' is the operator's."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The configuration file; by default $SHIKISHA_CONFIG or ./shikisha.toml."),
]
JournalOption = Annotated[str | None, typer.Option("--journal", help="The journal: a file, or the URL of a database.")]
YesOption = Annotated[
    bool,
    typer.Option("--yes", "-y", help="Use what is found here without asking, also where that costs money."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value to stdout.")]


NEWEST_RUN = "last"
RunId = Annotated[
    str,
    typer.Argument(metavar="RUN", help="The id of a run, or its beginning, or last (the default).", show_default=False),
]
OneRun = Annotated[
    str, typer.Argument(metavar="RUN", help="The id of a run, or its beginning, or last.", show_default=False)
]


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """Options of nearly every command."""

    config: ConfigOption = None
    journal: JournalOption = None
    json: JsonOption = False


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The parts of a task besides its prompt."""

    context: Annotated[
        str | None, typer.Option("--context", help="A file with context for the task; - reads stdin.")
    ] = None
    domain: Annotated[str, typer.Option("--domain", help="The domain of the task, for rules and policies.")] = ""
    label: Annotated[
        list[str] | None, typer.Option("--label", help="A label of the task, for rules; may be repeated.")
    ] = None


@dataclass(frozen=True, slots=True)
class ConductorOptions:
    """The conductor and its workers."""

    conductor: Annotated[
        str, typer.Option("--conductor", "-C", help="fixed:NAME, rules:FILE, lm:WORKER|DIR, or one of [conductors].")
    ] = ""
    pool: Annotated[
        str,
        typer.Option("--pool", "-p", help="Workers by name, as in a,b,c, or simulated; by default as configured."),
    ] = ""

    @property
    def simulated(self) -> bool:
        """Whether the simulated workers are asked for by name."""
        return self.names == [SIMULATED]

    @property
    def names(self) -> list[str]:
        """The names of the workers."""
        return [name.strip() for name in self.pool.split(",") if name.strip()]


@dataclass(frozen=True, slots=True)
class CapOptions:
    """Caps that replace the configured ones."""

    dollars: Annotated[float | None, typer.Option("--dollars", min=0, help="The most US dollars to spend.")] = None
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.001, help="The most seconds to take.")] = None

    def apply_to(self, caps: Caps) -> Caps:
        """Return the caps, with the options that are set in place of theirs."""
        return replace(
            caps,
            dollars=caps.dollars if self.dollars is None else self.dollars,
            seconds=caps.seconds if self.seconds is None else self.seconds,
        )


def command(function: Command) -> Callable[..., None]:
    """Return the function as Typer takes it: records spread out into options, errors turned into exit codes."""
    hints = get_type_hints(function, include_extras=True)
    records = {name: hint for name, hint in hints.items() if is_dataclass(hint) and isinstance(hint, type)}
    record_of = {field.name: name for name, record in records.items() for field in fields(record)}

    def run(**options: object) -> None:
        arguments: dict[str, object] = {}
        values: dict[str, dict[str, object]] = {name: {} for name in records}
        for name, value in options.items():
            (values[record_of[name]] if name in record_of else arguments)[name] = value

        def call() -> ExitCode | None:
            # Refuse nan and inf: no comparison with nan is ever true, so a cap of nan would be no cap
            for name, value in options.items():
                if isinstance(value, float) and not isfinite(value):
                    raise TaskError(f"--{name.replace('_', '-')}: expected a number, not {value:g}")
            return function(**arguments, **{name: record(**values[name]) for name, record in records.items()})

        code = _run_with_exit_code(call, as_json=options.get("json") in (True, Path(STDOUT)))
        if code:
            raise typer.Exit(code)

    parameters = list(_option_parameters(inspect.signature(function), hints, records))
    # Typer reads the signature and the annotations of what it is given, and those of `run` say nothing.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    return run


# Which extra brings a library without which a command's file cannot be imported. The command's own extra goes first.
_EXTRA_OF_COMMAND: Mapping[str, str] = {
    "learn": "learn",
    "serve": "server",
    "train": "train",
}
_EXTRA_OF_LIBRARY: Mapping[str, str] = {"numpy": "eval", "jinja2": "eval", "scipy": "learn", "sklearn": "learn"}


@contextmanager
def import_errors_name_extra(name: str) -> Iterator[None]:
    """Turn the error of an import in here into MissingExtra, where an extra brings what the command needs."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        extra = _EXTRA_OF_COMMAND.get(name, _EXTRA_OF_LIBRARY.get(library))
        if extra is None or library == "shikisha":
            raise
        raise MissingExtra(extra, f"shikisha {name}") from error


def _option_parameters(
    signature: inspect.Signature, hints: Mapping[str, object], records: Mapping[str, type]
) -> Iterator[inspect.Parameter]:
    for name, parameter in signature.parameters.items():
        record = records.get(name)
        own = {name: parameter.default} if record is None else {each.name: each.default for each in fields(record)}
        types = hints if record is None else get_type_hints(record, include_extras=True)
        for key, default in own.items():
            given = inspect.Parameter.empty if default is MISSING else default
            yield inspect.Parameter(key, parameter.KEYWORD_ONLY, default=given, annotation=types[key])


def _run_with_exit_code(function: Callable[[], ExitCode | None], *, as_json: bool) -> ExitCode:
    """Run a command; whatever goes wrong becomes a message and an exit code."""
    try:
        return function() or ExitCode.OK
    except typer.Exit:
        raise
    except ShikishaError as error:
        return report_error(error, exit_code_of_error(error), as_json=as_json)
    except StopSignal as stopped:
        return stopped.code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except Exception as error:  # noqa: BLE001 - the last place: a person gets a sentence, not a traceback
        if os.environ.get("SHIKISHA_DEBUG"):
            traceback.print_exc()
        return report_error(error, ExitCode.INTERNAL, as_json=as_json)


def report_error(error: Exception, code: ExitCode, *, as_json: bool) -> ExitCode:
    """Print an error as a message, or as JSON, and return its exit code."""
    what = str(error) if code is not ExitCode.INTERNAL else f"unexpected: {type(error).__name__}: {error}"
    if as_json:
        place = {"what": error.what, "where": error.where} if isinstance(error, PlanError) else {"what": what}
        print_json({"error": place})
    else:
        print_note(f"shikisha: {what}")
    return code
