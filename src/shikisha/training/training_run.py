"""A training run from beginning to end: SFT, then steps of GRPO, each recorded, reported and kept in checkpoints.

Everything that can be refused is refused first: settings, tasks and money, the model. Then SFT, if there is any; then
GRPO, by our own loop (`grpo`) or by TRL. Every so many steps greedy plans for the validation tasks are scored.

Invariants: a run that is killed at any point and resumed continues like the unbroken one (same weights, same figures
but seconds) and repeats at most the steps since its last checkpoint; a step's line is on disk before any watcher is
called, and before its checkpoint; weights that are not finite are never kept; of several processes the main one alone
writes and reports, and all end together; validation draws nothing at random, so it changes no later sample.
Deliberately absent: where settings, tasks and workers come from (`config`), views (`console`).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib import import_module
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeVar, cast

import torch

from shikisha.core.errors import CapReached, ConfigError, TrainingDiverged
from shikisha.evals.taskset import TaskItem
from shikisha.training.checkpoint import (
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
from shikisha.training.environment import SFTSource, TaskCurriculum, TrainingEnvironment
from shikisha.training.grpo import GRPOLoop
from shikisha.training.metrics import StepCallback, StepMetrics, ValidationResult
from shikisha.training.metrics_log import StepLog
from shikisha.training.model_card import CardFacts, library_versions, write_model_card
from shikisha.training.model_loader import CHAT_TEMPLATE, LoadedModel, Qwen2Size, load_model, new_qwen2, resolve_start
from shikisha.training.plan_reward import PlanScorer, ScoredPlan
from shikisha.training.preflight_checks import refuse_environment, refuse_model, refuse_settings
from shikisha.training.process_group import (
    current_process_group,
    default_device,
    first_error,
    freeze_garbage_collection,
    sft_worker_count,
)
from shikisha.training.rollout import END_ID, PAD_ID, PlanPrompt, SamplingParams, sample
from shikisha.training.settings import TrainSettings
from shikisha.training.sft import SFTStep, make_auxiliary_sft, sft_optimizer, train_sft
from shikisha.training.sft_data import BATCHES_PER_CHUNK, ChunkSource, make_chunk, prefetch_chunks

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor
    from transformers import Qwen2ForCausalLM

    from shikisha.training.trl import TrlLoop

FINAL_FOLDER = "final"
_PROMPTS_AT_ONCE = 64  # of validation
# Imported only by runs that use it: it takes seconds.
_TRL_MODULE = "shikisha.training.trl"
# Between checkpoints: steps of SFT are about ten times as short as those of GRPO.
_SFT_STEPS_FACTOR = 10
# No figure depends on these, so they may change on a resume.
_CHANGEABLE_TABLES = frozenset({"keep", "spend"})
T = TypeVar("T")
TrlBackend = Callable[["TrainingRun", Checkpoint | None], Awaitable["TrainingResult"]]


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """What to train with which settings, where it is kept, and the callbacks: of steps, of SFT steps, of notes.

    A relative `model.start` begins in `start_folder`, that of the training file. `on_start` is called before the first
    step of GRPO, when nothing was refused. `clock` decides when a checkpoint is old.
    """

    settings: TrainSettings
    environment: TrainingEnvironment
    folder: Path
    resume: bool = False
    watchers: Sequence[StepCallback] = ()
    on_sft_step: Callable[[SFTStep], None] = lambda _: None
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
        job = replace(job, watchers=(), on_sft_step=lambda _: None, note=lambda _: None, on_start=lambda: None)
    store = CheckpointStore(job.folder, job.settings.keep.last, job.note, job.clock)
    with processes.raise_together():
        refuse_settings(job.settings, processes.count)
        checkpoint = _checkpoint_to_resume(job, store, processes.count) if processes.main else None
    found = processes.gather_texts("" if checkpoint is None else checkpoint.name.folder_name)[0]
    with processes.raise_together():
        if not processes.main:
            checkpoint = _main_checkpoint(store, found, processes.rank)
        refuse_environment(job.settings, job.environment)
        loaded = _load_start(job, checkpoint)
        refuse_model(loaded, job.settings, job.environment)
        done = checkpoint.name.step if checkpoint is not None and checkpoint.name.stage == "step" else 0
        job.note(f"the run is kept in {job.folder}")
        run = TrainingRun(job, store, loaded, StepLog(job.folder, done) if processes.main else None)
    try:
        if checkpoint is None or checkpoint.name.stage == "warm":
            with processes.raise_together():
                await run.run_sft(checkpoint)
            checkpoint = None
        if not job.settings.grpo.steps:
            return run.finish(0)
        with freeze_garbage_collection():
            if job.settings.backend == "plain":
                return await run.run_grpo(checkpoint)
            run_trl = cast("TrlBackend", import_module(_TRL_MODULE).run_trl)
            return await run_trl(run, checkpoint)
    finally:
        if run.record is not None:
            run.record.close()


class TrainingRun:
    """A run in progress: what it trains, and everything that it writes.

    `record` is the main process's. A backend may replace `weights`, which returns all weights in one piece (None: the
    model holds them), and `greedy_plans`; every process calls these.
    """

    def __init__(self, job: TrainingJob, store: CheckpointStore, loaded: LoadedModel, record: StepLog | None) -> None:
        self.job, self.checkpoints, self.loaded, self.record = job, store, loaded, record
        self.processes = current_process_group()
        self.weights: Callable[[], Mapping[str, Tensor] | None] = lambda: None
        self.greedy_plans: Callable[[Sequence[TaskItem]], list[str]] = self._greedy_plans
        settings, environment = job.settings, job.environment
        self.model = cast("Qwen2ForCausalLM", loaded.model)
        if settings.backend == "plain" or settings.warm.steps:  # TRL moves a model by itself
            torch.nn.Module.to(self.model, default_device())
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

    async def run_sft(self, checkpoint: Checkpoint | None) -> None:
        """Take the remaining SFT steps; then keep the model with which GRPO begins.

        A cancellation is raised between two steps, after a checkpoint.
        """
        table, source = self.job.settings.warm, self.job.environment.sft_source
        if table.steps:
            if source is None:
                raise ConfigError(
                    f"warm.steps: there are no SFT examples for {self.job.environment.origin.taskset}: "
                    f"expected 0, found {table.steps}"
                )
            optimizer = sft_optimizer(self.model, table)
            if checkpoint is not None:
                restore_state(checkpoint.state, optimizer, {})
            else:
                self.save(CheckpointName("warm", 0), capture_state(optimizer, {}))
            first = checkpoint.name.step if checkpoint is not None else 0
            every = self.job.settings.keep.every * _SFT_STEPS_FACTOR
            with _sft_chunks(self, source, first) as chunks:
                for step in train_sft(self.model, optimizer, chunks, table, first):
                    self.job.on_sft_step(step)
                    stopped = await _pending_cancellation()
                    if any(self.processes.gather_texts("stopped" if stopped else "")):
                        stopped = stopped or asyncio.CancelledError()
                    if step.number < table.steps and (stopped or self.checkpoint_is_old() or step.number % every == 0):
                        self.save(CheckpointName("warm", step.number), capture_state(optimizer, {}))
                    if stopped:
                        raise stopped
        self.save(CheckpointName("step", 0), TrainingState())

    async def run_grpo(
        self, checkpoint: Checkpoint | None, backend: "Callable[..., GRPOLoop | TrlLoop]" = GRPOLoop
    ) -> TrainingResult:
        """Take the remaining steps of GRPO, by our own loop or another backend."""
        settings = self.job.settings
        with self.processes.raise_together():
            loop = backend(
                self.model, self.loaded.tokenizer, self.curriculum, self.scorer, settings, self.reference(checkpoint)
            )
            generators = {"sampling": loop.generator}
            loop.auxiliary_sft = make_auxiliary_sft(settings, self.job.environment, self.loaded.tokenizer)
            if checkpoint is not None and checkpoint.name.step:
                if loop.optimizer is None:
                    self.job.note("the optimizer's state was not kept (FSDP, DeepSpeed): its averages start again")
                restore_state(checkpoint.state, loop.optimizer, generators)
                self.restore(checkpoint)
                loop.step = checkpoint.name.step
            self.job.on_start()
            baselines = await self.baselines() if loop.step < settings.grpo.steps else {}
        while loop.step < settings.grpo.steps:
            at, drawn, rng_state = loop.step, self.curriculum.state(), loop.generator.get_state()
            try:
                with self.processes.raise_together():
                    step = await unwrap_errors(loop.advance())
            except (CapReached, asyncio.CancelledError):
                # No weight has changed: what was learned since the last checkpoint is kept.
                if loop.step == at:
                    self.curriculum.restore(drawn)
                    loop.generator.set_state(rng_state)
                    self.save(CheckpointName("step", at), capture_state(loop.optimizer, generators))
                raise
            texts = self.validation_plans(step.number)
            with self.processes.raise_together():
                await self.record_step(step, texts, baselines)
            if self.due(step.number):
                self.save(CheckpointName("step", step.number), capture_state(loop.optimizer, generators))
        return self.finish(loop.step)

    def reference(self, checkpoint: Checkpoint | None) -> "Qwen2ForCausalLM | None":
        """Return the model that GRPO began with, where the KL divergence from it is counted."""
        if not self.job.settings.grpo.kl:
            return None
        if checkpoint is None or not checkpoint.name.step:
            return deepcopy(self.model)
        first = load_model(str(self.checkpoints.read(CheckpointName("step", 0)).folder)).model
        return cast("Qwen2ForCausalLM", torch.nn.Module.to(first, self.model.device))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore adapters, the curriculum and the dollars spent."""
        load_adapters(self.model, checkpoint.state.tensors)
        facts = checkpoint.state.facts
        self.curriculum.restore(cast("dict[str, object]", facts["source"]))
        self.scorer.dollars_spent = float(cast("float", facts["spent"])) / self.processes.count

    async def baselines(self) -> Mapping[str, float]:
        """Return the scores of other policies on the validation tasks."""
        environment = self.job.environment
        wanted = self.processes.main and environment.validation_tasks
        return await environment.baselines() if wanted and environment.baselines is not None else {}

    def validation_plans(self, number: int) -> list[str]:
        """Return the greedy plans for the validation tasks where validation follows this step, else nothing."""
        settings, items = self.job.settings, self.job.environment.validation_tasks
        due = number % settings.tasks.every == 0 or number == settings.grpo.steps
        return self.greedy_plans(items) if items and due else []

    async def record_step(self, step: StepMetrics, texts: Sequence[str], baselines: Mapping[str, float]) -> None:
        """Validate, write the step down, call the watchers; TrainingDiverged where a figure is not finite."""
        if not (isfinite(step.loss) and isfinite(step.gradient)):
            raise TrainingDiverged(f"step {step.number}: the loss is {step.loss}, the gradient norm {step.gradient}")
        if self.record is None:
            return
        if texts:
            exam = validate_plans(texts, self.scorer, self.job.environment.validation_tasks, baselines)
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
        weights, spent = self.weights(), self.processes.sum(self._spent())
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
        place, weights, spent = CheckpointName("step", steps), self.weights(), self.processes.sum(self._spent())
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

    def _greedy_plans(self, items: Sequence[TaskItem]) -> list[str]:
        if not self.processes.main:
            return []
        return greedy_plans(self.model, self.loaded.tokenizer, items, self.job.settings.grpo.longest)

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


@contextmanager
def _sft_chunks(run: TrainingRun, source: SFTSource, first: int) -> Iterator[ChunkSource]:
    """Yield a run's SFT examples as tokens; for a GPU other processes make them ahead of time."""
    table, tokenizer = run.job.settings.warm, run.loaded.tokenizer
    if not source.worker_module or run.model.device.type == "cpu":
        yield lambda number: make_chunk(number, source.examples, tokenizer, table)
        return
    settings = {**source.worker_settings, "tokenizer": tokenizer.to_str()}
    with prefetch_chunks(source.worker_module, settings, sft_worker_count(), first // BATCHES_PER_CHUNK) as chunks:
        yield chunks


async def unwrap_errors(work: Awaitable[T]) -> T:
    """Await what performs many runs at once; raise the first error of one of them instead of an ExceptionGroup."""
    try:
        return await work
    except ExceptionGroup as group:
        raise first_error(group) from None


async def _pending_cancellation() -> asyncio.CancelledError | None:
    """Let the event loop run once; return the cancellation of this task, if there is one."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError as stop:
        return stop
    return None


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
    before = _fixed_settings(TrainSettings()) | before
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
    if checkpoint is not None:
        first = checkpoint.folder.with_name(CheckpointName("step", 0).folder_name)  # what adapters were added to
        found = load_model(
            str(first if table.lora and checkpoint.name.stage == "step" else checkpoint.folder), table.dtype
        )
        return replace(found, start=cast("dict[str, object]", checkpoint.state.facts["start"]))
    if table.start:
        return load_model(resolve_start(table.start, job.start_folder), table.dtype)
    source = job.environment.sft_source
    if source is None:
        raise ConfigError(
            f"model.start: there are no SFT examples for {job.environment.origin.taskset}, so it cannot begin from "
            "scratch: expected a checkpoint's folder or a model on the hub"
        )
    job.note("counts the words of the SFT examples, for a tokenizer")
    tokenizer = source.tokenizer()
    size = Qwen2Size(table.layers, table.width, table.heads, table.inner, table.longest)
    return LoadedModel(new_qwen2(tokenizer.get_vocab_size(), size, job.settings.seed), tokenizer, PAD_ID, END_ID)


def greedy_plans(
    model: "Qwen2ForCausalLM", tokenizer: "Tokenizer", items: Sequence[TaskItem], longest: int
) -> list[str]:
    """Return the plan of each item by greedy decoding, as text, of a model that `rollout` samples."""
    found: list[str] = []
    for first in range(0, len(items), _PROMPTS_AT_ONCE):
        prompts = [
            tokenizer.encode(PlanPrompt(item).text(tokenizer)).ids for item in items[first : first + _PROMPTS_AT_ONCE]
        ]
        drawn = sample(model, prompts, 1, longest, params=SamplingParams(temperature=0.0))
        found += [tokenizer.decode(rows[0], skip_special_tokens=False) for rows in drawn.rows()]
    return found


async def validate_plans(
    texts: Sequence[str], scorer: PlanScorer, items: Sequence[TaskItem], baselines: Mapping[str, float]
) -> ValidationResult:
    """Score the texts, one for each item; `baselines` are the scores of other policies on the same tasks."""
    scored = await scorer.scores([[text] for text in texts], items)
    return summarize_validation([one for (one,) in scored], baselines)


def summarize_validation(found: Sequence[ScoredPlan], baselines: Mapping[str, float]) -> ValidationResult:
    """Return the figures of scored plans, one a task; a run that a worker's fault spoiled counts as wrong."""
    count = len(found)
    shapes = Counter(one.shape for one in found)
    return ValidationResult(
        count,
        right=sum(one.right for one in found) / count,
        valid=sum(one.valid for one in found) / count,
        dollars=sum(one.dollars for one in found) / count,
        shapes={name: times / count for name, times in shapes.most_common()},
        beside=dict(baselines),
    )
