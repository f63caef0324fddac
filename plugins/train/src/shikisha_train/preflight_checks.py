"""What a training run cannot start with, said before anything is paid for.

Invariant: whatever would spoil training later (a plan that cannot be written, a prompt that does not fit, money that
does not suffice for one group) is a ConfigError here that says where, what was expected and what was found.
Deliberately absent: what the settings' own types refuse.
"""

from collections.abc import Iterator
from importlib.util import find_spec

from shikisha.core.budget import Usage
from shikisha.core.call import Card
from shikisha.core.errors import ConfigError
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.evals.taskset import TaskItem
from shikisha_train.environment import TrainingEnvironment
from shikisha_train.model_loader import LoadedModel
from shikisha_train.settings import TrainSettings

_SUBTASK = "Answer the question."
# Where the cost of a call is estimated; tokens.
_BYTES_A_TOKEN, _INSTRUCTION_TOKENS, _UNLIMITED = 4, 50, 10**9


def refuse_settings(settings: TrainSettings) -> None:
    """Refuse settings that can be seen to fail without loading anything."""
    if settings.trl.vllm and find_spec("vllm") is None:
        raise ConfigError(
            f'trl.vllm: vLLM is not installed: pip install vllm, or expected "" (sampled without it), not '
            f"{settings.trl.vllm!r}"
        )
    if not settings.grpo.steps:
        raise ConfigError("grpo.steps: expected 1 or more, found 0: nothing would be learned")


def refuse_environment(settings: TrainSettings, environment: TrainingEnvironment) -> None:
    """Refuse tasks and pools from which nothing can be learned, and a budget too small for one group."""
    items = environment.preview()
    for item in items:
        count = 0 if item.pool is None else len(item.pool)
        if count < 2:
            raise ConfigError(
                f"tasks.pool: task {item.task.id} has a pool of {count}; expected two workers or more to choose from"
            )
    if settings.spend.dollars is not None:
        _refuse_small_budget(settings, environment, settings.spend.dollars, items)


def refuse_model(loaded: LoadedModel, settings: TrainSettings, environment: TrainingEnvironment) -> None:
    """Refuse a model that cannot read the prompts or write the plans."""
    start = settings.model.start
    if not loaded.template:
        raise ConfigError(f"model.start: {start} has no chat template: expected a model that reads chats")
    for name, token in (("end", loaded.end), ("pad", loaded.pad)):
        if token is None:
            raise ConfigError(f"model.start: {start} has no {name} token: expected one in its config.json")
    config, words = loaded.model.config, loaded.tokenizer.get_vocab_size()
    if words > config.vocab_size:
        raise ConfigError(
            f"model.start: {start}: its tokenizer has {words} tokens, and its model knows {config.vocab_size}"
        )
    tokenizer = loaded.tokenizer
    for plan in sample_plans(environment.largest, environment.caps.plan_steps):
        text = render_plan_lists(plan)
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        back = tokenizer.decode(ids, skip_special_tokens=False)
        if back != text:
            raise ConfigError(
                f"model.start: the tokenizer of {start} cannot write plans for a pool of {environment.largest}: "
                f"{text!r} decodes to {back!r}"
            )


def sample_plans(size: int, most: int) -> Iterator[Plan]:
    """Yield plans that name every worker of a pool of this size: alone, in chains, and each seeing all before it."""
    for worker in range(size):
        yield Plan((Step(_SUBTASK, worker),))
    for first in range(0, size, most):
        workers = [(first + place) % size for place in range(most)]
        yield Plan(tuple(Step(_SUBTASK, who, (at - 1,) if at else ()) for at, who in enumerate(workers)))
        yield Plan(tuple(Step(_SUBTASK, who, tuple(range(at))) for at, who in enumerate(workers)))


def _refuse_small_budget(
    settings: TrainSettings, environment: TrainingEnvironment, dollars: float, items: list[TaskItem]
) -> None:
    """Refuse a cap below what a group is likely to cost while the policy still chooses workers at random."""
    most, bound = environment.caps.plan_steps, environment.caps.dollars
    calls = [_call_cost(item, card) for item in items for card in (item.pool.cards if item.pool is not None else ())]
    call, steps = sum(calls) / len(calls), (1 + most) / 2
    each = steps * call if bound is None else min(steps * call, bound)
    need = settings.grpo.group * each
    if dollars < need:
        capped = f", a run at most ${bound:g} (budgets.dollars)" if bound == each else ""
        raise ConfigError(
            f"spend.dollars: ${dollars:g} are not likely to suffice for one group, at ${need:.3g}. Estimated from "
            f"prices and caps: {settings.grpo.group} plans (grpo.group) of {steps:g} steps (half of the {most} that a "
            f"plan may have), ${call:.3g} a step (all workers alike, answers of max_output_tokens){capped}"
        )


def _call_cost(item: TaskItem, card: Card) -> float:
    """Return the dollars of a call that answers at full length; it reads the task, an instruction and one result."""
    if card.price is None:
        raise ConfigError(f"spend.dollars: {card.name} has no price, so the cost of a call is unknown")
    read = len(f"{item.task.prompt}{item.task.context}".encode()) // _BYTES_A_TOKEN + _INSTRUCTION_TOKENS
    usage = Usage(min(read + card.max_output_tokens, card.context_tokens or _UNLIMITED), card.max_output_tokens)
    return card.price.of(usage)
