"""What a policy is asked and what its texts come to: prompts, plans performed as a reward function, second rounds.

Invariants: what has no reward is None, never a number; where other processes wait for this one, what fails is kept
until TRL has heard from all of them. Deliberately absent: models and advantages.

TRL's batches: rows of a prompt, padded on the left, and a completion, padded on the right; our own pass over them.

Invariants: rows of equal prompt and completion are read by the model once, rows that weigh nothing not at all, and the
numbers are those of reading each; what is joined or folded can be told apart again. Deliberately absent: rewards, and
TRL's own pass.

What the processes of one training tell each other: what their completions came to, and gradients.

Invariant: every process hears the same, in the same order, so that all compare with all and go on alike. Deliberately
absent: Python objects (they would be pickled), so what workers answered stays with the process that asked them.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Protocol, cast

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor

from shikisha.core.errors import ConfigError, ShikishaError
from shikisha.core.prompts import PromptStyle, planner_instructions, planner_message
from shikisha.training import grpo
from shikisha.training.grpo import PlanPrompt, RolloutGroup, second_round_prompts
from shikisha.training.plan_reward import PlanScorer, ScoredPlan
from shikisha.training.process_group import ProcessGroup, current_process_group, first_error
from shikisha.training.rollout import Completions, SamplingParams, exploration_at, plant_completions
from shikisha.training.settings import TrainSettings

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM

ReferenceLogprobs = Callable[[Sequence[Sequence[int]], Tensor, Tensor], Tensor]
"""What the reference makes of prompts and tokens [B, G, C], as far as they are real: log-probabilities [B, G, C, V]."""

TrlRows = Mapping[str, Tensor]
"""TRL's names: prompt_ids and prompt_mask [N, P], completion_ids and completion_mask [N, C], more of [N, C] or [N]."""


@dataclass(frozen=True, slots=True)
class UniqueRows:
    """The different prompts [B], their different completions `tokens`, as far as they are `real` [B, G, C].

    `prompt` and `completion` [N] say where each row is of them.
    """

    prompts: list[list[int]]
    tokens: Tensor
    mask: Tensor
    prompt: Tensor
    completion: Tensor

    def expand(self, values: Tensor) -> Tensor:
        """Return the values [B, G, ...] of each row [N, ...]."""
        return values[self.prompt, self.completion]


@dataclass(frozen=True, slots=True)
class RowLogprobs:
    """What a pass over rows has found: log-probabilities [N, C], and a batch's weighted means of KL and entropy."""

    logprobs: Tensor
    kl: Tensor
    entropy: Tensor


def forward_rows(
    model: "Qwen2ForCausalLM", rows: TrlRows, temperature: float, held: ReferenceLogprobs | None
) -> RowLogprobs:
    """Read rows that have `weights` [N] and `old_per_token_logps` [N, C] too; what weighs nothing keeps the latter."""
    old, counted = rows["old_per_token_logps"], rows["weights"].nonzero()[:, 0]
    if not len(counted):
        return RowLogprobs(old.clone().requires_grad_(), torch.zeros(()), torch.zeros(()))
    kept = {name: each[counted] for name, each in rows.items() if each.dim()}
    ones = deduplicate_rows(kept)
    tree = plant_completions(ones.prompts, ones.tokens, ones.mask)
    spread = tree.logprobs(model, temperature)

    def mean(values: Tensor) -> Tensor:
        real = kept["completion_mask"]
        each = (ones.expand(values) * real).sum(-1) / real.sum(-1).clamp(min=1)
        return (each * kept["weights"]).sum() / len(old)

    kl = torch.zeros(())
    if held is not None:
        with torch.no_grad():
            reference = held(ones.prompts, ones.tokens, ones.mask)
        kl = mean(tree.expand(grpo.exact_kl(spread, tree.collapse(reference))))
    found = ones.expand(tree.token_logprobs(spread))
    return RowLogprobs(old.index_copy(0, counted, found), kl, mean(tree.expand(grpo.token_entropy(spread))))


def to_trl_rows(prompts: Sequence[list[int]], drawn: Completions) -> dict[str, Sequence[object]]:
    """Return samples as TRL wants them: lists, a row for each completion, without padding."""
    lengths = drawn.mask.sum(-1).flatten().tolist()
    written, likely = drawn.tokens.flatten(0, 1).tolist(), drawn.logprobs.flatten(0, 1).tolist()
    return {
        "prompt_ids": [prompt for prompt in prompts for _ in range(drawn.tokens.shape[1])],
        "completion_ids": [row[:length] for row, length in zip(written, lengths, strict=True)],
        "logprobs": [row[:length] for row, length in zip(likely, lengths, strict=True)],
    }


def deduplicate_rows(rows: TrlRows) -> UniqueRows:
    """Return rows as prompts with the completions of each."""
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
    real = rows["completion_mask"][which].float() * (which >= 0)[..., None]
    at = torch.tensor(places)
    return UniqueRows(list(map(list, prompts)), rows["completion_ids"][which], real, at[:, 0], at[:, 1])


def unpad(tokens: Tensor, mask: Tensor) -> list[list[int]]:
    """Return each row's tokens without padding."""
    kept = zip(tokens.tolist(), mask.tolist(), strict=True)
    return [[token for token, real in zip(row, reals, strict=True) if real] for row, reals in kept]


def join_batches(batches: Sequence[TrlRows], multiple: int) -> dict[str, Tensor]:
    """Return batches as one; copies of its last row fill it up to a multiple."""
    more = -sum(len(batch["prompt_ids"]) for batch in batches) % multiple
    found: dict[str, Tensor] = {}
    for name, first in batches[0].items():
        parts = [batch[name] for batch in batches]
        if first.dim() == 0:
            found[name] = torch.stack(parts).sum()
            continue
        if first.dim() > 1:
            parts = _pad_to_longest(parts, left=name.startswith("prompt"))
        found[name] = torch.cat([*parts, parts[-1][-1:].expand(more, *parts[-1].shape[1:])])
    return found


def _pad_to_longest(parts: Sequence[Tensor], left: bool) -> list[Tensor]:
    """Return parts [., T] padded to the same T; what is masked may hold anything."""
    longest = max(part.shape[1] for part in parts)
    missing = [longest - part.shape[1] for part in parts]
    return [F.pad(part, (lack, 0) if left else (0, lack)) for part, lack in zip(parts, missing, strict=True)]


if TYPE_CHECKING:
    from tokenizers import Tokenizer

ChatMessages = list[dict[str, str]]


class PlanRewardFunction:
    """Performs what was sampled, each plan so many `times`.

    `texts`, `found` and `failure` are of the last call, by group of `size`; `end` is the token that ends a completion,
    `drawing` how the step's tokens are drawn; `home` is the event loop in which plans are performed (None: whichever
    calls).
    """

    def __init__(self, tokenizer: "Tokenizer", end: int, scorer: PlanScorer, settings: TrainSettings) -> None:
        self._words, self.end, self._scorer, self._settings = tokenizer, end, scorer, settings
        self.event_loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self.size, self.times = settings.grpo.group, 1
        self.sampling = SamplingParams(settings.grpo.temperature, end)
        self.completions: list[list[str]] = []
        self.scored: list[list[ScoredPlan]] = []
        self.failure: BaseException | None = None
        self._work: Future[list[list[ScoredPlan]]] | None = None

    def begin(self, home: asyncio.AbstractEventLoop) -> None:
        """Perform in this event loop from now on."""
        self.event_loop, self._stopped = home, False

    def at(self, step: int) -> None:
        """Draw and perform as this step of the run does: exploring as much, as often, and for the same price."""
        explored = exploration_at(self._settings, self._words, step)
        self.sampling = SamplingParams(self._settings.grpo.temperature, self.end, explored)
        self.times = self._settings.performances_at(step)
        self._scorer.dollar_weight = self._settings.dollar_weight_at(step)

    def prompt(self, asked: PlanPrompt) -> str | ChatMessages:
        """Return what the model is shown: the short briefing, or a chat."""
        if self._settings.model.brief:
            return asked.text()
        if asked.item.pool is None:
            raise ConfigError(f"task {asked.item.task.id}: no pool to plan for")
        style = PromptStyle(described=self._settings.model.described)
        shown = planner_message(asked.item.task, asked.item.pool.cards, asked.rounds, style)
        return [{"role": "system", "content": planner_instructions(style=style)}, {"role": "user", "content": shown}]

    def encoded(self, prompt: str) -> list[int]:
        """Return a prompt's tokens. What the bare tokenizer reads cannot spell a special token."""
        ids: list[int] = self._words.encode(prompt).ids
        return ids

    async def perform(
        self, completion_ids: Sequence[Sequence[int]], asked: Sequence[PlanPrompt], **_: object
    ) -> list[float | None]:
        """Return the reward of each completion: the reward function, as TRL calls it."""
        self.failure = None
        try:
            return await self._rewards(completion_ids, asked)
        except (ShikishaError, ExceptionGroup, asyncio.CancelledError) as error:
            failure = first_error(error) if isinstance(error, ExceptionGroup) else error
            if current_process_group().count == 1 or not isinstance(failure, ShikishaError | asyncio.CancelledError):
                raise
            self.failure = failure
            return [None] * len(completion_ids)

    async def _rewards(
        self, completion_ids: Sequence[Sequence[int]], asked: Sequence[PlanPrompt]
    ) -> list[float | None]:
        written = [self.text(ids) for ids in completion_ids]
        places = range(0, len(written), self.size)
        self.completions = [written[place : place + self.size] for place in places]
        ones = [asked[place] for place in places]
        items, before = [one.item for one in ones], [one.texts for one in ones]
        work = self._scorer.scores(self.completions, items, before, self.times)
        if self.event_loop is None:
            self.scored = await work
        else:
            self._work = asyncio.run_coroutine_threadsafe(work, self.event_loop)
            if self._stopped:  # while it was handed over
                self._work.cancel()
            self.scored = await asyncio.wrap_future(self._work)
        return [one.total for found in self.scored for one in found]

    def stop(self) -> None:
        """Perform nothing more, from any thread: the reward function is cancelled, now or when it is called."""
        self._stopped = True
        if self._work is not None:
            self._work.cancel()

    def second_rounds(self, firsts: Sequence[RolloutGroup], step: int) -> list[PlanPrompt]:
        """Return the second rounds that follow these first ones; nobody scouts in them."""
        self.sampling = replace(self.sampling, explore=None)
        table, steps = self._settings.second, self._settings.grpo.steps
        count = round(table.share * len(firsts)) if step >= table.begin * steps else 0
        scouts = self._settings.exploration_count_at(step)
        return [one for group in firsts[:count] for one in second_round_prompts(group, table.firsts, scouts)]

    def groups(self, asked: Sequence[PlanPrompt], batch: TrlRows) -> Iterator[RolloutGroup]:
        """Yield what was just performed, with the tokens of TRL's batch of it."""
        prompts = unpad(batch["prompt_ids"], batch["prompt_mask"])[:: self.size]
        tokens, real = batch["completion_ids"].cpu(), batch["completion_mask"].bool().cpu()
        logprobs = batch.get("sampling_per_token_logps", torch.zeros(tokens.shape)).cpu()
        shape = (len(asked), self.size, -1)
        for place, one in enumerate(asked):
            part = [each.view(shape)[place] for each in (tokens, real, logprobs)]
            texts, found = tuple(self.completions[place]), tuple(self.scored[place])
            yield RolloutGroup(one, prompts[place], part[0], part[1], part[2], texts, found)

    @property
    def second_size(self) -> int:
        """How many completions are sampled for the prompt of a second round."""
        return max(2, self._settings.grpo.group // self._settings.second.firsts)

    def text(self, ids: Sequence[int]) -> str:
        """Return what a completion's tokens say."""
        kept = [token for token in ids if token != self.end]
        text: str = self._words.decode(kept, skip_special_tokens=not self._settings.model.brief)
        return text


class Reducer(Protocol):
    """What `accelerate.Accelerator` does between processes."""

    def reduce(self, tensor: Tensor, reduction: str = "sum") -> Tensor:
        """Return the sum or mean over processes."""
        ...


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """Of a group: whose it is, whether it is a second round, whether the answer at hand was right, what it came to."""

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


def gather_groups(crew: ProcessGroup, groups: Sequence[RolloutGroup]) -> list[GroupSummary]:
    """Return the groups of all processes, by rank."""
    if crew.count == 1:
        return [_summarize_group(0, group, group.scored) for group in groups]
    said = [[_encode_scored(one) for one in group.scored] for group in groups]
    facts = [
        {**asdict(_summarize_group(0, group, ())), "found": found} for group, found in zip(groups, said, strict=True)
    ]
    return [
        GroupSummary(**{**fact, "rank": rank, "found": tuple(map(_decode_scored, fact["found"]))})
        for rank, text in enumerate(crew.gather_texts(json.dumps(facts)))
        for fact in json.loads(text)
    ]


def max_over_processes(crew: ProcessGroup, count: int) -> int:
    """Return the largest of the processes' numbers."""
    return max(int(each) for each in crew.gather_texts(str(count)))


def average_gradients(peers: Reducer, parameters: Iterable[torch.nn.Parameter]) -> None:
    """Replace gradients by their means over the processes; whoever has none has contributed zero."""
    trained = [each for each in parameters if each.requires_grad]
    flat = torch.cat([(torch.zeros_like(each) if each.grad is None else each.grad).flatten() for each in trained])
    means, place = peers.reduce(flat, reduction="mean"), 0
    for each in trained:
        each.grad = means[place : place + each.numel()].view_as(each).clone()
        place += each.numel()


def _summarize_group(rank: int, group: RolloutGroup, found: tuple[ScoredPlan, ...]) -> GroupSummary:
    return GroupSummary(
        rank,
        bool(group.question.rounds),
        bool(group.question.right),
        found,
        int(group.mask.sum()),
        group.question.item.task.id,
    )


def _encode_scored(one: ScoredPlan) -> dict[str, object]:
    """Return what can be told of it: all but its rounds."""
    told = {each.name: getattr(one, each.name) for each in fields(one) if each.name != "rounds"}
    return {**told, "parts": dict(one.parts)}


def _decode_scored(said: dict[str, object]) -> ScoredPlan:
    made = cast("Callable[..., ScoredPlan]", ScoredPlan)
    lists = {name: tuple(cast("list[object]", said[name])) for name in ("workers", "ranks")}
    return made(**{**said, **lists})
