"""What takes all processes of a training by TRL at once: likeliest plans of a large model, its weights in one piece.

Invariants: every process calls these at the same place; nothing is drawn by lot, so no later sample changes.
Deliberately absent: small models of our own (`exam` asks them in one process), and what optimizers hold in pieces.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

from torch import Tensor
from transformers import GenerationConfig

from shikisha.taskset import Item
from shikisha.train.batch import Asked
from shikisha.train.trainer import Trainer, quiet

_AT_ONCE = 16  # prompts in each process
_BY_LOT = ("temperature", "top_p", "top_k", "min_p")


def likeliest(trainer: Trainer, items: Sequence[Item]) -> list[str]:
    """Return the likeliest plan for each item, as text; each process writes its share."""
    crew = trainer.crew
    each = -(-len(items) // crew.count)  # as many everywhere, or some would wait for ever
    mine = [items[(crew.rank + place * crew.count) % len(items)] for place in range(each)]
    texts: list[str] = []
    with quiet(), _surely(trainer):
        for first in range(0, each, _AT_ONCE):
            texts += _written(trainer, mine[first : first + _AT_ONCE])
    everyones = [cast("list[str]", json.loads(said)) for said in crew.texts(json.dumps(texts))]
    return [everyones[place % crew.count][place // crew.count] for place in range(len(items))]


def weights(trainer: Trainer) -> Mapping[str, Tensor] | None:
    """Return all weights, in the main process; None where they are not in pieces, or not yet."""
    if not trainer.sharded or trainer.optimizer is None:
        return None
    found = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    return cast("Mapping[str, Tensor]", found if trainer.crew.main else {})


def _written(trainer: Trainer, items: Sequence[Item]) -> list[str]:
    prompts = [trainer.play.prompt(Asked(item)) for item in items]
    ids, *_ = trainer._tokenize_prompts(cast("list[str]", prompts))  # or chats
    found, _ = trainer._generate_single_turn(ids, None, {}, 1)  # type: ignore[no-untyped-call]
    return [trainer.play.text(each) for each in found]


@contextmanager
def _surely(trainer: Trainer) -> Iterator[None]:
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
    kept = {name: value for name, value in given.items() if name not in _BY_LOT}
    trainer.generation_kwargs = {**kept, "do_sample": False}
    options = {**trainer.generation_kwargs, "disable_compile": True}
    trainer.generation_config = GenerationConfig(**options)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        trainer.generation_config, trainer.generation_kwargs = config, given
