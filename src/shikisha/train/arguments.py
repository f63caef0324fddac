"""What TRL is told of a run: its arguments, the adapters, the tokenizer as its kind wants it.

Invariant: whatever is not a run's own setting is fixed here, so that TRL trains what the plain loop trains: the same
optimizer, schedule, clipping and loss; it samples nothing in advance, saves nothing, draws no bars, reports nowhere.
Deliberately absent: where processes run (`accelerate launch` says that), and TRL's other algorithms.
"""

import tempfile
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM
from trl.trainer.grpo_config import GRPOConfig

from shikisha.errors import ConfigError
from shikisha.train.rollout import END, PAD
from shikisha.train.settings import TrainSettings

if TYPE_CHECKING:
    from peft import LoraConfig
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel

_LARGEST_GRADIENT = 1.0


def sampled(model: "PreTrainedModel", settings: TrainSettings) -> bool:
    """Return whether `rollout` can sample this model: Qwen2's layout, and nobody else is to do it."""
    config = model.config
    return (
        isinstance(model, Qwen2ForCausalLM)
        and config.sliding_window is None
        and not config.attention_dropout
        and not settings.trl.vllm
    )


def known(model: "PreTrainedModel", settings: TrainSettings) -> bool:
    """Return whether our own pass can read it too: a small one, on a processor, with our end.

    It holds every token's probability at every place, which a large vocabulary makes too much of.
    """
    ours = (model.config.pad_token_id, model.config.eos_token_id) == (PAD, END)
    return sampled(model, settings) and ours and not torch.cuda.is_available()


def arguments(settings: TrainSettings, processes: int, own: bool) -> GRPOConfig:
    """Return TRL's arguments; `own`: log-probabilities are ours, and so are KL and entropy.

    Elsewhere TRL estimates the KL from samples, and its entropy bonus goes by the step before. ConfigError where a
    step's completions cannot be dealt out evenly.
    """
    table, more = settings.grpo, settings.trl
    if table.tasks % processes:
        raise ConfigError(f"grpo.tasks: expected a multiple of the {processes} processes, found {table.tasks}")
    each = table.tasks * table.group // processes
    if more.rows and each % more.rows:
        raise ConfigError(f"trl.rows: expected a divisor of the {each} completions of a step, found {more.rows}")
    rows = more.rows or each
    cuda = torch.cuda.is_available()
    bonus = 0.0 if own else table.entropy
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
        max_grad_norm=_LARGEST_GRADIENT,
        loss_type="grpo",
        epsilon=table.clip,
        epsilon_high=table.clip_high,
        entropy_coef=bonus,
        use_adaptive_entropy=bool(bonus),  # a bonus only below the target, always of the same size
        entropy_coef_min=bonus,
        entropy_coef_max=bonus,
        entropy_coef_delta=0.0,
        entropy_target=table.entropy_floor,
        use_vllm=bool(more.vllm),
        vllm_mode=more.vllm or "colocate",
        vllm_server_base_url=more.server if more.vllm == "server" else None,
        bf16=settings.model.dtype == "bfloat16",
        activation_checkpointing=not own,
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


def adapters(settings: TrainSettings) -> "LoraConfig | None":
    """Return what LoRA adds to every linear layer but the last; None where all weights are trained."""
    from peft import LoraConfig

    rank = settings.model.lora
    if not rank:
        return None
    return LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")


def wrapped(tokenizer: "Tokenizer", pad: int, end: int, template: str = "") -> PreTrainedTokenizerFast:
    """Return a bare tokenizer as TRL knows them: with its padding and end tokens, and a chat template if there is one.

    It is for decoding and for chats. Bare texts are encoded by the bare tokenizer: this one would read the name of a
    special token in somebody's text as that token.
    """
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=tokenizer.id_to_token(pad),
        eos_token=tokenizer.id_to_token(end),
        chat_template=template or None,
        padding_side="left",
    )
