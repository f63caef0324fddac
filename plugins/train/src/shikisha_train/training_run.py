"""A training run from beginning to end: steps of GRPO by TRL, each recorded, reported and kept in checkpoints.

Everything that can be refused is refused first: settings, tasks and money, the model. Every so many steps greedy plans
for the validation tasks are scored.

Invariants: a run that is killed at any point and resumed continues like the unbroken one (same weights, same figures
but seconds) and repeats at most the steps since its last checkpoint; a step's line is on disk before any watcher is
called, and before its checkpoint; weights that are not finite are never kept; of several processes the main one alone
writes and reports, and all end together; validation draws nothing that a later sample depends on.
Deliberately absent: where settings, tasks and workers come from (`config`), views (`console`).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeVar, cast

import torch

from shikisha.core.errors import CapReached, ConfigError, TrainingDiverged
from shikisha.evals.taskset import TaskItem
from shikisha_train.checkpoint import (
    TOKENIZER,
    Checkpoint,
    CheckpointName,
    CheckpointStore,
    TrainingState,
    adapter_tensors,
    atomic_folder,
    capture_state,
    load_adapters,
    restore_state,
    rng_state_json,
    save_model,
    save_transformers_files,
    with_rng_state,
)
from shikisha_train.environment import TaskCurriculum, TrainingEnvironment
from shikisha_train.metrics import StepCallback, StepMetrics, ValidationResult
from shikisha_train.metrics_log import StepLog
from shikisha_train.model_card import CardFacts, library_versions, write_model_card
from shikisha_train.model_loader import CHAT_TEMPLATE, LoadedModel, load_model, resolve_start
from shikisha_train.plan_reward import PlanScorer, ScoredPlan
from shikisha_train.preflight_checks import refuse_environment, refuse_model, refuse_settings
from shikisha_train.process_group import current_process_group, first_error, freeze_garbage_collection
from shikisha_train.settings import TrainSettings
from shikisha_train.trl import TrlLoop, gather_weights, generate_greedy_plans, wrap_tokenizer

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

FINAL_FOLDER = "final"
# No figure depends on these, so they may change on a resume.
_CHANGEABLE_TABLES = frozenset({"keep", "spend"})
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """What to train with which settings, where it is kept, and the callbacks: of steps, of notes.

    A relative `model.start` begins in `start_folder`, that of the training file. `on_start` is called before the first
    step, when nothing was refused. `clock` decides when a checkpoint is old.
    """

    settings: TrainSettings
    environment: TrainingEnvironment
    folder: Path
    resume: bool = False
    watchers: Sequence[StepCallback] = ()
    note: Callable[[str], None] = lambda _: None
    on_start: Callable[[], None] = lambda: None
    start_folder: Path = Path()
    clock: Callable[[], float] = monotonic


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """Where the conductor is, after how many steps, its last validation, and what calls of workers cost in dollars."""

    folder: Path
    steps: int
    judged: tuple[int, ValidationResult] | None
    spent: float
    simulated: bool


async def train(job: TrainingJob) -> TrainingResult:
    """Train, in a folder that is locked (`checkpoint.claim_folder`).

    ConfigError before anything is paid for where it cannot work; TrainingDiverged where a loss is not finite;
    CapReached where the dollars are spent.
    """
    processes = current_process_group()
    if not processes.main:
        job = replace(job, watchers=(), note=lambda _: None, on_start=lambda: None)
    store = CheckpointStore(job.folder, job.settings.keep.last, job.note, job.clock)
    with processes.raise_together():
        refuse_settings(job.settings)
        checkpoint = _checkpoint_to_resume(job, store, processes.count) if processes.main else None
    found = processes.gather_texts("" if checkpoint is None else checkpoint.name.folder_name)[0]
    with processes.raise_together():
        if not processes.main:
            checkpoint = _main_checkpoint(store, found, processes.rank)
        refuse_environment(job.settings, job.environment)
        loaded = _load_start(job, checkpoint)
        refuse_model(loaded, job.settings, job.environment)
        done = 0 if checkpoint is None else checkpoint.name.step
        job.note(f"the run is kept in {job.folder}")
        run = TrainingRun(job, store, loaded, StepLog(job.folder, done) if processes.main else None)
    try:
        if checkpoint is None:
            run.save(CheckpointName(done), TrainingState())
        with freeze_garbage_collection():
            return await run.run_grpo(checkpoint)
    finally:
        if run.record is not None:
            run.record.close()


class TrainingRun:
    """A run in progress: what it trains, and everything that it writes.

    `record` is the main process's.
    """

    def __init__(self, job: TrainingJob, store: CheckpointStore, loaded: LoadedModel, record: StepLog | None) -> None:
        self.job, self.checkpoints, self.loaded, self.record = job, store, loaded, record
        self.processes = current_process_group()
        self.loop: TrlLoop | None = None
        settings, environment = job.settings, job.environment
        self.model = loaded.model
        self.curriculum = TaskCurriculum(
            environment.stream, settings.seed, near_half=settings.curriculum.near_half, floor=settings.curriculum.floor
        )
        self.scorer = PlanScorer(
            settings.reward.weights(),
            environment.caps,
            max(1, settings.spend.at_once // self.processes.count),
            self._share(settings.spend.dollars) if environment.purse is None else None,
            environment.purse,
            environment.engine,
        )

    async def run_grpo(self, checkpoint: Checkpoint | None) -> TrainingResult:
        """Take the remaining steps."""
        settings, loaded = self.job.settings, self.loaded
        if loaded.pad is None or loaded.end is None:
            raise ConfigError("model.start: expected a model with a pad and an end token")
        with self.processes.raise_together():
            tokenizer = wrap_tokenizer(loaded.tokenizer, loaded.pad, loaded.end, loaded.template)
            reference = self.reference(checkpoint)
            self.loop = loop = TrlLoop(self.model, tokenizer, self.curriculum, self.scorer, settings, reference)
            if checkpoint is not None and checkpoint.name.step:
                if loop.optimizer is None:
                    self.job.note("the optimizer's state was not kept (FSDP, DeepSpeed): its averages start again")
                restore_state(checkpoint.state, loop.optimizer)
                self.restore(checkpoint)
                loop.step = checkpoint.name.step
            self.job.on_start()
        while loop.step < settings.grpo.steps:
            at, drawn = loop.step, self.curriculum.state()
            try:
                with self.processes.raise_together():
                    step = await unwrap_errors(loop.advance())
            except (CapReached, asyncio.CancelledError):
                # No weight has changed: what was learned since the last checkpoint is kept.
                if loop.step == at:
                    self.curriculum.restore(drawn)
                    self.save(CheckpointName(at), capture_state(loop.optimizer))
                raise
            texts = self.validation_plans(step.number, loop)
            with self.processes.raise_together():
                await self.record_step(step, texts)
            if self.due(step.number):
                self.save(CheckpointName(step.number), capture_state(loop.optimizer))
        return self.finish(loop.step)

    def reference(self, checkpoint: Checkpoint | None) -> "PreTrainedModel | None":
        """Return the model that GRPO began with, where the KL divergence from it is counted."""
        if not self.job.settings.grpo.kl:
            return None
        if checkpoint is None or not checkpoint.name.step:
            return deepcopy(self.model)
        return load_model(str(self.checkpoints.read(CheckpointName(0)).folder), self.job.settings.model.dtype).model

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore adapters, the curriculum and the dollars spent."""
        load_adapters(self.model, checkpoint.state.tensors)
        facts = checkpoint.state.facts
        self.curriculum.restore(cast("dict[str, object]", facts["source"]))
        self.scorer.dollars_spent = float(cast("float", facts["spent"])) / self.processes.count

    def validation_plans(self, number: int, loop: TrlLoop) -> list[str]:
        """Return the greedy plans for the validation tasks where validation follows this step, else nothing."""
        settings, items = self.job.settings, self.job.environment.validation_tasks
        due = number % settings.tasks.every == 0 or number == settings.grpo.steps
        return generate_greedy_plans(loop.trainer, items) if items and due else []

    async def record_step(self, step: StepMetrics, texts: Sequence[str]) -> None:
        """Validate, write the step down, call the watchers; TrainingDiverged where a figure is not finite."""
        if not (isfinite(step.loss) and isfinite(step.gradient)):
            raise TrainingDiverged(f"step {step.number}: the loss is {step.loss}, the gradient norm {step.gradient}")
        if self.record is None:
            return
        if texts:
            exam = validate_plans(texts, self.scorer, self.job.environment.validation_tasks)
            step = replace(step, judged=await unwrap_errors(exam))
        self.record.add(step)
        for watcher in self.job.watchers:
            watcher(step)

    def due(self, number: int) -> bool:
        """Whether a checkpoint follows this step: by its number, or by the clock."""
        # A collective call: every process makes it.
        late = self.checkpoint_is_old()
        return late or number % self.job.settings.keep.every == 0 or number == self.job.settings.grpo.steps

    def checkpoint_is_old(self) -> bool:
        """Whether the last checkpoint is old by the main process's clock."""
        return bool(
            self.processes.gather_texts("late" if self.checkpoints.is_old(self.job.settings.keep.minutes) else "")[0]
        )

    def save(self, place: CheckpointName, state: TrainingState) -> None:
        """Write a checkpoint; TrainingDiverged, the one before staying, where a weight is not finite."""
        weights, spent = self._weights(), self.processes.sum(self._spent())
        rng_states = (
            self.processes.gather_texts(rng_state_json(state)) if self.processes.count > 1 and state.tensors else []
        )
        with self.processes.raise_together():
            for name, each in (dict(self.model.named_parameters()) if weights is None else weights).items():
                if not bool(torch.isfinite(each).all()):
                    raise TrainingDiverged(f"{place.folder_name}: the weights in {name} are no numbers")
            if self.processes.main:
                facts = {**state.facts, **self._facts(spent), **({"dice": rng_states} if rng_states else {})}
                tensors = {**state.tensors, **adapter_tensors(self.model)}
                self.checkpoints.save(
                    place, lambda folder: self._fill(folder, place, spent, weights), TrainingState(tensors, facts)
                )

    def finish(self, steps: int) -> TrainingResult:
        """Write the conductor without the state of its training; return where it is."""
        place, weights, spent = CheckpointName(steps), self._weights(), self.processes.sum(self._spent())
        with self.processes.raise_together():
            if self.processes.main:
                with atomic_folder(self.job.folder / FINAL_FOLDER) as folder:
                    self._fill(folder, place, spent, weights)
        judged = None if self.record is None else self.record.last_validation
        return TrainingResult(
            self.job.folder / FINAL_FOLDER, steps, judged, spent, self.job.environment.origin.simulated
        )

    def _spent(self) -> float:
        """Return what this process's calls of workers cost in dollars."""
        purse = self.job.environment.purse
        return self.scorer.dollars_spent if purse is None else purse.spent

    def _share(self, dollars: float | None) -> float | None:
        """Return what each of the processes may spend."""
        return None if dollars is None else dollars / self.processes.count

    def _weights(self) -> "Mapping[str, Tensor] | None":
        """Return all weights in one piece; None where the model holds them."""
        return None if self.loop is None else gather_weights(self.loop.trainer)

    def _fill(self, folder: Path, place: CheckpointName, spent: float, weights: "Mapping[str, Tensor] | None") -> None:
        loaded, judged = self.loaded, None if self.record is None else self.record.last_validation
        tokens = {"pad_token_id": loaded.pad, "eos_token_id": loaded.end}
        save_model(self.model, folder, tokens, weights)
        loaded.tokenizer.save(str(folder / TOKENIZER))
        save_transformers_files(folder, loaded.tokenizer, self.model, tokens)
        if loaded.template:
            (folder / CHAT_TEMPLATE).write_text(loaded.template, encoding="utf-8")
        write_model_card(
            folder,
            CardFacts(place, self.job.environment.origin, self.job.settings, judged, spent, loaded.start),
        )

    def _facts(self, spent: float) -> dict[str, object]:
        return {
            "settings": _fixed_settings(self.job.settings),
            "ground": dict(self.job.environment.identity),
            "start": dict(self.loaded.start),
            "source": self.curriculum.state(),
            "spent": spent,
            "processes": self.processes.count,
            "versions": library_versions(),
        }


async def unwrap_errors(work: Awaitable[T]) -> T:
    """Await what performs many runs at once; raise the first error of one of them instead of an ExceptionGroup."""
    try:
        return await work
    except ExceptionGroup as group:
        raise first_error(group) from None


def _checkpoint_to_resume(job: TrainingJob, store: CheckpointStore, processes: int) -> Checkpoint | None:
    """Return the checkpoint to resume; ConfigError without --resume, or where it is of another run."""
    there = store.places()
    if not job.resume:
        if there:
            raise ConfigError(
                f"{job.folder}: there is a training run here already ({there[-1].folder_name}): --resume continues "
                "it, or choose another --out"
            )
        return None
    store.tidy()
    checkpoint = store.newest()
    if checkpoint is None:
        job.note("there is no checkpoint to resume yet: training starts at the beginning")
        return None
    _refuse_mismatch(checkpoint, job, processes)
    job.note(f"resumes after {checkpoint.name.folder_name}")
    return checkpoint


def _main_checkpoint(store: CheckpointStore, found: str, rank: int) -> Checkpoint | None:
    """Return the checkpoint that the main process has found, with this process's own random generators."""
    place = CheckpointName.parse(found)
    if place is None:
        return None
    checkpoint = store.read(place)
    rng_states = cast("list[str]", checkpoint.state.facts.get("dice", []))
    return replace(checkpoint, state=with_rng_state(checkpoint.state, rng_states[rank])) if rng_states else checkpoint


def _refuse_mismatch(checkpoint: Checkpoint, job: TrainingJob, processes: int) -> None:
    facts = checkpoint.state.facts
    if (count := facts.get("processes", 1)) != processes:
        raise ConfigError(
            f"{checkpoint.folder}: a checkpoint of {count} processes, and now there are {processes}: a run continues "
            "with as many as it began with, or starts again in another --out (model.start may be this checkpoint)"
        )
    before, now = cast("dict[str, object]", facts["settings"]), _fixed_settings(job.settings)
    # A key that is newer than the checkpoint had its default.
    before = _fixed_settings(TrainSettings(model=job.settings.model, tasks=job.settings.tasks)) | before
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            raise ConfigError(
                f"{checkpoint.folder}: a checkpoint of other settings: {key} was {before.get(key)!r}, and is "
                f"{now.get(key)!r}: a run continues with what it began with, or starts again in another --out"
            )
    before, now = cast("dict[str, object]", facts["ground"]), dict(job.environment.identity)
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            raise ConfigError(
                f"{checkpoint.folder}: a checkpoint of another {key}: was {before.get(key)}, is {now.get(key)}"
            )
    was, found = cast("dict[str, str]", facts["versions"]), library_versions()
    changed = [f"{name} {was.get(name)} → {found.get(name)}" for name in found if was.get(name) != found.get(name)]
    if changed:
        job.note(f"libraries have changed, so figures may differ in the last digits: {', '.join(changed)}")


def _fixed_settings(settings: TrainSettings) -> dict[str, object]:
    """Return the settings that figures depend on, by dotted key."""
    found: dict[str, object] = {}
    for key, value in settings.model_dump(mode="json", exclude=set(_CHANGEABLE_TABLES)).items():
        found |= {f"{key}.{name}": one for name, one in value.items()} if isinstance(value, dict) else {key: value}
    return found


def _load_start(job: TrainingJob, checkpoint: Checkpoint | None) -> LoadedModel:
    """Load what the run resumes from, or starts with."""
    table = job.settings.model
    if checkpoint is None:
        return load_model(resolve_start(table.start, job.start_folder), table.dtype)
    first = checkpoint.folder.with_name(CheckpointName(0).folder_name)  # what adapters were added to
    found = load_model(str(first if table.lora else checkpoint.folder), table.dtype)
    return replace(found, start=cast("dict[str, object]", checkpoint.state.facts["start"]))


async def validate_plans(texts: Sequence[str], scorer: PlanScorer, items: Sequence[TaskItem]) -> ValidationResult:
    """Score the texts, one for each item."""
    scored = await scorer.scores([[text] for text in texts], items)
    return summarize_validation([one for (one,) in scored])


def summarize_validation(found: Sequence[ScoredPlan]) -> ValidationResult:
    """Return the figures of scored plans, one a task; a run that a worker's fault spoiled counts as wrong."""
    count = len(found)
    shapes = Counter(one.shape for one in found)
    return ValidationResult(
        count,
        right=sum(one.right for one in found) / count,
        valid=sum(one.valid for one in found) / count,
        dollars=sum(one.dollars for one in found) / count,
        shapes={name: times / count for name, times in shapes.most_common()},
    )
