"""What tests of training share: a model of a few thousand weights that reads chats and writes plans, and a ground.

The tokenizer is byte-level, and whole plans are one token each, most of its vocabulary: a model which has learned
nothing yet writes many. The chat template shows the last turn alone, so that prompts are short.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from shikisha.core.budget import Price
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.core.task import Task
from shikisha.engine.pool import Pool
from shikisha.evals.graders.text_match import TextGrader
from shikisha.evals.taskset import TaskItem
from shikisha_train.checkpoint import TOKENIZER, save_model
from shikisha_train.environment import TrainingEnvironment, TrainingOrigin
from shikisha_train.model_loader import CHAT_TEMPLATE
from shikisha_train.settings import TrainSettings
from shikisha_train.trl import wrap_tokenizer
from support import member

TOKENS = {"pad_token_id": 0, "eos_token_id": 1}
TEMPLATE = "{{ messages[-1]['content'] }}\n"
CONTEXT = 700
_PHRASES = 150
_WORKERS = {"left": "left", "right": "right", "other": "neither"}


@cache
def _words() -> str:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=["[pad]", "[end]"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(["Question:\n| turn left or 1\n\nModels:\nModel 0 ($0.01 a call)\n| right\n" * 3], trainer)
    plans = [Plan((Step(f"say {number}", worker),)) for number in range(_PHRASES) for worker in range(3)]
    twos = [Plan((Step("say", one), Step("say", two, (0,)))) for one in range(3) for two in range(3)]
    made.add_tokens([AddedToken(render_plan_lists(plan), normalized=False) for plan in (*plans, *twos)])
    return made.to_str()


def words() -> Tokenizer:
    """The tokenizer."""
    return Tokenizer.from_str(_words())


def chat_words() -> PreTrainedTokenizerFast:
    """The tokenizer in TRL's form."""
    return wrap_tokenizer(words(), 0, 1, TEMPLATE)


def model(seed: int = 0, vocabulary: int | None = None) -> Qwen2ForCausalLM:
    """A model that has learned nothing."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = Qwen2Config(
            vocab_size=vocabulary or words().get_vocab_size(),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
        return Qwen2ForCausalLM(config)


def start(folder: Path, seed: int = 0) -> Path:
    """A folder with a model that has learned nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    save_model(model(seed), folder, TOKENS)
    words().save(str(folder / TOKENIZER))
    (folder / CHAT_TEMPLATE).write_text(TEMPLATE)
    return folder


def pool(*names: str, faulty: bool = False) -> Pool:
    """Workers of these names, who answer with what they are called; `other` fails where one is to."""
    chosen, broken = names or tuple(_WORKERS), WorkerError(FaultKind.SERVER, "away")
    return Pool(
        [
            member(
                name,
                broken if faulty and name == "other" else _WORKERS.get(name, name),
                price=Price(call=0.01),
                description=name,
                attempts=1,
            )
            for name in chosen
        ]
    )


def stream(index: int, faulty: bool = False) -> TaskItem:
    """A task that one of the workers has the answer to."""
    gold = ("left", "right")[index % 2]
    task = Task(f"turn {gold} or {index}", id=f"turn-{index}")
    return TaskItem(task, TextGrader((gold,)), f"to the {gold}", pool=pool(faulty=faulty))


def ground(judged: int = 4, learned: Callable[[int], TaskItem] = stream) -> TrainingEnvironment:
    """What is learned from here."""
    origin = TrainingOrigin("turns", {"learned from": "all"}, [{"name": name} for name in _WORKERS], simulated=True)
    tasks = tuple(stream(1000 + place) for place in range(judged))
    facts = {"taskset": "turns", "pool": "three"}
    return TrainingEnvironment(origin, facts, learned, largest=3, validation_tasks=tasks)


def settings(model: Path | str = "start", /, **tables: Mapping[str, object] | object) -> TrainSettings:
    """Settings of a short training; tables go over them."""
    given: dict[str, object] = {
        "model": {"start": str(model)},
        "tasks": {"set": "turns", "judged": 4, "every": 3},
        "grpo": {"steps": 6, "tasks": 2, "group": 8, "rate": 1e-3, "kl": 0.05, "longest": 2},
        "keep": {"every": 2, "last": 2},
    }
    for name, table in tables.items():
        known = given.get(name)
        given[name] = {**known, **table} if isinstance(known, dict) and isinstance(table, Mapping) else table
    return TrainSettings.model_validate(given)
