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

from shikisha.cli import out
from shikisha.cli.exits import Exit
from shikisha.cli.options import ConfigOption
from shikisha.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from shikisha.config.learning import Order, Tell
    from shikisha.policy.policy import Policy

STDOUT = "-"
LogName = Annotated[
    str, typer.Argument(metavar="LOG", help="An outcome log's folder; after --from-journal a journal's file or URL.")
]


@dataclass(frozen=True, slots=True)
class Wanted:
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
class Written:
    """What is written, and where."""

    to: Annotated[Path, typer.Option("--out", "-o", help="The policy file to write.")]
    page: Annotated[Path | None, typer.Option("--page", help="Write the report as one HTML page.")] = None
    json: Annotated[Path | None, typer.Option("--json", help="Write the report as JSON; - writes it to stdout.")] = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are written."""
        return tuple(path for path in (self.to, self.page, self.json) if path is not None and str(path) != STDOUT)


def learn(wanted: Wanted, written: Written, log: LogName = "", config: ConfigOption = None) -> Exit:
    """Learn from outcomes whom to ask, and when to ask one more.

    Fits a rule, a cascade and a step by step policy on a log, measures each on tasks held back from it, and keeps the
    highest one whose gain excludes harm. A log that is too small for that gives the rule, and a warning.
    """
    order = _order(wanted, log, config)
    _refuse_missing(written)
    with _progress() as tell:
        from shikisha.config.learning import learn as learned

        policy = learned(order, tell)
    _write(policy, order, written)
    return Exit.OK


def _order(wanted: Wanted, log: str, config: Path | None) -> "Order":
    from shikisha.config.learning import Order

    if not log and not wanted.from_journal:
        raise ConfigError("expected an outcome log's folder, or --from-journal")
    return Order(
        log=None if wanted.from_journal else Path(log),
        journal=(log or _configured(config)) if wanted.from_journal else "",
        workers=tuple(name.strip() for name in wanted.workers.split(",") if name.strip()),
        seed=wanted.seed,
        second=wanted.second,
        speed=wanted.speed,
        limits=_limits(wanted.limit or ()),
        rung=wanted.rung,
    )


def _configured(config: Path | None) -> str:
    from shikisha.config.load import load

    return load(config).journal_url()


def _limits(given: Sequence[str]) -> Mapping[str, float]:
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


def _refuse_missing(written: Written) -> None:
    """Refuse what would be missing, or could not be written, when everything has been learned."""
    needed = [(library, "learn", "learning") for library in ("numpy", "scipy", "sklearn")]
    for library, extra, purpose in (*needed, *((("jinja2", "eval", "learn --page"),) if written.page else ())):
        if find_spec(library) is None:
            raise MissingExtra(extra, purpose)
    if len({path.absolute() for path in written.files}) < len(written.files):
        raise ConfigError("--out, --page and --json: expected different files")
    for path in written.files:
        _writable(path)


def _writable(path: Path) -> None:
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
def _progress() -> "Iterator[Tell]":
    """Yield who is told how it goes: a line on stderr that moves, and nothing where that is no terminal."""
    console = out.console()
    if not console.is_terminal or console.is_dumb_terminal:
        yield lambda _: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    with Progress(
        SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"), console=console, transient=True
    ) as shown:
        line = shown.add_task("reading")
        yield lambda text: shown.update(line, description=text)


def _write(policy: "Policy", order: "Order", written: Written) -> None:
    from shikisha.clean import to_json
    from shikisha.learn import screen, summary
    from shikisha.learn.plain import plain
    from shikisha.policy.file import save

    version = save(policy, written.to)
    log = "" if order.log is None else str(order.log)
    uses = summary.uses(policy, str(written.to), log, order.workers)
    if written.page is not None:
        from shikisha.learn.page import render

        _to_file(written.page, render(policy, version, uses))
    report = to_json(plain(policy, version))
    for note in policy.about.notes:
        out.note(f"shikisha: warning: {note}")
    if written.json is not None and str(written.json) != STDOUT:
        _to_file(written.json, report + "\n")
    out.note(f"written: {written.to} (version {version})")
    if str(written.json or "") == STDOUT:
        out.line(report)
        return
    screen.climbed(policy, out.console(to_stdout=True))
    out.report("\nHow to use it:\n" + "\n".join(f"  {line}\n    {meaning}" for line, meaning in uses))


def _to_file(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    out.note(f"written: {path}")
