"""GRPO with TRL: its optimizer steps, processes, adapters, vLLM and losses; our tasks, rewards and advantages.

TRL goes from prompts to samples, rewards, advantages and the loss, and so do we, in the same places: a step draws its
tasks when it begins (a data loader would draw ahead, and the curriculum and checkpoints would be a step off), the one
async reward function performs every plan, second rounds are sampled and performed after the first ones and join their
batch, and advantages are `advantage`'s, over all processes. Models of Qwen2's layout are sampled by `rollout`, which
reads a prompt once for its group, unless weights lie in pieces or vLLM samples; small ones on a processor are also read
by `shared`, and their KL is exact; whatever else there is is TRL's to sample and to read. Invariants:
tokens and, from `rollout`, log-probabilities are the sampler's; what a worker spoilt has no advantage and is counted
as masked; a loss or gradient that is no number stops training before any weight is touched; what stops one process
while plans are performed stops all, after the same collective calls. Deliberately absent: TRL's checkpoints (it
pickles), progress bars, and its telemetry: nothing is sent anywhere.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle, islice
from math import isfinite
from typing import TYPE_CHECKING, cast

import torch
from datasets import Dataset
from peft import PeftModel
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedTokenizerFast, PrinterCallback
from trl.models.utils import prepare_deepspeed, prepare_fsdp
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from shikisha.errors import ConfigError, Diverged
from shikisha.train.arguments import adapters, arguments, known, sampled, wrapped
from shikisha.train.batch import Asked, Group
from shikisha.train.crew import our_crew
from shikisha.train.padded import Held, in_rows, joined, passed
from shikisha.train.play import Play
from shikisha.train.processes import everyones, mean_gradients, most
from shikisha.train.progress import Step
from shikisha.train.replay import Replay
from shikisha.train.rollout import sample, scores
from shikisha.train.scoring import Scorer
from shikisha.train.settings import TrainSettings
from shikisha.train.source import Source
from shikisha.train.taking import Taking

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, Qwen2ForCausalLM

Likely = tuple[Tensor, Tensor | None, Tensor | None]
"""Of rows: log-probabilities and entropies of their tokens, and a loss that only mixtures of experts have."""

_STEPS = 1_000_003  # TRL samples and shuffles with dice that its data loaders roll too: each step has its own
_NOT_SCORED = "All reward functions returned None"  # such completions are masked and counted; it shows all of a task
_LEFT_OUT: tuple[tuple[str, type[Warning]], ...] = (
    ("`[a-z_]*gradient_checkpointing[a-z_]*` is deprecated", FutureWarning),  # TRL asks transformers by the old name
)


class Trainer(GRPOTrainer):
    """A policy, what it learns from, and the state of its training: what `reference.Loop` is, on TRL."""

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "Tokenizer | PreTrainedTokenizerFast",
        source: Source,
        scorer: Scorer,
        settings: TrainSettings,
        reference: "PreTrainedModel | None" = None,
    ) -> None:
        table, pad, end = settings.grpo, model.config.pad_token_id, model.config.eos_token_id
        if table.kl and reference is None and not settings.model.lora:
            raise ConfigError("grpo.kl: a divergence needs the model that training began with")
        chats = tokenizer if isinstance(tokenizer, PreTrainedTokenizerFast) else wrapped(tokenizer, pad, end)
        bare = tokenizer.backend_tokenizer if isinstance(tokenizer, PreTrainedTokenizerFast) else tokenizer
        self.source, self.settings, self.taking, self.crew = source, settings, Taking(), our_crew()
        self.play, self.own, self._begun = Play(bare, chats.eos_token_id, scorer, settings), known(model, settings), 0
        with quiet():
            super().__init__(
                model=model,
                reward_funcs=cast("Callable[..., list[float | None]]", self.play.perform),  # TRL takes async ones
                args=arguments(settings, self.crew.count, self.own),
                train_dataset=Dataset.from_dict({"prompt": [""] * table.tasks * max(1, table.steps)}),
                processing_class=chats,
                peft_config=adapters(settings),
            )
        if sampled(model, settings) and not self.sharded:
            self.rollout_func = self._sampled
        self.replay: Replay | None = None
        self.remove_callback(PrinterCallback)
        self.generator = torch.Generator().manual_seed(settings.seed + self.accelerator.process_index)
        self._held = _before(self.model, reference, table.temperature) if table.kl and self.own else None
        if table.kl and not self.own:
            self.beta, self.ref_model = table.kl, _prepared(self, reference)
        if not self.sharded:
            self.create_optimizer()  # now, so that its state can be put back
        elif settings.model.lora:
            raise ConfigError("model.lora: adapters are trained with DDP: expected no FSDP and no DeepSpeed")

    def run(self, watch: Callable[[Step], object] | None = None) -> None:
        """Take what is left of the steps; tell `watch` of each when it is taken.

        Diverged where the loss or a gradient is no number: the weights are those of the step before.
        """
        left = self.settings.grpo.steps - self.step
        if left > 0:
            self._begun, self._watch, self.args.max_steps = self.step, watch, left
            self.state.global_step = 0
            with quiet():
                self.train()
            self._policy.train(mode=False)

    @property
    def step(self) -> int:
        """How many steps were taken, all of the run."""
        return self._begun + int(self.state.global_step)

    @step.setter
    def step(self, taken: int) -> None:
        self._begun, self.state.global_step = taken, 0

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LambdaLR:  # noqa: ARG002
        """Let the rate follow the settings, from the step that is next."""
        rate, begun = self.settings.grpo.rate, self._begun
        held = optimizer or self.moving
        for options in held.param_groups:
            options["lr"] = options["initial_lr"] = rate
        self.lr_scheduler = LambdaLR(held, lambda more: self.settings.rate_at(begun + more) / rate)
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def training_step(self, model: Module, inputs: object, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """Add a part of the step's gradient; over all processes, where our own pass goes around TRL's wrapping."""
        found: Tensor = super().training_step(model, inputs, num_items_in_batch)  # type: ignore[no-untyped-call]
        if self.own and self.taking.kept and self.accelerator.sync_gradients and self.accelerator.num_processes > 1:
            mean_gradients(self.accelerator, self._policy.parameters())
        return found

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Note TRL's figures as it does; tell whoever watches of the step."""
        super().log(logs, start_time)
        if "grad_norm" in logs and self._watch is not None:
            told = self.taking.told(self.step, float(logs["grad_norm"]), self.settings)
            self._watch(told if self.replay is None else replace(told, replay=self.replay.last))

    def _generate_and_score_completions(self, inputs: object) -> dict[str, Tensor]:  # noqa: ARG002 - they are blank
        """Return TRL's batch: of this process's share of the tasks, first rounds and second ones."""
        self.taking = taking = Taking()
        torch.manual_seed((self.settings.seed * _STEPS + self.step) * _STEPS + self.accelerator.process_index)
        items = self.source.draw(self.settings.grpo.tasks)
        mine = len(items) // self.accelerator.num_processes
        self.play.at(self.step)
        asked = [Asked(item) for item in items[self.accelerator.process_index * mine :][:mine]]
        firsts, batch = self._played(asked, self.settings.grpo.group)
        seconds, more = self._played(self._second(firsts), self.play.second_size)
        taking.groups = [*firsts, *seconds]
        taking.heard = everyones(self.crew, taking.groups)
        self.source.told(items, [one.right for one in taking.heard if not one.second])
        taking.compare(self.settings, self.step)
        rows = joined([batch, more] if seconds else [batch], self.args.gradient_accumulation_steps)
        taking.weigh(rows, self.accelerator.process_index, self.accelerator.num_processes)
        if self.own:
            rows["old_per_token_logps"] = rows["sampling_per_token_logps"]
        return rows

    def _played(self, asked: Sequence[Asked], size: int) -> tuple[list[Group], dict[str, Tensor]]:
        """Sample and perform in TRL's way; return groups of this size, and TRL's batch of them."""
        if not asked:
            return [], {}
        self.num_generations = self.play.size = size
        shown = [{"prompt": self.play.prompt(one), "asked": one} for one in asked]
        rows = cast("list[dict[str, Tensor]]", [dict(one) for one in shown for _ in range(size)])  # and what is none
        with quiet():
            batch: dict[str, Tensor] = super()._generate_and_score_completions(rows)
        self.crew.agree(self.play.failure)
        return list(self.play.groups(asked, batch)), batch

    def _second(self, firsts: Sequence[Group]) -> list[Asked]:
        """Return the second rounds; every process has as many, so some come up again where others have more."""
        asked = self.play.seconds(firsts, self.step)
        return list(islice(cycle(asked or [group.asked for group in firsts]), most(self.crew, len(asked))))

    def _sampled(self, prompts: list[str], _: GRPOTrainer) -> dict[str, Sequence[object]]:
        """Sample as TRL wants it: a completion for each of the prompts, which come in groups."""
        size = self.play.size
        ids, *_others = self._tokenize_prompts(prompts[::size])
        drawn = sample(self._policy, ids, size, self.settings.grpo.longest, self.generator, self.play.drawing)
        return in_rows(ids, drawn)

    def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, dict[str, Tensor]]:
        if self.settings.model.brief:
            return [self.play.encoded(prompt) for prompt in prompts], None, {}
        found: tuple[list[list[int]], None, dict[str, Tensor]] = super()._tokenize_prompts(prompts)
        return found

    def _compute_loss(self, model: Module, inputs: dict[str, Tensor]) -> Tensor:
        """Return TRL's loss, with our KL and entropy after our own pass; Diverged where it is no number."""
        if self.own and not self.taking.kept:
            return torch.zeros((), requires_grad=True)  # no gradient, so no weight moves
        table, parts = self.settings.grpo, float(self.current_gradient_accumulation_steps)
        if self.own:
            self._pass = passed(self._policy, inputs, table.temperature, self._held)
        total: Tensor = super()._compute_loss(model, inputs)  # type: ignore[no-untyped-call]
        terms = self._terms(total.detach(), parts)
        if self.own:
            total = total + table.kl * self._pass.kl / parts
            if float(terms[2]) * parts < table.entropy_floor:
                total = total - table.entropy * self._pass.entropy / parts
        if self.replay is not None and not self.taking.replayed:  # with the first part of the batch
            self.taking.replayed, total = True, total + self.replay.loss(self._policy, self.step)
        if not bool(torch.isfinite(terms).all()):
            raise Diverged(f"step {self.step}: the loss is no number; the weights are those of the step before")
        self.taking.terms += terms.cpu()
        return total

    def _terms(self, policy: Tensor, parts: float) -> Tensor:
        """Return [3]: what this part of the batch adds to policy loss, KL and entropy, over all processes."""
        if self.own:
            kl, entropy = self._pass.kl.detach(), self._pass.entropy.detach()
        else:
            noted = self._metrics["train"]
            kl, entropy = (policy.new_tensor(noted[name][-1] if noted.get(name) else 0.0) for name in ("kl", "entropy"))
        found: Tensor = self.accelerator.reduce(torch.stack([policy, kl / parts, entropy / parts]), reduction="mean")
        return found

    def _get_per_token_logps_and_entropies(self, model: Module, *given: object, **more: object) -> Likely:
        if self.own:
            return self._pass.logprobs, torch.zeros_like(self._pass.logprobs), None
        return cast("Likely", super()._get_per_token_logps_and_entropies(model, *given, **more))

    def _get_grad_norm(self, model: Module, grad_norm: Tensor | float | None = None) -> Tensor | float:
        found: Tensor | float = super()._get_grad_norm(model, grad_norm)  # type: ignore[no-untyped-call]
        if not isfinite(float(found)):
            raise Diverged(f"step {self.step}: the gradient is no number; the weights are those of the step before")
        return found

    @property
    def sharded(self) -> bool:
        """Whether weights and optimizer lie in pieces, one in each process."""
        return bool(self.is_fsdp_enabled or self.is_deepspeed_enabled)

    @property
    def moving(self) -> Optimizer:
        """The optimizer; ConfigError where it is made when training begins."""
        if self.optimizer is None:
            raise ConfigError("FSDP and DeepSpeed make the optimizer when training begins: there is none yet")
        return self.optimizer

    def _send_telemetry(self) -> None:
        """Send nothing: whom we train for has not been asked."""

    @property
    def _policy(self) -> "Qwen2ForCausalLM":
        """The bare model, adapters in their places."""
        return cast(
            "Qwen2ForCausalLM", self.model.get_base_model() if isinstance(self.model, PeftModel) else self.model
        )


def _before(model: Module | None, reference: "PreTrainedModel | None", temperature: float) -> Held:
    """Return what the model that training began with makes of completions."""

    def held(prompts: Sequence[Sequence[int]], tokens: Tensor, real: Tensor) -> Tensor:
        if isinstance(model, PeftModel):
            with model.disable_adapter():
                return scores(cast("Qwen2ForCausalLM", model.get_base_model()), prompts, tokens, temperature, real)
        return scores(cast("Qwen2ForCausalLM", reference), prompts, tokens, temperature, real)

    return held


def _prepared(trainer: GRPOTrainer, reference: "PreTrainedModel | None") -> "PreTrainedModel | None":
    """Return a model that TRL can estimate divergences from; with adapters (None), TRL leaves those out instead."""
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
def quiet() -> Iterator[None]:
    """Leave out what TRL warns of and nobody here can change, or means as it is."""
    noted = logging.getLogger(GRPOTrainer.__module__)

    def told(record: logging.LogRecord) -> bool:
        return _NOT_SCORED not in str(record.msg)

    noted.addFilter(told)
    try:
        with warnings.catch_warnings():
            for beginning, kind in _LEFT_OUT:
                warnings.filterwarnings("ignore", beginning, kind)
            yield
    finally:
        noted.removeFilter(told)
