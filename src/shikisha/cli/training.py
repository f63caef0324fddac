"""`train`: a conductor that learns, from a file that says what to learn from what.

Invariants: nothing is paid for before everything that can be checked was checked; a run that was stopped or killed is
gone on with by the same command and --resume; progress goes to stderr, where the conductor is to stdout; with --json
stdout holds one JSON value. Deliberately absent: settings that a file could not hold (--steps, --seed and --set put
others in the place of the file's).
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.budget import format_dollars
from shikisha.cli import out, session
from shikisha.cli.exits import Exit, Stopped
from shikisha.cli.options import ConfigOption, JsonOption
from shikisha.cli.together import together
from shikisha.errors import CapReached, Diverged, MissingExtra

if TYPE_CHECKING:
    from shikisha.train.crew import Crew
    from shikisha.train.ground import Ground
    from shikisha.train.progress import Judged, Step, Watcher
    from shikisha.train.session import Order, Result
    from shikisha.train.settings import TrainSettings
    from shikisha.train.warm import WarmStep

_FOLDER = "training"
_LIBRARIES = ("numpy", "safetensors", "tokenizers", "torch", "transformers")
_LESSONS_EVERY = 5.0  # seconds between lines about lessons
File = Annotated[
    Path, typer.Argument(metavar="FILE.toml", help="What to learn from what: see `shikisha.train.settings`.")
]


@dataclass(frozen=True, slots=True)
class Running:
    """Where a run is kept, and what goes before the file."""

    to: Annotated[Path | None, typer.Option("--out", "-o", help="The run's folder; by default training/FILE.")] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last good checkpoint there.")] = False
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Steps of GRPO, instead of the file's.")] = None
    seed: Annotated[int | None, typer.Option("--seed", help="Instead of the file's.")] = None
    put: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Instead of the file's, as in grpo.group=4; may be repeated."),
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False


def train(file: File, running: Running, config: ConfigOption = None, json: JsonOption = False) -> Exit:
    """Train a conductor by reinforcement from finished tasks.

    Every sampled plan is performed by the engine and rewarded by what came of it. The run's folder holds checkpoints,
    steps.jsonl, and at the end the conductor in `final`. Exit codes: 1 a loss that is no number (the last good
    checkpoint stays), 3 something that is refused before anything is paid for, 4 the dollars are spent (go on with
    more of them and --resume), 130 and 143 stopped (go on with --resume).
    """
    _refuse_missing()
    with together() as crew:
        return _train(file, running if crew.main else replace(running, quiet=True), config, crew, json)


def _train(file: Path, running: Running, config: Path | None, crew: "Crew", json: bool) -> Exit:
    from shikisha.config.training import train as trained
    from shikisha.train.cores import every_core

    with crew.agreed():
        settings = _changed(_load(file, running.put or []), running)
        _refuse_missing_backend(settings)
    every_core()
    folder = running.to or Path(_FOLDER) / file.stem
    try:
        with ExitStack() as stack:
            view = _View(folder, running.quiet, stack)
            order = _order(settings, (folder, file.parent), running, view)
            result = session.perform(lambda: trained(order, settings, folder, config))
    except (CapReached, Diverged, Stopped):
        if crew.main:
            _say_what_is_left(folder)
        raise
    if not crew.main:
        return Exit.OK
    if not json:
        view.end()
    _tell(result, json)
    return Exit.OK


class _View:
    """Shows how it goes: lessons in lines, then steps in what suits the terminal, until the stack is left."""

    def __init__(self, folder: Path, quiet: bool, stack: ExitStack) -> None:
        self._folder, self._quiet, self._stack = folder, quiet, stack
        self._shown: Watcher | None = None
        self._next = 0.0

    def begin(self) -> None:
        """Show what is known so far."""
        from shikisha.train.history import read
        from shikisha.train.live import live
        from shikisha.train.record import FILE

        if not self._quiet:
            file = self._folder / FILE
            earlier = read(file) if file.stat().st_size else []
            self._shown = self._stack.enter_context(live(out.console(), earlier))

    def end(self) -> None:
        """Draw the curve of all steps, once there will be no more."""
        from shikisha.train.curve import curve
        from shikisha.train.history import read

        if self._shown is not None:
            console = out.console()
            console.print("", *curve(read(self._folder), console.width), "", sep="\n", soft_wrap=True)

    def __call__(self, step: "Step") -> None:
        """Show a step."""
        if self._shown is not None:
            self._shown(step)

    def taught(self, step: "WarmStep") -> None:
        """Print how the lessons go, every few seconds."""
        if not self._quiet and (monotonic() >= self._next or step.number == step.of):
            self._next = monotonic() + _LESSONS_EVERY
            out.line_of(f"lessons {step.number:,} of {step.of:,} · loss {step.loss:.3f} · rate {step.rate:.1e}")


def _order(
    settings: "TrainSettings", places: tuple[Path, Path], running: Running, view: _View
) -> "Callable[[Ground], Order]":
    """Return how the order is made once the ground is there; `places` are the run's folder and the file's."""
    from shikisha.train.session import Order

    folder, home = places
    watchers, resume = (view,), running.resume
    return lambda ground: Order(
        settings, ground, folder, resume, watchers, view.taught, out.note, view.begin, home=home
    )


def _refuse_missing() -> None:
    for library in _LIBRARIES:
        if find_spec(library) is None:
            raise MissingExtra("train", "training")


def _refuse_missing_backend(settings: "TrainSettings") -> None:
    if settings.backend == "trl" and find_spec("trl") is None:
        raise MissingExtra("train", 'backend = "trl"')


def _load(file: Path, put: list[str]) -> "TrainSettings":
    from shikisha import toml
    from shikisha.cli import overrides
    from shikisha.train.settings import TrainSettings

    name = f"{file} with --set" if put else str(file)
    return toml.validate(TrainSettings, overrides.put(toml.read(file), put), name)


def _changed(settings: "TrainSettings", running: Running) -> "TrainSettings":
    grpo = settings.grpo if running.steps is None else settings.grpo.model_copy(update={"steps": running.steps})
    seed = settings.seed if running.seed is None else running.seed
    return settings.model_copy(update={"grpo": grpo, "seed": seed})


def _say_what_is_left(folder: Path) -> None:
    from shikisha.train.keeping import Shelf

    places = Shelf(folder, 1, out.note).places()
    if places:
        out.note(f"kept: {folder / places[-1].name}; the same command with --resume goes on from there")


def _of(found: "Judged") -> str:
    from shikisha.train.figures import of_optimum

    share = of_optimum(found)
    return "" if share is None else f", {share:.1%} of what the optimum comes to"


def _tell(result: "Result", as_json: bool) -> None:
    judged = result.judged
    if as_json:
        from dataclasses import asdict

        found = None if judged is None else {"step": judged[0], **asdict(judged[1])}
        out.value({"conductor": str(result.folder), "steps": result.steps, "dollars": result.spent, "judged": found})
        return
    if judged is not None:
        step, found_then = judged
        out.note(f"right after {step} steps: {found_then.right:.1%} of {found_then.count} dev tasks{_of(found_then)}")
    simulated = " (simulated)" if result.simulated else ""
    out.note(f"calls of workers came to {format_dollars(result.spent)}{simulated}; the conductor, with its card:")
    out.line(str(result.folder))
