"""GRPO by TRL: its sampling, optimizer steps, processes, adapters and vLLM, with our tasks, rewards and formulas.

Plans are performed by the reward function that TRL calls; advantages and loss are those of `grpo`. TRL trains in a
thread that waits between steps, so `training_run` drives it step by step.

Invariants: a plan that a worker's fault spoiled has no advantage and is counted as masked; a loss or gradient that is
not finite stops training before any weight changes; a step that is canceled has changed no weight, or is complete when
the cancellation arrives; every step draws from a seed of its own, so a resumed run samples what the unbroken one would;
an error in one process stops all of them, after the same collective calls.

Where TRL's documented hooks do not suffice, its private methods are overridden or called (lines of TRL 1.16's
`grpo_trainer.py`):
- `_generate_and_score_completions`: the number of completions is that of the data loader's rows (1581), so second
  rounds could not join a batch; advantages have no hook (2763-2793); a data loader reads ahead, so tasks drawn there
  would be a step behind the curriculum.
- `_get_per_token_logps_and_entropies`: there is no other way to the log-probabilities that a loss needs.
- `_get_grad_norm` (transformers): `on_pre_optimizer_step` does not get the norm, and `on_step_end` comes too late.
- `_tokenize_prompts`, `_generate_single_turn`: there is no public way to generate without training.
- `_send_telemetry`: the environment variable that switches it off is read before this module can set it.
`environment_factory` is for tools that a model calls while it writes; a conductor writes a whole plan first.

Deliberately absent: TRL's checkpoints (they are pickled), progress bars and telemetry.
"""

import asyncio
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from itertools import cycle, islice
from math import isfinite
from threading import Semaphore, Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import GenerationConfig, PreTrainedTokenizerFast, PrinterCallback
from trl.models.utils import prepare_deepspeed, prepare_fsdp
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from shikisha.core.errors import ConfigError, TrainingDiverged
from shikisha.evals.taskset import TaskItem
from shikisha_train.environment import TaskCurriculum
from shikisha_train.grpo import MAX_GRAD_NORM, grpo_loss, step_advantages
from shikisha_train.metrics import SAMPLES_PER_STEP, StepMetrics, rollout_metrics, second_round_shares
from shikisha_train.plan_reward import Floats, PlanScorer
from shikisha_train.process_group import current_process_group
from shikisha_train.rollout import PlanPrompt, RolloutGroup, second_round_prompts
from shikisha_train.settings import TrainSettings
from shikisha_train.trl_batch import (
    GroupSummary,
    PlanRewardFunction,
    gather_groups,
    join_batches,
    max_over_processes,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel

# Each step samples from a seed of its own.
_SEED_STRIDE = 1_000_003
# In each process, where greedy plans are generated.
_PROMPTS_AT_ONCE = 16
_SAMPLING_OPTIONS = ("temperature", "top_p", "top_k", "min_p")
# Such completions are masked and counted.
_UNSCORED_MESSAGE = "All reward functions returned None"
_NO_PROBABILITIES = "probability tensor contains"  # how torch refuses to draw
# Transformers renamed it after 5.17.
_NAMES = {each.name for each in fields(GRPOConfig)}
_CHECKPOINTING = "activation_checkpointing" if "activation_checkpointing" in _NAMES else "gradient_checkpointing"
_IGNORED_WARNINGS: tuple[tuple[str, type[Warning]], ...] = (
    ("`[a-z_]*gradient_checkpointing[a-z_]*` is deprecated", FutureWarning),  # TRL calls transformers by the old name
)


class TrlLoop:
    """A policy and the state of its training. `advance` takes one step."""

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: PreTrainedTokenizerFast,
        curriculum: TaskCurriculum,
        scorer: PlanScorer,
        settings: TrainSettings,
        reference: "PreTrainedModel | None" = None,
    ) -> None:
        self.trainer = PlanGRPOTrainer(model, tokenizer, curriculum, scorer, settings, reference)
        self._steps = settings.grpo.steps
        self._thread: Thread | None = None
        self._taken: Future[StepMetrics] = Future()
        self._go = Semaphore(0)

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer; None where every process holds a piece of it, and nothing of it is kept."""
        return None if self.trainer.sharded else self.trainer.policy_optimizer

    @property
    def step(self) -> int:
        """How many steps were taken."""
        return self.trainer.step

    @step.setter
    def step(self, taken: int) -> None:
        self.trainer.step = taken

    async def advance(self) -> StepMetrics:
        """Take one step and return its metrics."""
        self._taken = Future()
        self.trainer.rollouts.begin(asyncio.get_running_loop())
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._train, name="trl", daemon=True)
            self._thread.start()
        else:
            self._go.release()
        waited = asyncio.wrap_future(self._taken)
        try:
            return await asyncio.shield(waited)
        except asyncio.CancelledError:
            self.trainer.rollouts.stop()
            while not waited.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([waited])
            raise
        finally:
            if waited.exception() is not None or waited.result().number >= self._steps:
                await asyncio.to_thread(self._thread.join)

    def _train(self) -> None:
        try:
            self.trainer.run(self._finish_step)
        except BaseException as error:  # noqa: BLE001 - raised again where the step is awaited
            self._taken.set_exception(error)

    def _finish_step(self, step: StepMetrics) -> None:
        self._taken.set_result(step)
        if step.number < self._steps:
            self._go.acquire()


class PlanGRPOTrainer(GRPOTrainer):
    """TRL's trainer with our tasks, plan rewards and advantages."""

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: PreTrainedTokenizerFast,
        curriculum: TaskCurriculum,
        scorer: PlanScorer,
        settings: TrainSettings,
        reference: "PreTrainedModel | None" = None,
    ) -> None:
        table = settings.grpo
        if table.kl and reference is None and not settings.model.lora:
            raise ConfigError("grpo.kl: a divergence needs the model that training began with")
        self.curriculum, self.settings, self.current, self._begun = curriculum, settings, TrlStep(), 0
        self.processes = current_process_group()
        self.rollouts = PlanRewardFunction(tokenizer.backend_tokenizer, tokenizer.eos_token_id, scorer, settings)
        with quiet_trl():
            super().__init__(
                model=model,
                reward_funcs=cast("Callable[..., list[float | None]]", self.rollouts.perform),  # TRL takes async ones
                args=grpo_config(settings, self.processes.count),
                train_dataset=Dataset.from_dict({"prompt": [""] * table.tasks * max(1, table.steps)}),
                processing_class=tokenizer,
                peft_config=lora_config(settings),
            )
        self.remove_callback(PrinterCallback)
        if table.kl:
            self.beta, self.ref_model = table.kl, _prepare_reference(self, reference)
        if not self.sharded:
            # Now, so that its state can be restored.
            self.create_optimizer()
        elif settings.model.lora:
            raise ConfigError("model.lora: adapters are trained with DDP: expected no FSDP and no DeepSpeed")

    def run(self, callback: Callable[[StepMetrics], object] | None = None) -> None:
        """Take the remaining steps; call `callback` after each.

        TrainingDiverged where the loss or a gradient is not finite: the weights are those of the step before.
        """
        left = self.settings.grpo.steps - self.step
        if left > 0:
            self._begun, self._callback, self.args.max_steps = self.step, callback, left
            self.state.global_step = 0
            with quiet_trl():
                self.train()
            cast("Module", self.model).train(mode=False)

    @property
    def step(self) -> int:
        """How many steps were taken, all of the run."""
        return self._begun + int(self.state.global_step)

    @step.setter
    def step(self, taken: int) -> None:
        self._begun, self.state.global_step = taken, 0

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LambdaLR:  # noqa: ARG002
        """Let the learning rate follow the settings, from the next step on."""
        rate, begun = self.settings.grpo.rate, self._begun
        held = optimizer or self.policy_optimizer
        for options in held.param_groups:
            options["lr"] = options["initial_lr"] = rate
        self.lr_scheduler = LambdaLR(held, lambda more: self.settings.learning_rate_at(begun + more) / rate)
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Note TRL's figures as it does; report the step's metrics."""
        super().log(logs, start_time)
        if "grad_norm" in logs and self._callback is not None:
            self._callback(self.current.metrics(self.step, float(logs["grad_norm"]), self.settings))

    def _generate_and_score_completions(self, inputs: object) -> dict[str, Tensor]:  # noqa: ARG002 - they are blank
        """Return TRL's batch: of this process's share of the tasks, first rounds and second ones."""
        self.current = current = TrlStep()
        torch.manual_seed(
            (self.settings.seed * _SEED_STRIDE + self.step) * _SEED_STRIDE + self.accelerator.process_index
        )
        items = self.curriculum.draw(self.settings.grpo.tasks)
        share = len(items) // self.accelerator.num_processes
        questions = [PlanPrompt(item) for item in items[self.accelerator.process_index * share :][:share]]
        firsts, batch = self._rollout(questions, self.settings.grpo.group)
        seconds, more = self._rollout(self._second_rounds(firsts), self.settings.second_group)
        current.groups = [*firsts, *seconds]
        current.all_groups = gather_groups(self.processes, current.groups)
        self.curriculum.update(items, [one.right for one in current.all_groups if not one.second])
        current.compare(self.settings)
        rows = join_batches([batch, more] if seconds else [batch], self.args.gradient_accumulation_steps)
        current.set_advantages(rows, self.accelerator.process_index, self.accelerator.num_processes)
        return rows

    def _rollout(self, questions: Sequence[PlanPrompt], size: int) -> tuple[list[RolloutGroup], dict[str, Tensor]]:
        """Sample and perform in TRL's way; return groups of this size, and TRL's batch of them."""
        if not questions:
            return [], {}
        self.num_generations = self.rollouts.size = size
        columns = [{"prompt": self.chat(one), "question": one} for one in questions]
        rows = cast("list[dict[str, Tensor]]", [dict(one) for one in columns for _ in range(size)])  # and what is none
        with quiet_trl():
            batch: dict[str, Tensor] = super()._generate_and_score_completions(rows)
        self.processes.raise_first(self.rollouts.failure)
        return list(self.rollouts.groups(questions, batch)), batch

    def _generate_single_turn(self, *arguments: object, **options: object) -> tuple[list[list[int]], object]:
        """Sample as TRL does; TrainingDiverged where the weights give no probabilities any more."""
        try:
            found = super()._generate_single_turn(*arguments, **options)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if _NO_PROBABILITIES not in str(error):
                raise
            raise TrainingDiverged(f"step {self.step}: the next token's probabilities are no numbers") from None
        return cast("tuple[list[list[int]], object]", found)

    def _second_rounds(self, firsts: Sequence[RolloutGroup]) -> list[PlanPrompt]:
        """Return the second rounds; every process has as many, so some are repeated where others have more."""
        questions = second_round_prompts(firsts, self.settings, self.step)
        count = max_over_processes(self.processes, len(questions))
        return list(islice(cycle(questions or [group.question for group in firsts]), count))

    def chat(self, question: PlanPrompt) -> list[dict[str, str]]:
        """Return the chat that the model is shown for a question."""
        return question.chat(described=self.settings.model.described)

    def compute_loss(
        self,
        model: Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,  # noqa: ARG002 - TRL's signature
        num_items_in_batch: Tensor | int | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Return `grpo`'s loss of a part of the batch; TrainingDiverged where it is not finite."""
        mask = inputs["completion_mask"]
        logprobs, entropies, _ = self._get_per_token_logps_and_entropies(
            model,
            torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
            torch.cat([inputs["prompt_mask"], mask], dim=1),
            mask.size(1),
            compute_entropy=True,
        )
        loss = grpo_loss(
            logprobs,
            mask,
            inputs["advantages"],
            self.settings.grpo,
            old_logprobs=inputs.get("old_per_token_logps"),
            reference=inputs.get("ref_per_token_logps"),
            correction=inputs.get("importance_sampling_ratio"),
        )
        parts = float(self.current_gradient_accumulation_steps)
        entropy = (entropies.detach() * mask).sum() / mask.sum().clamp(min=1)
        terms = cast("Tensor", self.accelerator.reduce(torch.stack([loss.policy, loss.kl, entropy]) / parts, "mean"))
        if not bool(torch.isfinite(terms).all()):
            raise TrainingDiverged(f"step {self.step}: the loss is no number; the weights are those of the step before")
        self.current.terms += terms.cpu()
        return loss.total / parts

    def _get_grad_norm(self, model: Module, grad_norm: Tensor | float | None = None) -> Tensor | float:
        found: Tensor | float = super()._get_grad_norm(model, grad_norm)  # type: ignore[no-untyped-call]
        if not isfinite(float(found)):
            raise TrainingDiverged(
                f"step {self.step}: the gradient is no number; the weights are those of the step before"
            )
        return found

    @property
    def sharded(self) -> bool:
        """Whether weights and optimizer lie in pieces, one in each process."""
        return bool(self.is_fsdp_enabled or self.is_deepspeed_enabled)

    @property
    def policy_optimizer(self) -> Optimizer:
        """The optimizer; ConfigError where it is made when training begins."""
        if self.optimizer is None:
            raise ConfigError("FSDP and DeepSpeed make the optimizer when training begins: there is none yet")
        return self.optimizer

    def _send_telemetry(self) -> None:
        """Send nothing: whom we train for has not been asked."""


@dataclass(slots=True)
class TrlStep:
    """A step on its way through TRL; `terms` are policy loss, KL and entropy, added up over the parts of its batch.

    Every process computes the same from the same.
    """

    groups: Sequence[RolloutGroup] = ()  # this process's own
    all_groups: Sequence[GroupSummary] = ()  # of all processes
    advantages: Floats = field(default_factory=lambda: np.zeros(0))  # of all processes
    zero_variance: float = 0.0
    terms: Tensor = field(default_factory=lambda: torch.zeros(3))
    begun: float = field(default_factory=perf_counter)
    sampled: float = 0.0

    @property
    def kept(self) -> int:
        """How many completions there are to learn from."""
        return int(np.count_nonzero(self.advantages))

    def compare(self, settings: TrainSettings) -> None:
        """Compute the advantages of all processes' completions."""
        scored, second = [one.found for one in self.all_groups], [one.second for one in self.all_groups]
        tasks = [f"{one.rank} {one.task}" for one in self.all_groups]
        self.advantages, self.zero_variance = step_advantages(scored, second, tasks, settings)
        self.sampled = perf_counter()

    def set_advantages(self, rows: dict[str, Tensor], rank: int, processes: int) -> None:
        """Put the advantages of this process into its rows, as TRL's mean over all rows needs them.

        TRL takes the mean over a process's rows, and then over processes; ours is over completions that have an
        advantage, wherever they are. Rows after the last completion fill the batch up.
        """
        ranks = np.repeat([one.rank for one in self.all_groups], [len(one.found) for one in self.all_groups])
        own = np.zeros(len(rows["prompt_ids"]))
        own[: int((ranks == rank).sum())] = self.advantages[ranks == rank]
        share = len(own) * processes / max(1, self.kept)
        like = rows["advantages"]
        rows["advantages"] = torch.tensor(own * share, dtype=torch.float32, device=like.device)

    def metrics(self, number: int, gradient: float, settings: TrainSettings) -> StepMetrics:
        """Return the step's record; `number` steps were taken, this one included."""
        policy, kl, entropy = self.terms.tolist()
        firsts = [one.found for one in self.all_groups if not one.second]
        return StepMetrics(
            number=number,
            of=settings.grpo.steps,
            **rollout_metrics([each for group in firsts for each in group]),
            dollars=sum(each.dollars for one in self.all_groups for each in one.found),
            second_round=second_round_shares(
                [(one.at_hand, each) for one in self.all_groups if one.second for each in one.found]
            ),
            even=self.zero_variance,
            entropy=entropy,
            kl=kl,
            loss=policy,
            gradient=gradient,
            rate=settings.learning_rate_at(number - 1),
            tokens=sum(one.tokens for one in self.all_groups),
            seconds={"sample and perform": self.sampled - self.begun, "learn": perf_counter() - self.sampled},
            samples=tuple(group.sample() for group in self.groups[:SAMPLES_PER_STEP]),
        )


def grpo_config(settings: TrainSettings, processes: int) -> GRPOConfig:
    """Return TRL's arguments. ConfigError where a step's completions cannot be dealt out evenly."""
    table, more = settings.grpo, settings.trl
    if table.tasks % processes:
        raise ConfigError(f"grpo.tasks: expected a multiple of the {processes} processes, found {table.tasks}")
    each = table.tasks * table.group // processes
    if more.rows and each % more.rows:
        raise ConfigError(f"trl.rows: expected a divisor of the {each} completions of a step, found {more.rows}")
    rows = more.rows or each
    cuda = torch.cuda.is_available()
    return GRPOConfig(
        output_dir=tempfile.gettempdir(),  # has to be there; nothing is written to it
        max_steps=max(1, table.steps),
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=each // rows,
        num_generations=table.group,
        max_completion_length=table.longest,
        temperature=table.temperature,
        learning_rate=table.rate,
        optim="adamw_torch",
        weight_decay=0.0,
        adam_beta1=table.betas[0],
        adam_beta2=table.betas[1],
        max_grad_norm=MAX_GRAD_NORM,
        use_vllm=bool(more.vllm),
        vllm_mode=more.vllm or "colocate",
        vllm_server_base_url=more.server if more.vllm == "server" else None,
        bf16=settings.model.dtype == "bfloat16",
        **cast("dict[str, Any]", {_CHECKPOINTING: cuda}),
        disable_dropout=True,
        ddp_find_unused_parameters=False,
        use_cpu=not cuda,
        dataloader_pin_memory=cuda,
        shuffle_dataset=False,
        seed=settings.seed,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def lora_config(settings: TrainSettings) -> LoraConfig | None:
    """Return what LoRA adds to every linear layer but the last; None where all weights are trained."""
    rank = settings.model.lora
    if not rank:
        return None
    return LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")


def wrap_tokenizer(tokenizer: "Tokenizer", pad: int, end: int, template: str) -> PreTrainedTokenizerFast:
    """Return a bare tokenizer in TRL's form, with its pad and end tokens and its chat template."""
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=tokenizer.id_to_token(pad),
        eos_token=tokenizer.id_to_token(end),
        chat_template=template,
        padding_side="left",
    )


def _prepare_reference(trainer: GRPOTrainer, reference: "PreTrainedModel | None") -> "PreTrainedModel | None":
    """Return a model that TRL can estimate the KL from; None with adapters, which TRL switches off instead."""
    if reference is None or isinstance(trainer.model, PeftModel):
        return None
    add_fused_lm_head(reference, temperature=trainer.temperature)
    if trainer.is_deepspeed_enabled:
        found: object = prepare_deepspeed(reference, trainer.accelerator)
    elif trainer.is_fsdp_enabled:
        found = prepare_fsdp(reference, trainer.accelerator)
    else:
        found = trainer.accelerator.prepare_model(reference, evaluation_mode=True)
    return cast("PreTrainedModel", found)


@contextmanager
def quiet_trl() -> Iterator[None]:
    """Suppress TRL's warnings of what is meant, or cannot be changed here."""
    logger = logging.getLogger(GRPOTrainer.__module__)

    def is_shown(record: logging.LogRecord) -> bool:
        return _UNSCORED_MESSAGE not in str(record.msg)

    logger.addFilter(is_shown)
    try:
        with warnings.catch_warnings():
            for beginning, kind in _IGNORED_WARNINGS:
                warnings.filterwarnings("ignore", beginning, kind)
            yield
    finally:
        logger.removeFilter(is_shown)


def generate_greedy_plans(trainer: PlanGRPOTrainer, items: Sequence[TaskItem]) -> list[str]:
    """Return the likeliest plan for each item, as text; each process writes its share."""
    processes = trainer.processes
    # As many everywhere, or some would wait forever.
    each = -(-len(items) // processes.count)
    mine = [items[(processes.rank + place * processes.count) % len(items)] for place in range(each)]
    texts: list[str] = []
    with quiet_trl(), _greedy_decoding(trainer):
        for first in range(0, each, _PROMPTS_AT_ONCE):
            texts += _generate_plans(trainer, mine[first : first + _PROMPTS_AT_ONCE])
    gathered = [cast("list[str]", json.loads(text)) for text in processes.gather_texts(json.dumps(texts))]
    return [gathered[place % processes.count][place // processes.count] for place in range(len(items))]


def gather_weights(trainer: PlanGRPOTrainer) -> Mapping[str, Tensor] | None:
    """Return all weights, in the main process; None where they are not in pieces, or not yet."""
    if not trainer.sharded or trainer.optimizer is None:
        return None
    found = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    return cast("Mapping[str, Tensor]", found if trainer.processes.main else {})


def _generate_plans(trainer: PlanGRPOTrainer, items: Sequence[TaskItem]) -> list[str]:
    ids = trainer._tokenize_prompts([trainer.chat(PlanPrompt(item)) for item in items])[0]
    found, _ = trainer._generate_single_turn(ids, None, {}, 1)
    return [trainer.rollouts.text(each) for each in found]


@contextmanager
def _greedy_decoding(trainer: PlanGRPOTrainer) -> Iterator[None]:
    """Have TRL take the likeliest token."""
    if trainer.use_vllm:
        held = trainer.vllm_generation.temperature
        trainer.vllm_generation.temperature = 0.0
        try:
            yield
        finally:
            trainer.vllm_generation.temperature = held
        return
    config, given = trainer.generation_config, trainer.generation_kwargs
    kept = {name: value for name, value in given.items() if name not in _SAMPLING_OPTIONS}
    trainer.generation_kwargs = {**kept, "do_sample": False}
    options = {**trainer.generation_kwargs, "disable_compile": True}
    trainer.generation_config = GenerationConfig(**options)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        trainer.generation_config, trainer.generation_kwargs = config, given
