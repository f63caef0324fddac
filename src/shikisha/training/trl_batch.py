"""Between TRL and our groups: prompts and rewards in TRL's form, its rows of tokens, what processes tell each other.

TRL's rows are a prompt, padded on the left, and a completion, padded on the right. Invariants: equal rows are read by
the model once, rows without weight not at all, and the numbers are those of reading each; what has no reward is None,
never a number; every process hears the same groups in the same order, as JSON (nothing is pickled), so all compute the
same advantages.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Protocol, cast

import torch
import torch.nn.functional as F  # noqa: N812 - the name that torch's documentation uses
from torch import Tensor

from shikisha.core.errors import ConfigError, ShikishaError
from shikisha.core.prompts import PromptStyle, planner_instructions, planner_message
from shikisha.training.grpo import GRPOLoss, clipped_surrogate, exact_kl, token_entropy
from shikisha.training.plan_reward import PlanScorer, ScoredPlan
from shikisha.training.process_group import ProcessGroup, current_process_group, first_error
from shikisha.training.rollout import (
    Completions,
    PlanPrompt,
    RolloutGroup,
    SamplingParams,
    exploration_at,
    plant_completions,
    second_round_prompts,
)
from shikisha.training.settings import TrainSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import Qwen2ForCausalLM

ChatMessages = list[dict[str, str]]
ReferenceLogprobs = Callable[[Sequence[Sequence[int]], Tensor, Tensor], Tensor]
"""(prompts, tokens [B, G, C], mask [B, G, C]) → the reference model's log-probabilities [B, G, C, V]."""

TrlRows = Mapping[str, Tensor]
"""TRL's names: prompt_ids and prompt_mask [N, P], completion_ids and completion_mask [N, C], more of [N, C] or [N]."""


class PlanRewardFunction:
    """The reward function that TRL calls: performs the plans that were sampled, each so many `times`.

    `completions`, `scored` and `failure` are of the last call, by group of `size`; `end` is the token that ends a
    completion, `sampling` how the step's tokens are drawn; `event_loop` is where plans are performed (None: in the
    caller's).
    """

    def __init__(self, tokenizer: "Tokenizer", end: int, scorer: PlanScorer, settings: TrainSettings) -> None:
        self._tokenizer, self.end, self._scorer, self._settings = tokenizer, end, scorer, settings
        self.event_loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self.size, self.times = settings.grpo.group, 1
        self.sampling = SamplingParams(settings.grpo.temperature, end)
        self.completions: list[list[str]] = []
        self.scored: list[list[ScoredPlan]] = []
        self.failure: BaseException | None = None
        self._work: Future[list[list[ScoredPlan]]] | None = None

    def begin(self, event_loop: asyncio.AbstractEventLoop) -> None:
        """Perform in this event loop from now on."""
        self.event_loop, self._stopped = event_loop, False

    def at(self, step: int) -> None:
        """Use the exploration, the number of performances and the price of this step."""
        explore = exploration_at(self._settings, self._tokenizer, step)
        self.sampling = SamplingParams(self._settings.grpo.temperature, self.end, explore)
        self.times = self._settings.performances_at(step)
        self._scorer.dollar_weight = self._settings.dollar_weight_at(step)

    def prompt(self, question: PlanPrompt) -> str | ChatMessages:
        """Return what the model is shown: the compact prompt, or a chat."""
        if self._settings.model.brief:
            return question.text(self._tokenizer)
        if question.item.pool is None:
            raise ConfigError(f"task {question.item.task.id}: no pool to plan for")
        style = PromptStyle(described=self._settings.model.described)
        user = planner_message(question.item.task, question.item.pool.cards, question.rounds, style)
        return [{"role": "system", "content": planner_instructions(style=style)}, {"role": "user", "content": user}]

    async def perform(
        self, completion_ids: Sequence[Sequence[int]], question: Sequence[PlanPrompt], **_: object
    ) -> list[float | None]:
        """Return the reward of each completion: the reward function, as TRL calls it.

        With several processes a failure is kept until all have finished this call: raised here, it would leave the
        others waiting in TRL's next collective operation.
        """
        self.failure = None
        try:
            return await self._rewards(completion_ids, question)
        except (ShikishaError, ExceptionGroup, asyncio.CancelledError) as error:
            failure = first_error(error) if isinstance(error, ExceptionGroup) else error
            if current_process_group().count == 1 or not isinstance(failure, ShikishaError | asyncio.CancelledError):
                raise
            self.failure = failure
            return [None] * len(completion_ids)

    async def _rewards(
        self, completion_ids: Sequence[Sequence[int]], questions: Sequence[PlanPrompt]
    ) -> list[float | None]:
        texts = [self.text(ids) for ids in completion_ids]
        starts = range(0, len(texts), self.size)
        self.completions = [texts[start : start + self.size] for start in starts]
        asked = [questions[start] for start in starts]
        work = self._scorer.scores(
            self.completions, [one.item for one in asked], [one.texts for one in asked], self.times
        )
        if self.event_loop is None:
            self.scored = await work
        else:
            self._work = asyncio.run_coroutine_threadsafe(work, self.event_loop)
            if self._stopped:  # while it was handed over
                self._work.cancel()
            self.scored = await asyncio.wrap_future(self._work)
        return [one.total for group in self.scored for one in group]

    def stop(self) -> None:
        """Perform nothing more, from any thread: the reward function is cancelled, now or when it is called."""
        self._stopped = True
        if self._work is not None:
            self._work.cancel()

    def second_rounds(self, firsts: Sequence[RolloutGroup], step: int) -> list[PlanPrompt]:
        """Return the second rounds that follow these first ones; they are sampled without exploration."""
        self.sampling = replace(self.sampling, explore=None)
        return second_round_prompts(firsts, self._settings, step)

    def groups(self, questions: Sequence[PlanPrompt], rows: TrlRows) -> Iterator[RolloutGroup]:
        """Yield the groups of the last call, with the tokens of TRL's batch of it."""
        prompts = unpad(rows["prompt_ids"], rows["prompt_mask"])[:: self.size]
        tokens, mask = rows["completion_ids"].cpu(), rows["completion_mask"].bool().cpu()
        logprobs = rows.get("sampling_per_token_logps", torch.zeros(tokens.shape)).cpu()
        shape = (len(questions), self.size, -1)
        parts = [each.view(shape) for each in (tokens, mask, logprobs)]
        for place, (question, prompt) in enumerate(zip(questions, prompts, strict=True)):
            texts, scored = tuple(self.completions[place]), tuple(self.scored[place])
            yield RolloutGroup(question, prompt, parts[0][place], parts[1][place], parts[2][place], texts, scored)

    def text(self, ids: Sequence[int]) -> str:
        """Return what a completion's tokens say."""
        kept = [token for token in ids if token != self.end]
        text: str = self._tokenizer.decode(kept, skip_special_tokens=not self._settings.model.brief)
        return text


@dataclass(frozen=True, slots=True)
class UniqueRows:
    """The different prompts [B], their different completions `tokens` with their `mask` [B, G, C].

    `prompt` and `completion` [N] say where each row is among them.
    """

    prompts: list[list[int]]
    tokens: Tensor
    mask: Tensor
    prompt: Tensor
    completion: Tensor

    def expand(self, values: Tensor) -> Tensor:
        """Return the values [B, G, ...] of each row [N, ...]."""
        return values[self.prompt, self.completion]


def rows_loss(
    model: "Qwen2ForCausalLM",
    rows: TrlRows,
    settings: TrainSettings,
    reference: ReferenceLogprobs | None,
) -> GRPOLoss:
    """Return GRPO's loss (`grpo`) of rows that have `weights` [N], `advantages` [N] and `old_per_token_logps` [N, C].

    A mean over all rows, of which those that weigh nothing are not read.
    """
    table, size = settings.grpo, len(rows["weights"])
    counted = rows["weights"].nonzero()[:, 0]
    if not len(counted):
        return GRPOLoss(torch.zeros((), requires_grad=True), torch.zeros(()), torch.zeros(()))
    kept = {name: each[counted] for name, each in rows.items() if each.dim()}
    unique = deduplicate_rows(kept)
    trees = plant_completions(unique.prompts, unique.tokens, unique.mask)
    logprobs = trees.logprobs(model, table.temperature)
    mask = kept["completion_mask"]

    def mean(values: Tensor, weights: Tensor) -> Tensor:
        each = (values * mask).sum(-1) / mask.sum(-1).clamp(min=1)
        return (each * weights).sum() / size

    kl = torch.zeros(())
    if reference is not None:
        with torch.no_grad():
            held = reference(unique.prompts, unique.tokens, unique.mask)
        kl = mean(unique.expand(trees.expand(exact_kl(logprobs, trees.collapse(held)))), kept["weights"])
    policy = clipped_surrogate(
        unique.expand(trees.token_logprobs(logprobs)),
        kept["old_per_token_logps"],
        kept["advantages"],
        table.clip,
        table.clip_high,
    )
    entropy = mean(unique.expand(trees.expand(token_entropy(logprobs))), kept["weights"])
    return GRPOLoss(mean(policy, torch.ones_like(kept["weights"])), kl, entropy)


def to_trl_rows(prompts: Sequence[list[int]], drawn: Completions) -> dict[str, Sequence[object]]:
    """Return samples as TRL's `rollout_func` returns them: lists, a row for each completion, without padding."""
    lengths = drawn.mask.sum(-1).flatten().tolist()
    tokens, logprobs = drawn.tokens.flatten(0, 1).tolist(), drawn.logprobs.flatten(0, 1).tolist()
    return {
        "prompt_ids": [prompt for prompt in prompts for _ in range(drawn.tokens.shape[1])],
        "completion_ids": [row[:length] for row, length in zip(tokens, lengths, strict=True)],
        "logprobs": [row[:length] for row, length in zip(logprobs, lengths, strict=True)],
    }


def deduplicate_rows(rows: TrlRows) -> UniqueRows:
    """Return rows as prompts with the different completions of each."""
    prompts: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
    numbers: dict[tuple[int, ...], int] = {}
    places: list[tuple[int, int, int]] = []
    given, written = (unpad(rows[f"{each}_ids"], rows[f"{each}_mask"]) for each in ("prompt", "completion"))
    for row, (prompt, completion) in enumerate(zip(map(tuple, given), map(tuple, written), strict=True)):
        known = prompts.setdefault(prompt, {})
        number = numbers.setdefault(prompt, len(numbers))
        places.append((number, known.setdefault(completion, len(known)), row))
    which = torch.full((len(prompts), max(map(len, prompts.values()))), -1)
    for number, place, row in places:
        which[number, place] = row
    mask = rows["completion_mask"][which].float() * (which >= 0)[..., None]
    at = torch.tensor(places)
    return UniqueRows(list(map(list, prompts)), rows["completion_ids"][which], mask, at[:, 0], at[:, 1])


def unpad(tokens: Tensor, mask: Tensor) -> list[list[int]]:
    """Return each row's tokens without padding."""
    rows = zip(tokens.tolist(), mask.tolist(), strict=True)
    return [[token for token, real in zip(row, reals, strict=True) if real] for row, reals in rows]


def join_batches(batches: Sequence[TrlRows], multiple: int) -> dict[str, Tensor]:
    """Return batches as one; copies of its last row fill it up to a multiple."""
    more = -sum(len(batch["prompt_ids"]) for batch in batches) % multiple
    joined: dict[str, Tensor] = {}
    for name, first in batches[0].items():
        parts = [batch[name] for batch in batches]
        if first.dim() == 0:
            joined[name] = torch.stack(parts).sum()
            continue
        if first.dim() > 1:
            parts = _pad_to_longest(parts, left=name.startswith("prompt"))
        joined[name] = torch.cat([*parts, parts[-1][-1:].expand(more, *parts[-1].shape[1:])])
    return joined


def _pad_to_longest(parts: Sequence[Tensor], left: bool) -> list[Tensor]:
    """Return parts [., T] padded to the same T; what is masked may hold anything."""
    longest = max(part.shape[1] for part in parts)
    missing = [longest - part.shape[1] for part in parts]
    return [F.pad(part, (lack, 0) if left else (0, lack)) for part, lack in zip(parts, missing, strict=True)]


class Reducer(Protocol):
    """What `accelerate.Accelerator` does between processes."""

    def reduce(self, tensor: Tensor, reduction: str = "sum") -> Tensor:
        """Return the sum or mean over processes."""
        ...


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """What all processes must know of a group; workers' answers stay in the process that asked them.

    `rank` is whose it is, `second` whether it is a second round, `at_hand` whether the answer at hand was right.
    """

    rank: int
    second: bool
    at_hand: bool
    found: tuple[ScoredPlan, ...]
    tokens: int
    task: str = ""

    @property
    def right(self) -> float:
        """The share of right answers."""
        return sum(one.right for one in self.found) / len(self.found)


def gather_groups(processes: ProcessGroup, groups: Sequence[RolloutGroup]) -> list[GroupSummary]:
    """Return the groups of all processes, by rank."""
    if processes.count == 1:
        return [_summarize_group(group, group.scored) for group in groups]
    facts = [
        {**asdict(_summarize_group(group, ())), "found": [_encode_scored(one) for one in group.scored]}
        for group in groups
    ]
    return [
        GroupSummary(**{**fact, "rank": rank, "found": tuple(map(_decode_scored, fact["found"]))})
        for rank, text in enumerate(processes.gather_texts(json.dumps(facts)))
        for fact in json.loads(text)
    ]


def max_over_processes(processes: ProcessGroup, count: int) -> int:
    """Return the largest of the processes' numbers."""
    return max(int(each) for each in processes.gather_texts(str(count)))


def average_gradients(reducer: Reducer, parameters: Iterable[torch.nn.Parameter]) -> None:
    """Replace gradients by their means over the processes; a process without a gradient counts as zero."""
    trained = [each for each in parameters if each.requires_grad]
    flat = torch.cat([(torch.zeros_like(each) if each.grad is None else each.grad).flatten() for each in trained])
    means, start = reducer.reduce(flat, reduction="mean"), 0
    for each in trained:
        each.grad = means[start : start + each.numel()].view_as(each).clone()
        start += each.numel()


def _summarize_group(group: RolloutGroup, found: tuple[ScoredPlan, ...]) -> GroupSummary:
    question = group.question
    return GroupSummary(
        0, question.is_second, bool(question.right), found, int(group.mask.sum()), question.item.task.id
    )


def _encode_scored(one: ScoredPlan) -> dict[str, object]:
    """Return what can be told of it: all but its rounds."""
    told = {each.name: getattr(one, each.name) for each in fields(one) if each.name != "rounds"}
    return {**told, "parts": dict(one.parts)}


def _decode_scored(told: dict[str, object]) -> ScoredPlan:
    make = cast("Callable[..., ScoredPlan]", ScoredPlan)
    lists = {name: tuple(cast("list[object]", told[name])) for name in ("workers", "ranks")}
    return make(**{**told, **lists})
