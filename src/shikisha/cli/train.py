"""`train`: a conductor that learns, from a file that says what to learn from what.

Invariants: nothing is paid for before everything that can be checked was checked; a run that was stopped or killed is
gone on with by the same command and --resume; progress goes to stderr, where the conductor is to stdout; with --json
stdout holds one JSON value. Deliberately absent: settings that a file could not hold (--steps, --seed and --set put
others in the place of the file's).

One command in several processes, as `accelerate launch` starts it: one of them speaks.

Invariants: what all agree on is said by the main process alone; alone, nothing of this is noticed. Deliberately absent:
starting processes.

`--set KEY=VALUE`: a file's settings with others in the place of some, for one run.

    --set grpo.group=4 --set 'trl.vllm="server"' --set 'tasks.pool=["cheap", "dear"]'

Keys are dotted as errors name them, values are TOML. Invariant: what is put in passes the same validation as the file,
so nothing can be set that a file could not say. Deliberately absent: taking a bare word for a text, because a typed
`true` or `1` would then mean something else than it looks like.

`train-page`: a training's steps as one HTML page, afterwards or while it goes on.

Invariant: nothing is written but the page and, where it is asked for, TensorBoard's files. Deliberately absent: torch;
steps are read wherever they were copied to.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode, StopSignal, exit_code_of_error
from shikisha.cli.options import ConfigOption, JsonOption
from shikisha.core.budget import format_dollars
from shikisha.core.errors import CapReached, ConfigError, MissingExtra, ShikishaError, TrainingDiverged

if TYPE_CHECKING:
    from shikisha.training.process_group import ProcessGroup


@contextmanager
def distributed_training() -> Iterator["ProcessGroup"]:
    """Be one of the processes of this training until the end; an error that the main one tells ends others quietly."""
    from shikisha.training.process_group import current_process_group

    crew = current_process_group()
    try:
        yield crew
    except ShikishaError as error:
        if crew.is_reported_elsewhere(error):
            raise typer.Exit(exit_code_of_error(error)) from None
        raise
    finally:
        crew.leave()


if TYPE_CHECKING:
    from shikisha.training.environment import TrainingEnvironment
    from shikisha.training.metrics import StepCallback, StepMetrics, ValidationResult
    from shikisha.training.process_group import ProcessGroup
    from shikisha.training.settings import TrainSettings
    from shikisha.training.sft import SFTStep
    from shikisha.training.training_run import TrainingJob, TrainingResult

_FOLDER = "training"
_LIBRARIES = ("numpy", "safetensors", "tokenizers", "torch", "transformers")
_SFT_LINE_SECONDS = 5.0  # seconds between lines about lessons
File = Annotated[
    Path, typer.Argument(metavar="FILE.toml", help="What to learn from what: see `shikisha.train.settings`.")
]


@dataclass(frozen=True, slots=True)
class TrainOptions:
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


def train(file: File, running: TrainOptions, config: ConfigOption = None, json: JsonOption = False) -> ExitCode:
    """Train a conductor by reinforcement from finished tasks.

    Every sampled plan is performed by the engine and rewarded by what came of it. The run's folder holds checkpoints,
    steps.jsonl, and at the end the conductor in `final`. Exit codes: 1 a loss that is no number (the last good
    checkpoint stays), 3 something that is refused before anything is paid for, 4 the dollars are spent (go on with
    more of them and --resume), 130 and 143 stopped (go on with --resume).
    """
    _refuse_missing()
    with distributed_training() as crew:
        return _train(file, running if crew.main else replace(running, quiet=True), config, crew, json)


def _train(file: Path, running: TrainOptions, config: Path | None, crew: "ProcessGroup", json: bool) -> ExitCode:
    from shikisha.config.training_environment import train_configured as trained
    from shikisha.training.process_group import use_all_cores

    with crew.raise_together():
        settings = _with_options(_load_settings(file, running.put or []), running)
        _refuse_missing_backend(settings)
    use_all_cores()
    folder = running.to or Path(_FOLDER) / file.stem
    try:
        with ExitStack() as stack:
            view = _TrainingProgress(folder, running.quiet, stack)
            order = _order_builder(settings, (folder, file.parent), running, view)
            result = session.run_async(lambda: trained(order, settings, folder, config))
    except (CapReached, TrainingDiverged, StopSignal):
        if crew.main:
            _print_last_checkpoint(folder)
        raise
    if not crew.main:
        return ExitCode.OK
    if not json:
        view.end()
    _print_result(result, json)
    return ExitCode.OK


class _TrainingProgress:
    """Shows how it goes: lessons in lines, then steps in what suits the terminal, until the stack is left."""

    def __init__(self, folder: Path, quiet: bool, stack: ExitStack) -> None:
        self._folder, self._quiet, self._stack = folder, quiet, stack
        self._shown: StepCallback | None = None
        self._next = 0.0

    def begin(self) -> None:
        """Show what is known so far."""
        from shikisha.training.console import open_view
        from shikisha.training.metrics_log import STEPS_FILE, read_steps

        if not self._quiet:
            file = self._folder / STEPS_FILE
            earlier = read_steps(file) if file.stat().st_size else []
            self._shown = self._stack.enter_context(open_view(output.make_console(), earlier))

    def end(self) -> None:
        """Draw the curve of all steps, once there will be no more."""
        from shikisha.training.training_charts import accuracy_curve
        from shikisha.training.metrics_log import read_steps

        if self._shown is not None:
            console = output.make_console()
            console.print("", *accuracy_curve(read_steps(self._folder), console.width), "", sep="\n", soft_wrap=True)

    def __call__(self, step: "StepMetrics") -> None:
        """Show a step."""
        if self._shown is not None:
            self._shown(step)

    def taught(self, step: "SFTStep") -> None:
        """Print how the lessons go, every few seconds."""
        if not self._quiet and (monotonic() >= self._next or step.number == step.of):
            self._next = monotonic() + _SFT_LINE_SECONDS
            output.print_note_line(
                f"lessons {step.number:,} of {step.of:,} · loss {step.loss:.3f} · rate {step.rate:.1e}"
            )


def _order_builder(
    settings: "TrainSettings", places: tuple[Path, Path], running: TrainOptions, view: _TrainingProgress
) -> "Callable[[TrainingEnvironment], TrainingJob]":
    """Return how the order is made once the ground is there; `places` are the run's folder and the file's."""
    from shikisha.training.training_run import TrainingJob

    folder, home = places
    watchers, resume = (view,), running.resume
    return lambda ground: TrainingJob(
        settings, ground, folder, resume, watchers, view.taught, output.print_note, view.begin, start_folder=home
    )


def _refuse_missing() -> None:
    for library in _LIBRARIES:
        if find_spec(library) is None:
            raise MissingExtra("train", "training")


def _refuse_missing_backend(settings: "TrainSettings") -> None:
    if settings.backend == "trl" and find_spec("trl") is None:
        raise MissingExtra("train", 'backend = "trl"')


def _load_settings(file: Path, put: list[str]) -> "TrainSettings":
    from shikisha.core import toml
    from shikisha.training.settings import TrainSettings

    name = f"{file} with --set" if put else str(file)
    return toml.validate_model(TrainSettings, override_settings(toml.read_toml(file), put), name)


def _with_options(settings: "TrainSettings", running: TrainOptions) -> "TrainSettings":
    grpo = settings.grpo if running.steps is None else settings.grpo.model_copy(update={"steps": running.steps})
    seed = settings.seed if running.seed is None else running.seed
    return settings.model_copy(update={"grpo": grpo, "seed": seed})


def _print_last_checkpoint(folder: Path) -> None:
    from shikisha.training.checkpoint import CheckpointStore

    places = CheckpointStore(folder, 1, output.print_note).places()
    if places:
        output.print_note(f"kept: {folder / places[-1].folder_name}; the same command with --resume goes on from there")


def _share_of_optimum(found: "ValidationResult") -> str:
    from shikisha.training.metrics import share_of_optimum

    share = share_of_optimum(found)
    return "" if share is None else f", {share:.1%} of what the optimum comes to"


def _print_result(result: "TrainingResult", as_json: bool) -> None:
    judged = result.judged
    if as_json:
        from dataclasses import asdict

        found = None if judged is None else {"step": judged[0], **asdict(judged[1])}
        output.print_json(
            {"conductor": str(result.folder), "steps": result.steps, "dollars": result.spent, "judged": found}
        )
        return
    if judged is not None:
        step, found_then = judged
        output.print_note(
            f"right after {step} steps: {found_then.right:.1%} of {found_then.count} dev tasks{_share_of_optimum(found_then)}"
        )
    simulated = " (simulated)" if result.simulated else ""
    output.print_note(
        f"calls of workers came to {format_dollars(result.spent)}{simulated}; the conductor, with its card:"
    )
    output.print_line(str(result.folder))


SettingsTables = dict[str, object]


def override_settings(tables: Mapping[str, object], given: Iterable[str]) -> SettingsTables:
    """Return the tables with KEY=VALUE put in, later ones over earlier ones; ConfigError says what is no such thing."""
    found: SettingsTables = dict(tables)
    for one in given:
        key, value = _parse_override(one)
        found = _override_key(found, key.split("."), value, one)
    return found


def _parse_override(given: str) -> tuple[str, object]:
    key, mark, text = given.partition("=")
    key = key.strip()
    if not mark or not all(key.split(".")):
        raise ConfigError(f"--set {given}: expected KEY=VALUE, as in grpo.group=4")
    try:
        value = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        value = {}
    if set(value) != {"value"}:
        raise ConfigError(f"--set {given}: expected a TOML value; a text stands in quotes: '{key}=\"{text.strip()}\"'")
    return key, value["value"]


def _override_key(tables: Mapping[str, object], key: list[str], value: object, given: str) -> SettingsTables:
    first, *rest = key
    if not rest:
        return {**tables, first: value}
    inner = tables.get(first, {})
    if not isinstance(inner, Mapping):
        raise ConfigError(f"--set {given}: {first} is a value, not a table")
    return {**tables, first: _override_key(inner, rest, value, given)}


if TYPE_CHECKING:
    from collections.abc import Sequence

    from shikisha.training.metrics import StepMetrics

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A training's folder, or its steps.jsonl.")]
PageFile = Annotated[
    Path | None, typer.Option("--out", "-o", help="The page to write; by default training.html beside the steps.")
]
TensorBoardFolder = Annotated[
    Path | None, typer.Option("--board", metavar="DIR", help="Write TensorBoard's files there too.")
]
_PAGE = "training.html"


def train_page(run: RunFolder, to: PageFile = None, board: TensorBoardFolder = None) -> ExitCode:
    """Show how a training goes: the screen that it draws, and a page with all curves.

    Reads the steps that `train` writes, whether it still goes on or not.
    """
    for library in ("jinja2", "numpy"):
        if find_spec(library) is None:
            raise MissingExtra("eval", "train-page")
    from shikisha.training.console import screen_lines
    from shikisha.training.metrics_log import read_steps
    from shikisha.training.metrics_page import render_training_page

    steps = read_steps(run)
    folder = run if run.is_dir() else run.parent
    page = render_training_page(steps, folder.resolve().name)
    if board is not None:
        _write_tensorboard(steps, board)
    console = output.make_console(to_stdout=True)
    console.print(*screen_lines(steps, console.size), sep="\n")
    _write_file(to or folder / _PAGE, page)
    return ExitCode.OK


def _write_tensorboard(steps: "Sequence[StepMetrics]", folder: Path) -> None:
    from shikisha.training.metrics_log import TensorBoardLog

    with TensorBoardLog(folder) as board:
        for step in steps:
            board(step)
    output.print_note(f"written: {folder} (tensorboard --logdir {folder})")


def _write_file(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    output.print_note(f"written: {path}")
