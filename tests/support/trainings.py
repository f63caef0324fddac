"""What tests of training share: a model of a few thousand weights that writes plans, and a ground for it.

A whole plan of one step or two is one token of it, so that a model which has learned nothing yet writes many.
"""

from collections.abc import Mapping
from pathlib import Path

from tokenizers import Tokenizer

from shikisha.core.budget import Price
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.core.task import Task
from shikisha.engine.pool import Pool
from shikisha.evals.graders.text_match import TextGrader
from shikisha.evals.taskset import TaskItem
from shikisha.simulation.task_generator import generate_tasks
from shikisha.simulation.vocabulary import WordingSplit as Wording
from shikisha.training.checkpoint import TOKENIZER, save_model
from shikisha.training.environment import TrainingEnvironment, TrainingOrigin
from shikisha.training.model_loader import Qwen2Size, new_qwen2
from shikisha.training.settings import TrainSettings
from shikisha.training.sft_data import plan_pieces, word_tokenizer
from support import member

PHRASE = "answer the question"
TOKENS = {"pad_token_id": 0, "eos_token_id": 1}
SIZE = Qwen2Size(layers=2, width=32, heads=2, inner=64, longest=400)
_WORKERS = {"left": "left", "right": "right", "other": "neither"}


def words(workers: int = 3) -> Tokenizer:
    """The tokenizer."""
    ones = [Plan((Step(PHRASE, worker),)) for worker in range(workers)]
    twos = [
        Plan((*first.steps, Step(PHRASE, second, access)))
        for first in ones
        for second in range(workers)
        for access in ((), (0,))
    ]
    whole = [render_plan_lists(plan) for plan in (*ones, *twos)]
    corpus = [one.task.prompt for one in generate_tasks(Wording.TRAIN, 5, count=20)] + [
        "ask given plan turn left or right"
    ]
    return word_tokenizer(corpus, [*whole, *plan_pieces([PHRASE])], least=1)


def start(folder: Path, seed: int = 0, tokenizer: Tokenizer | None = None) -> Path:
    """A folder with a model that has learned nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    used = tokenizer or words()
    save_model(new_qwen2(used.get_vocab_size(), SIZE, seed), folder, TOKENS)
    used.save(str(folder / TOKENIZER))
    return folder


def pool(*names: str) -> Pool:
    """Workers of these names, who answer with what they are called."""
    chosen = names or tuple(_WORKERS)
    return Pool([member(name, _WORKERS.get(name, name), price=Price(call=0.01), description=name) for name in chosen])


def stream(index: int) -> TaskItem:
    """A task that one of the workers has the answer to."""
    gold = ("left", "right")[index % 2]
    task = Task(f"turn {gold} or {index}", id=f"turn-{index}")
    return TaskItem(task, TextGrader((gold,)), f"to the {gold}", pool=pool())


def ground(judged: int = 4) -> TrainingEnvironment:
    """What is learned from here."""
    origin = TrainingOrigin("turns", {"learned from": "all"}, [{"name": name} for name in _WORKERS], simulated=True)
    tasks = tuple(stream(1000 + place) for place in range(judged))
    return TrainingEnvironment(origin, {"taskset": "turns", "pool": "three"}, stream, largest=3, validation_tasks=tasks)


def settings(model: Path, /, **tables: Mapping[str, object] | object) -> TrainSettings:
    """Settings of a short training by the plain loop; tables go over them."""
    given: dict[str, object] = {
        "backend": "plain",
        "model": {"start": str(model)},
        "tasks": {"judged": 4, "every": 3},
        "grpo": {"steps": 6, "tasks": 4, "group": 16, "rate": 1e-3, "kl": 0.05, "longest": 1},
        "keep": {"every": 2, "last": 2},
    }
    for name, table in tables.items():
        known = given.get(name)
        given[name] = {**known, **table} if isinstance(known, dict) and isinstance(table, Mapping) else table
    return TrainSettings.model_validate(given)
