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
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeVar, cast

import torch

from shikisha.core.errors import CapReached, ConfigError, TrainingDiverged
from shikisha.evals.taskset import TaskItem
from shikisha.training import checkpoint, model_card
from shikisha.training.checkpoint import (
    Checkpoint,
    CheckpointName,
    CheckpointStore,
    TrainingState,
    adapter_tensors,
    capture_state,
    load_adapters,
    restore_state,
    rng_state_json,
    with_rng_state,
)
from shikisha.training.environment import SFTSource, TaskCurriculum, TrainingEnvironment
from shikisha.training.grpo import GRPOLoop
from shikisha.training.metrics import StepCallback, StepMetrics, ValidationResult
from shikisha.training.metrics_log import StepLog
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
    from transformers import Qwen2ForCausalLM

_PROMPTS_AT_ONCE = 64


def greedy_plans(
    model: "Qwen2ForCausalLM", tokenizer: "Tokenizer", items: Sequence[TaskItem], longest: int
) -> list[str]:
    """Return the plan of each item by greedy decoding, as text, of a model that `rollout` samples."""
    found: list[str] = []
    for first in range(0, len(items), _PROMPTS_AT_ONCE):
        prompts = [tokenizer.encode(PlanPrompt(item).text()).ids for item in items[first : first + _PROMPTS_AT_ONCE]]
        drawn = sample(model, prompts, 1, longest, params=SamplingParams(temperature=0.0))
        found += [tokenizer.decode(rows[0], skip_special_tokens=False) for rows in drawn.rows()]
    return found


async def validate_plans(
    texts: Sequence[str], scorer: PlanScorer, items: Sequence[TaskItem], beside: Mapping[str, float]
) -> ValidationResult:
    """Score the texts, one for each item; `baselines` are the scores of other policies on the same tasks."""
    scored = await scorer.scores([[text] for text in texts], items)
    return summarize_validation([one for (one,) in scored], beside)


def summarize_validation(found: Sequence[ScoredPlan], beside: Mapping[str, float]) -> ValidationResult:
    """Return the figures of scored plans, one a task; a run that a worker's fault spoiled counts as wrong."""
    count = len(found)
    shapes = Counter(one.shape for one in found)
    return ValidationResult(
        count,
        right=sum(one.right for one in found) / count,
        valid=sum(one.valid for one in found) / count,
        dollars=sum(one.dollars for one in found) / count,
        shapes={name: times / count for name, times in shapes.most_common()},
        beside=dict(beside),
    )


if TYPE_CHECKING:
    from torch import Tensor
    from transformers import Qwen2ForCausalLM

    from shikisha.training.trl import TrlLoop

FINAL_FOLDER = "final"
_TRL_MODULE = "shikisha.training.trl"  # its `reinforced(run, kept)` does what `Run.reinforced` does
_SFT_STEPS_FACTOR = 10  # times as many steps between the checkpoints of a warm start: they are that much shorter
_CHANGEABLE_TABLES = frozenset(
    {"keep", "spend"}
)  # settings that no figure hangs on: they may change when a run goes on
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


async def train(order: TrainingJob) -> TrainingResult:
    """Train, in a folder that is locked (`checkpoint.claim_folder`).

    ConfigError before anything is paid for where it cannot work; TrainingDiverged where a loss is not finite;
    CapReached where the dollars are spent.
    """
    crew = current_process_group()
    if not crew.main:
        order = replace(order, watchers=(), on_sft_step=lambda _: None, note=lambda _: None, on_start=lambda: None)
    shelf = CheckpointStore(order.folder, order.settings.keep.last, order.note, order.clock)
    with crew.raise_together():
        refuse_settings(order.settings, crew.count)
        kept = _checkpoint_to_resume(order, shelf, crew.count) if crew.main else None
    found = crew.gather_texts("" if kept is None else kept.name.folder_name)[0]
    with crew.raise_together():
        if not crew.main:
            kept = _main_checkpoint(shelf, found, crew.rank)
        refuse_environment(order.settings, order.environment)
        begun = _load_start(order, kept)
        refuse_model(begun, order.settings, order.environment)
        done = kept.name.step if kept is not None and kept.name.stage == "step" else 0
        order.note(f"the run is kept in {order.folder}")
        run = TrainingRun(order, shelf, begun, StepLog(order.folder, done) if crew.main else None)
    try:
        if kept is None or kept.name.stage == "warm":
            with crew.raise_together():
                await run.run_sft(kept)
            kept = None
        if not order.settings.grpo.steps:
            return run.finish(0)
        with freeze_garbage_collection():
            return await (run.run_grpo(kept) if order.settings.backend == "plain" else _train_with_trl(run, kept))
    finally:
        if run.record is not None:
            run.record.close()


async def _train_with_trl(run: "TrainingRun", kept: Checkpoint | None) -> TrainingResult:
    """Hand the run over to TRL, which is imported only now: it takes seconds."""
    if find_spec(_TRL_MODULE) is None:
        raise ConfigError('backend: TRL cannot be used yet; expected backend = "plain"')
    reinforced = cast("TrlBackend", import_module(_TRL_MODULE).reinforced)
    return await reinforced(run, kept)


class TrainingRun:
    """A run in progress: what it trains, and everything that it writes.

    `record` is the main process's. A backend may replace `weights`, which returns all weights in one piece (None: the
    model holds them), and `greedy_plans`; every process calls these.
    """

    def __init__(self, order: TrainingJob, shelf: CheckpointStore, begun: LoadedModel, record: StepLog | None) -> None:
        self.job, self.checkpoints, self.loaded, self.record, self.processes = (
            order,
            shelf,
            begun,
            record,
            current_process_group(),
        )
        self.weights: Callable[[], Mapping[str, Tensor] | None] = lambda: None
        self.greedy_plans: Callable[[Sequence[TaskItem]], list[str]] = self._likeliest
        settings, ground = order.settings, order.environment
        self.model = cast("Qwen2ForCausalLM", begun.model)
        if settings.backend == "plain" or settings.warm.steps:  # TRL moves a model by itself
            torch.nn.Module.to(self.model, default_device())
        self.source = TaskCurriculum(
            ground.stream, settings.seed, near_half=settings.curriculum.near_half, floor=settings.curriculum.floor
        )
        self.scorer = PlanScorer(
            settings.reward.weights(),
            ground.caps,
            max(1, settings.spend.at_once // self.processes.count),
            self._share(settings.spend.dollars) if ground.purse is None else None,
            ground.purse,
            ground.engine,
        )

    async def run_sft(self, kept: Checkpoint | None) -> None:
        """Take the remaining SFT steps; then keep the model with which GRPO begins.

        A cancellation is raised between two steps, after a checkpoint.
        """
        table, school = self.job.settings.warm, self.job.environment.sft_source
        if table.steps:
            if school is None:
                raise ConfigError(
                    f"warm.steps: there are no SFT examples for {self.job.environment.origin.taskset}: "
                    f"expected 0, found {table.steps}"
                )
            optimizer = sft_optimizer(self.model, table)
            if kept is not None:
                restore_state(kept.state, optimizer, {})
            else:
                self.save(CheckpointName("warm", 0), capture_state(optimizer, {}))
            first = kept.name.step if kept is not None else 0
            every = self.job.settings.keep.every * _SFT_STEPS_FACTOR
            with _sft_chunks(self, school, first) as chunks:
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
        self, kept: Checkpoint | None, backend: "Callable[..., GRPOLoop | TrlLoop]" = GRPOLoop
    ) -> TrainingResult:
        """Take the remaining steps of GRPO, by our own loop or another backend."""
        settings = self.job.settings
        with self.processes.raise_together():
            loop = backend(self.model, self.loaded.tokenizer, self.source, self.scorer, settings, self.reference(kept))
            generators = {"sampling": loop.generator}
            loop.auxiliary_sft = make_auxiliary_sft(settings, self.job.environment, self.loaded.tokenizer)
            if kept is not None and kept.name.step:
                if loop.optimizer is None:
                    self.job.note("the optimizer's state was not kept (FSDP, DeepSpeed): its averages start again")
                restore_state(kept.state, loop.optimizer, generators)
                self.restore(kept)
                loop.step = kept.name.step
            self.job.on_start()
            beside = await self.baselines() if loop.step < settings.grpo.steps else {}
        while loop.step < settings.grpo.steps:
            at, drawn, lot = loop.step, self.source.state(), loop.generator.get_state()
            try:
                with self.processes.raise_together():
                    step = await unwrap_errors(loop.advance())
            except (CapReached, asyncio.CancelledError):
                if loop.step == at:  # no weight has changed: what was learned since the last checkpoint is kept
                    self.source.restore(drawn)
                    loop.generator.set_state(lot)
                    self.save(CheckpointName("step", at), capture_state(loop.optimizer, generators))
                raise
            texts = self.validation_plans(step.number)
            with self.processes.raise_together():
                await self.record_step(step, texts, beside)
            if self.due(step.number):
                self.save(CheckpointName("step", step.number), capture_state(loop.optimizer, generators))
        return self.finish(loop.step)

    def reference(self, kept: Checkpoint | None) -> "Qwen2ForCausalLM | None":
        """Return the model that GRPO began with, where the KL divergence from it is counted."""
        if not self.job.settings.grpo.kl:
            return None
        if kept is None or not kept.name.step:
            return deepcopy(self.model)
        first = load_model(str(self.checkpoints.read(CheckpointName("step", 0)).folder)).model
        return cast("Qwen2ForCausalLM", torch.nn.Module.to(first, self.model.device))

    def restore(self, kept: Checkpoint) -> None:
        """Restore adapters, the curriculum and the dollars spent."""
        load_adapters(self.model, kept.state.tensors)
        facts = kept.state.facts
        self.source.restore(cast("dict[str, object]", facts["source"]))
        self.scorer.dollars_spent = float(cast("float", facts["spent"])) / self.processes.count

    async def baselines(self) -> Mapping[str, float]:
        """Return the scores of other policies on the validation tasks."""
        ground = self.job.environment
        wanted = self.processes.main and ground.validation_tasks
        return await ground.baselines() if wanted and ground.baselines is not None else {}

    def validation_plans(self, number: int) -> list[str]:
        """Return the greedy plans for the validation tasks where validation follows this step, else nothing."""
        settings, items = self.job.settings, self.job.environment.validation_tasks
        due = number % settings.tasks.every == 0 or number == settings.grpo.steps
        return self.greedy_plans(items) if items and due else []

    async def record_step(self, step: StepMetrics, texts: Sequence[str], beside: Mapping[str, float]) -> None:
        """Validate, write the step down, call the watchers; TrainingDiverged where a figure is not finite."""
        if not (isfinite(step.loss) and isfinite(step.gradient)):
            raise TrainingDiverged(
                f"step {step.number}: the loss is {step.loss}, the gradient's length {step.gradient}"
            )
        if self.record is None:
            return
        if texts:
            exam = validate_plans(texts, self.scorer, self.job.environment.validation_tasks, beside)
            step = replace(step, judged=await unwrap_errors(exam))
        self.record.add(step)
        for watcher in self.job.watchers:
            watcher(step)

    def due(self, number: int) -> bool:
        """Whether a checkpoint follows this step: by its number, or by the clock."""
        late = self.checkpoint_is_old()  # a collective call: every process makes it
        return late or number % self.job.settings.keep.every == 0 or number == self.job.settings.grpo.steps

    def checkpoint_is_old(self) -> bool:
        """Whether the last checkpoint is old by the main process's clock."""
        return bool(
            self.processes.gather_texts("late" if self.checkpoints.is_old(self.job.settings.keep.minutes) else "")[0]
        )

    def save(self, place: CheckpointName, state: TrainingState) -> None:
        """Write a checkpoint; TrainingDiverged, the one before staying, where a weight is not finite."""
        weights, spent = self.weights(), self.processes.sum(self._spent())
        lots = self.processes.gather_texts(rng_state_json(state)) if self.processes.count > 1 and state.tensors else []
        with self.processes.raise_together():
            for name, each in (dict(self.model.named_parameters()) if weights is None else weights).items():
                if not bool(torch.isfinite(each).all()):
                    raise TrainingDiverged(f"{place.folder_name}: the weights in {name} are no numbers")
            if self.processes.main:
                facts = {**state.facts, **self._facts(spent), **({"dice": lots} if lots else {})}
                tensors = {**state.tensors, **adapter_tensors(self.model)}
                self.checkpoints.save(
                    place, lambda folder: self._fill(folder, place, spent, weights), TrainingState(tensors, facts)
                )

    def finish(self, steps: int) -> TrainingResult:
        """Write the conductor without the state of its training; return where it is."""
        place, weights, spent = CheckpointName("step", steps), self.weights(), self.processes.sum(self._spent())
        with self.processes.raise_together():
            if self.processes.main:
                with checkpoint.atomic_folder(self.job.folder / FINAL_FOLDER) as folder:
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

    def _likeliest(self, items: Sequence[TaskItem]) -> list[str]:
        if not self.processes.main:
            return []
        return greedy_plans(self.model, self.loaded.tokenizer, items, self.job.settings.grpo.longest)

    def _fill(self, folder: Path, place: CheckpointName, spent: float, weights: "Mapping[str, Tensor] | None") -> None:
        begun, judged = self.loaded, None if self.record is None else self.record.last_validation
        tokens = {"pad_token_id": begun.pad, "eos_token_id": begun.end}
        checkpoint.save_model(self.model, folder, tokens, weights)
        begun.tokenizer.save(str(folder / checkpoint.TOKENIZER))
        checkpoint.save_transformers_files(folder, begun.tokenizer, self.model, tokens)
        if begun.template:
            (folder / CHAT_TEMPLATE).write_text(begun.template, encoding="utf-8")
        model_card.write_model_card(
            folder,
            model_card.CardFacts(place, self.job.environment.origin, self.job.settings, judged, spent, begun.start),
        )

    def _facts(self, spent: float) -> dict[str, object]:
        return {
            "settings": _fixed_settings(self.job.settings),
            "ground": dict(self.job.environment.identity),
            "start": dict(self.loaded.start),
            "source": self.source.state(),
            "spent": spent,
            "processes": self.processes.count,
            "versions": model_card.library_versions(),
        }


@contextmanager
def _sft_chunks(run: TrainingRun, school: SFTSource, first: int) -> Iterator[ChunkSource]:
    """Yield a run's SFT examples as tokens; for a GPU other processes make them ahead of time."""
    table, tokenizer = run.job.settings.warm, run.loaded.tokenizer
    if not school.worker_module or run.model.device.type == "cpu":
        yield lambda number: make_chunk(number, school.examples, tokenizer, table)
        return
    told = {**school.worker_settings, "tokenizer": tokenizer.to_str()}
    with prefetch_chunks(school.worker_module, told, sft_worker_count(), first // BATCHES_PER_CHUNK) as chunks:
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


def _checkpoint_to_resume(order: TrainingJob, shelf: CheckpointStore, processes: int) -> Checkpoint | None:
    """Return the checkpoint to resume; ConfigError without --resume, or where it is of another run."""
    there = shelf.places()
    if not order.resume:
        if there:
            raise ConfigError(
                f"{order.folder}: there is a training run here already ({there[-1].folder_name}): --resume continues "
                "it, or choose another --out"
            )
        return None
    shelf.tidy()
    kept = shelf.newest()
    if kept is None:
        order.note("there is no checkpoint to resume yet: training starts at the beginning")
        return None
    _refuse_mismatch(kept, order, processes)
    order.note(f"resumes after {kept.name.folder_name}")
    return kept


def _main_checkpoint(shelf: CheckpointStore, found: str, rank: int) -> Checkpoint | None:
    """Return the checkpoint that the main process has found, with this process's own random generators."""
    place = CheckpointName.parse(found)
    if place is None:
        return None
    kept = shelf.read(place)
    lots = cast("list[str]", kept.state.facts.get("dice", []))
    return replace(kept, state=with_rng_state(kept.state, lots[rank])) if lots else kept


def _refuse_mismatch(kept: Checkpoint, order: TrainingJob, processes: int) -> None:
    facts = kept.state.facts
    if (count := facts.get("processes", 1)) != processes:
        raise ConfigError(
            f"{kept.folder}: a checkpoint of {count} processes, and now there are {processes}: a run continues with "
            "as many as it began with, or starts again in another --out (model.start may be this checkpoint)"
        )
    before, now = cast("dict[str, object]", facts["settings"]), _fixed_settings(order.settings)
    before = _fixed_settings(TrainSettings()) | before  # a key that is newer than the checkpoint had its default
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            raise ConfigError(
                f"{kept.folder}: a checkpoint of other settings: {key} was {before.get(key)!r}, and is "
                f"{now.get(key)!r}: a run continues with what it began with, or starts again in another --out"
            )
    before, now = cast("dict[str, object]", facts["ground"]), dict(order.environment.identity)
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            raise ConfigError(f"{kept.folder}: a checkpoint of another {key}: was {before.get(key)}, is {now.get(key)}")
    was, found = cast("dict[str, str]", facts["versions"]), model_card.library_versions()
    changed = [f"{name} {was.get(name)} → {found.get(name)}" for name in found if was.get(name) != found.get(name)]
    if changed:
        order.note(f"libraries have changed, so figures may differ in the last digits: {', '.join(changed)}")


def _fixed_settings(settings: TrainSettings) -> dict[str, object]:
    """Return the settings that figures depend on, by dotted key."""
    found: dict[str, object] = {}
    for key, value in settings.model_dump(mode="json", exclude=set(_CHANGEABLE_TABLES)).items():
        found |= {f"{key}.{name}": one for name, one in value.items()} if isinstance(value, dict) else {key: value}
    return found


def _load_start(order: TrainingJob, kept: Checkpoint | None) -> LoadedModel:
    """Load what the run resumes from, or starts with."""
    table = order.settings.model
    if kept is not None:
        first = kept.folder.with_name(CheckpointName("step", 0).folder_name)  # what adapters were added to
        found = load_model(str(first if table.lora and kept.name.stage == "step" else kept.folder), table.dtype)
        return replace(found, start=cast("dict[str, object]", kept.state.facts["start"]))
    if table.start:
        return load_model(resolve_start(table.start, order.start_folder), table.dtype)
    school = order.environment.sft_source
    if school is None:
        raise ConfigError(
            f"model.start: there are no SFT examples for {order.environment.origin.taskset}, so it cannot begin from "
            "scratch: expected a checkpoint's folder or a model on the hub"
        )
    order.note("counts the words of the SFT examples, for a tokenizer")
    tokenizer = school.tokenizer()
    size = Qwen2Size(table.layers, table.width, table.heads, table.inner, table.longest)
    return LoadedModel(new_qwen2(tokenizer.get_vocab_size(), size, order.settings.seed), tokenizer, PAD_ID, END_ID)
