"""A world in which training takes no time: whole plans are one token each, workers do what their names say."""

from collections.abc import Callable

from tokenizers import Tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM

from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.core.task import Task
from shikisha.engine.pool import Pool
from shikisha.evals.graders import GraderTools
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.evals.graders.grader_registry import build_grader
from shikisha.evals.reward import RewardWeights
from shikisha.evals.taskset import TaskItem
from shikisha.training.environment import TaskCurriculum
from shikisha.training.model_loader import Qwen2Size, new_qwen2
from shikisha.training.plan_reward import PlanScorer
from shikisha.training.settings import TrainSettings
from shikisha.training.sft_data import word_tokenizer
from support import member

PLANS = (
    Plan((Step("answer", 0),)),
    Plan((Step("answer", 1),)),
    Plan((Step("answer", 2),)),
    Plan((Step("answer", 1), Step("answer", 0, (0,)))),
    Plan(),
)
WORDS = ("ask", "how", "many", "plan", "did", "good", "bad", "answer", "nothing")
WINDOW = {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 0}
SIZE = Qwen2Size(layers=2, width=32, heads=2, inner=64, longest=96)


def tokenizer() -> Tokenizer:
    return word_tokenizer([" ".join(WORDS)] * 5, [f"\n{render_plan_lists(plan)}" for plan in PLANS])


def model(seed: int = 0) -> Qwen2ForCausalLM:
    return new_qwen2(tokenizer().get_vocab_size(), SIZE, seed)


def foreign(seed: int = 0) -> Qwen2ForCausalLM:
    """The same model, with a window of attention longer than any text: to us another layout, which TRL has to read."""
    like = model(seed)
    config = Qwen2Config(**{**like.config.to_dict(), "layer_types": None, **WINDOW})
    found = Qwen2ForCausalLM(config)
    found.load_state_dict(like.state_dict())
    return found


def items(faulty: bool = False) -> Callable[[int], TaskItem]:
    """Questions without end: worker 0 answers right, 1 wrong, 2 either (or fails, where one is to)."""

    def item(index: int) -> TaskItem:
        broken = WorkerError(FaultKind.SERVER, "away")
        pool = Pool(
            [
                member("good", str(index), attempts=1),
                member("bad", "-1", attempts=1),
                member("odd", broken if faulty else str(index if index % 2 else -1), attempts=1),
            ]
        )
        task = Task(f"how many {'how ' * (index % 3)}", id=f"task {index}")
        return TaskItem(
            task,
            build_grader(AnswerForm.NUMBER, {"answer": str(index)}, GraderTools(), "test"),
            f"{index % 2}",
            None,
            pool,
        )

    return item


def settings(**tables: object) -> TrainSettings:
    """Settings of a few small steps; `grpo` and other tables may say more."""
    given = {"steps": 3, "tasks": 4, "group": 8, "rate": 1e-2, "longest": 4, "warmup": 0.0, "schedule": "linear"}
    tables["grpo"] = {**given, **dict(tables.get("grpo", {}))}  # type: ignore[call-overload]
    return TrainSettings.model_validate({"model": {"brief": True}, **tables})


def source(faulty: bool = False, near_half: bool = True) -> TaskCurriculum:
    return TaskCurriculum(items(faulty), near_half=near_half)


def scorer() -> PlanScorer:
    return PlanScorer(RewardWeights())
