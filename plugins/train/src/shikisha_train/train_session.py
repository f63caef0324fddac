"""What `train` does once its options are read; apart from it, so that its help waits for no torch.

Invariant: everything that can be checked is checked before anything is paid for. `train_command` alone imports this.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode, StopSignal, exit_code_of_error
from shikisha.core import toml
from shikisha.core.budget import format_dollars
from shikisha.core.errors import CapReached, ConfigError, ShikishaError, TrainingDiverged
from shikisha_train import training_run
from shikisha_train.checkpoint import CheckpointStore, claim_folder
from shikisha_train.console import StepLines
from shikisha_train.environment import TrainingEnvironment
from shikisha_train.metrics import StepCallback, StepMetrics
from shikisha_train.metrics_log import STEPS_FILE, read_steps
from shikisha_train.preflight_checks import refuse_settings
from shikisha_train.process_group import ProcessGroup, current_process_group, use_all_cores
from shikisha_train.settings import TrainSettings
from shikisha_train.training_environment import open_environment
from shikisha_train.training_run import TrainingJob, TrainingResult

if TYPE_CHECKING:
    from shikisha_train.train_command import TrainOptions

_FOLDER = "training"
SettingsTables = dict[str, object]


@contextmanager
def distributed_training() -> Iterator[ProcessGroup]:
    """Be one of the processes that `accelerate launch` started; only the main process reports an error of all."""
    group = current_process_group()
    try:
        yield group
    except ShikishaError as error:
        if group.is_reported_elsewhere(error):
            raise typer.Exit(exit_code_of_error(error)) from None
        raise
    finally:
        group.leave()


def train_conductor(
    file: Path, options: "TrainOptions", config: Path | None, group: ProcessGroup, *, json: bool
) -> ExitCode:
    """Train as the command line says, show the progress, and print the folder of the conductor."""
    with group.raise_together():
        settings = _load_settings(file, options)
    use_all_cores()
    folder = options.to or Path(_FOLDER) / file.stem
    try:
        view = _TrainingProgress(folder, options.quiet)
        build_job = _job_builder(settings, (folder, file.parent), options, view)
        result = session.run_async(lambda: _train_configured(build_job, settings, folder, config))
    except (CapReached, TrainingDiverged, StopSignal):
        if group.main:
            places = CheckpointStore(folder, 1, output.print_note).places()
            if places:
                output.print_note(
                    f"kept: {folder / places[-1].folder_name}; the same command with --resume continues from there"
                )
        raise
    if not group.main:
        return ExitCode.OK
    _print_result(result, json)
    return ExitCode.OK


async def _train_configured(
    build_job: Callable[[TrainingEnvironment], TrainingJob], settings: TrainSettings, folder: Path, config: Path | None
) -> TrainingResult:
    """Train in a folder; `build_job` makes the job from the environment."""
    group = current_process_group()
    async with AsyncExitStack() as stack:
        with group.raise_together():
            refuse_settings(settings)
            if group.main:
                stack.enter_context(claim_folder(folder))
        with group.raise_together():  # no process spends before all know what was paid
            process = (group.rank, group.count)
            environment = await stack.enter_async_context(open_environment(settings, folder, config, process))
        return await training_run.train(build_job(environment))


class _TrainingProgress:
    """Prints lines about steps, unless it is to be quiet."""

    def __init__(self, folder: Path, quiet: bool) -> None:
        self._folder, self._quiet = folder, quiet
        self._show_step: StepCallback | None = None

    def begin(self) -> None:
        """Begin after the steps of earlier sessions."""
        if not self._quiet:
            file = self._folder / STEPS_FILE
            earlier = read_steps(file) if file.stat().st_size else []
            self._show_step = StepLines(output.make_console(), earlier)

    def __call__(self, step: StepMetrics) -> None:
        """Show a step."""
        if self._show_step is not None:
            self._show_step(step)


def _job_builder(
    settings: TrainSettings, places: tuple[Path, Path], options: "TrainOptions", view: _TrainingProgress
) -> Callable[[TrainingEnvironment], TrainingJob]:
    """Return what makes the job once its environment is there; `places` are the folders of the run and of the file."""
    folder, home = places
    watchers, resume = (view,), options.resume
    return lambda environment: TrainingJob(
        settings, environment, folder, resume, watchers, output.print_note, view.begin, start_folder=home
    )


def _load_settings(file: Path, options: "TrainOptions") -> TrainSettings:
    put = options.put or []
    name = f"{file} with --set" if put else str(file)
    settings = toml.validate_model(TrainSettings, override_settings(toml.read_toml(file), put), name)
    grpo = settings.grpo if options.steps is None else settings.grpo.model_copy(update={"steps": options.steps})
    seed = settings.seed if options.seed is None else options.seed
    return settings.model_copy(update={"grpo": grpo, "seed": seed})


def _print_result(result: TrainingResult, as_json: bool) -> None:
    judged = result.judged
    if as_json:
        found = None if judged is None else {"step": judged[0], **asdict(judged[1])}
        output.print_json(
            {"conductor": str(result.folder), "steps": result.steps, "dollars": result.spent, "judged": found}
        )
        return
    if judged is not None:
        step, validation = judged
        output.print_note(f"right after {step} steps: {validation.right:.1%} of {validation.count} dev tasks")
    simulated = " (simulated)" if result.simulated else ""
    output.print_note(f"calls of workers cost {format_dollars(result.spent)}{simulated}; the conductor, with its card:")
    output.print_line(str(result.folder))


def override_settings(tables: Mapping[str, object], given: Iterable[str]) -> SettingsTables:
    """Return the tables of a settings file with each --set KEY=VALUE applied; of several for one key the last counts.

    Keys are dotted, values are TOML: a bare word is refused, because `true` or `1` would not mean what it looks like.
    The result passes the same validation as the file.
    """
    replaced: SettingsTables = dict(tables)
    for option in given:
        key, value = _parse_override(option)
        replaced = _override_key(replaced, key.split("."), value, option)
    return replaced


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
        raise ConfigError(f"--set {given}: expected a TOML value; a text needs quotes: '{key}=\"{text.strip()}\"'")
    return key, value["value"]


def _override_key(tables: Mapping[str, object], key: list[str], value: object, given: str) -> SettingsTables:
    first, *rest = key
    if not rest:
        return {**tables, first: value}
    inner = tables.get(first, {})
    if not isinstance(inner, Mapping):
        raise ConfigError(f"--set {given}: {first} is a value, not a table")
    return {**tables, first: _override_key(inner, rest, value, given)}
