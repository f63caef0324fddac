"""`learn`: an outcome log, or what a journal remembers, turned into a policy file.

Invariants: what could not be written at the end is refused at the beginning; the table goes to stdout, progress and
warnings to stderr; with `--json -` stdout holds the report and nothing else. Deliberately absent: opinions on the
figures; a rung is kept by its intervals, or because the user says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import ConfigOption
from shikisha.core.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from shikisha.config.policy_builder import LearnRequest, ProgressCallback
    from shikisha.routing.policy_data import Policy

STDOUT = "-"
LogName = Annotated[
    str, typer.Argument(metavar="LOG", help="An outcome log's folder; after --from-journal a journal's file or URL.")
]


@dataclass(frozen=True, slots=True)
class LearnOptions:
    """What to learn."""

    from_journal: Annotated[
        bool, typer.Option("--from-journal", help="Learn from a journal; without LOG from the one configured.")
    ] = False
    workers: Annotated[str, typer.Option("--workers", "-w", help="Workers by name, as in a,b,c; by default all.")] = ""
    seed: Annotated[int, typer.Option("--seed", help="How the tasks are divided for measuring.")] = 0
    second: Annotated[
        float, typer.Option("--second", min=0, metavar="DOLLARS", help="What a second of waiting is worth.")
    ] = 0.0
    speed: Annotated[
        float, typer.Option("--speed", min=0, metavar="W", help="The rule adds W / seconds to a worker's success.")
    ] = 0.0
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="WORKER=SHARE", help="The most of all tasks it may get; may be repeated."),
    ] = None
    rung: Annotated[str, typer.Option("--rung", help="Keep this rung, whatever the evidence says.")] = ""


@dataclass(frozen=True, slots=True)
class LearnOutputOptions:
    """What is written, and where."""

    to: Annotated[Path, typer.Option("--out", "-o", help="The policy file to write.")]
    page: Annotated[Path | None, typer.Option("--page", help="Write the report as one HTML page.")] = None
    json: Annotated[Path | None, typer.Option("--json", help="Write the report as JSON; - writes it to stdout.")] = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are written."""
        return tuple(path for path in (self.to, self.page, self.json) if path is not None and str(path) != STDOUT)


def learn(
    wanted: LearnOptions, written: LearnOutputOptions, log: LogName = "", config: ConfigOption = None
) -> ExitCode:
    """Learn from outcomes whom to ask, and when to ask one more.

    Fits a rule, a cascade and a step by step policy on a log, measures each on tasks held back from it, and keeps the
    highest one whose gain excludes harm. A log that is too small for that gives the rule, and a warning.
    """
    order = _build_request(wanted, log, config)
    _refuse_missing(written)
    with _show_progress() as tell:
        from shikisha.config.policy_builder import learn_policy as learned

        policy = learned(order, tell)
    _write_policy(policy, order, written)
    return ExitCode.OK


def _build_request(wanted: LearnOptions, log: str, config: Path | None) -> "LearnRequest":
    from shikisha.config.policy_builder import LearnRequest

    if not log and not wanted.from_journal:
        raise ConfigError("expected an outcome log's folder, or --from-journal")
    return LearnRequest(
        log=None if wanted.from_journal else Path(log),
        journal=(log or _configured_journal(config)) if wanted.from_journal else "",
        workers=tuple(name.strip() for name in wanted.workers.split(",") if name.strip()),
        seed=wanted.seed,
        second=wanted.second,
        speed=wanted.speed,
        limits=_parse_limits(wanted.limit or ()),
        rung=wanted.rung,
    )


def _configured_journal(config: Path | None) -> str:
    from shikisha.config.container import load_config

    return load_config(config).journal_url()


def _parse_limits(given: Sequence[str]) -> Mapping[str, float]:
    """Take WORKER=SHARE apart; a name may hold `=` itself, a share may be a percentage."""
    found = {}
    for text in given:
        name, equals, share = text.rpartition("=")
        try:
            value = float(share.removesuffix("%")) / (100 if share.endswith("%") else 1)
        except ValueError:
            value = -1.0
        if not (equals and name and 0 < value <= 1):
            raise ConfigError(f"--limit: expected WORKER=SHARE with a share from 0 to 1 (or 100 %), not {text!r}")
        if name in found:
            raise ConfigError(f"--limit: {name!r} is there twice")
        found[name] = value
    return found


def _refuse_missing(written: LearnOutputOptions) -> None:
    """Refuse what would be missing, or could not be written, when everything has been learned."""
    needed = [(library, "learn", "learning") for library in ("numpy", "scipy", "sklearn")]
    for library, extra, purpose in (*needed, *((("jinja2", "eval", "learn --page"),) if written.page else ())):
        if find_spec(library) is None:
            raise MissingExtra(extra, purpose)
    if len({path.absolute() for path in written.files}) < len(written.files):
        raise ConfigError("--out, --page and --json: expected different files")
    for path in written.files:
        _refuse_unwritable(path)


def _refuse_unwritable(path: Path) -> None:
    """Refuse a file that cannot be written; one that was not there is not there afterwards."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        there = path.exists()
        with path.open("ab"):
            pass
        if not there:
            path.unlink()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


@contextmanager
def _show_progress() -> "Iterator[ProgressCallback]":
    """Yield who is told how it goes: a line on stderr that moves, and nothing where that is no terminal."""
    console = output.make_console()
    if not console.is_terminal or console.is_dumb_terminal:
        yield lambda _: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    with Progress(
        SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"), console=console, transient=True
    ) as shown:
        line = shown.add_task("reading")
        yield lambda text: shown.update(line, description=text)


def _write_policy(policy: "Policy", order: "LearnRequest", written: LearnOutputOptions) -> None:
    from shikisha.core.text import to_safe_json
    from shikisha.routing.fit import policy_report
    from shikisha.routing.fit.policy_report import policy_as_json
    from shikisha.routing.policy_file import save_policy

    version = save_policy(policy, written.to)
    log = "" if order.log is None else str(order.log)
    uses = policy_report.usage_commands(policy, str(written.to), log, order.workers)
    if written.page is not None:
        from shikisha.routing.fit.policy_page import render_policy_page

        _write_file(written.page, render_policy_page(policy, version, uses))
    report = to_safe_json(policy_as_json(policy, version))
    for note in policy.about.notes:
        output.print_note(f"shikisha: warning: {note}")
    if written.json is not None and str(written.json) != STDOUT:
        _write_file(written.json, report + "\n")
    output.print_note(f"written: {written.to} (version {version})")
    if str(written.json or "") == STDOUT:
        output.print_line(report)
        return
    policy_report.print_selection(policy, output.make_console(to_stdout=True))
    output.print_report("\nHow to use it:\n" + "\n".join(f"  {line}\n    {meaning}" for line, meaning in uses))


def _write_file(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    output.print_note(f"written: {path}")
