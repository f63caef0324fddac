"""What a policy is asked and what its texts come to: prompts, plans performed as a reward function, second rounds.

Invariants: what has no reward is None, never a number; where other processes wait for this one, what fails is kept
until TRL has heard from all of them. Deliberately absent: models and advantages.
"""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from shikisha.errors import ConfigError, ShikishaError
from shikisha.prompt import Style, briefing, instructions
from shikisha.train.batch import Asked, Group, gone_on
from shikisha.train.crew import first_of, our_crew
from shikisha.train.explore import explore_at
from shikisha.train.padded import Rows, unpadded
from shikisha.train.rollout import Drawing
from shikisha.train.scoring import Scored, Scorer
from shikisha.train.settings import TrainSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Chat = list[dict[str, str]]


class Play:
    """Performs what was sampled, each plan so many `times`.

    `texts`, `found` and `failure` are of the last call, by group of `size`; `end` is the token that ends a completion,
    `drawing` how the step's tokens are drawn; `home` is the event loop in which plans are performed (None: whichever
    calls).
    """

    def __init__(self, tokenizer: "Tokenizer", end: int, scorer: Scorer, settings: TrainSettings) -> None:
        self._words, self.end, self._scorer, self._settings = tokenizer, end, scorer, settings
        self.home: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self.size, self.times = settings.grpo.group, 1
        self.drawing = Drawing(settings.grpo.temperature, end)
        self.texts: list[list[str]] = []
        self.found: list[list[Scored]] = []
        self.failure: BaseException | None = None
        self._work: Future[list[list[Scored]]] | None = None

    def begin(self, home: asyncio.AbstractEventLoop) -> None:
        """Perform in this event loop from now on."""
        self.home, self._stopped = home, False

    def at(self, step: int) -> None:
        """Draw and perform as this step of the run does: exploring as much, as often, and for the same price."""
        explored = explore_at(self._settings, self._words, step)
        self.drawing = Drawing(self._settings.grpo.temperature, self.end, explored)
        self.times = self._settings.performances_at(step)
        self._scorer.cost = self._settings.cost_at(step)

    def prompt(self, asked: Asked) -> str | Chat:
        """Return what the model is shown: the short briefing, or a chat."""
        if self._settings.model.brief:
            return asked.prompt()
        if asked.item.pool is None:
            raise ConfigError(f"task {asked.item.task.id}: no pool to plan for")
        style = Style(described=self._settings.model.described)
        shown = briefing(asked.item.task, asked.item.pool.cards, asked.rounds, style)
        return [{"role": "system", "content": instructions(style=style)}, {"role": "user", "content": shown}]

    def encoded(self, prompt: str) -> list[int]:
        """Return a prompt's tokens. What the bare tokenizer reads cannot spell a special token."""
        ids: list[int] = self._words.encode(prompt).ids
        return ids

    async def perform(
        self, completion_ids: Sequence[Sequence[int]], asked: Sequence[Asked], **_: object
    ) -> list[float | None]:
        """Return the reward of each completion: the reward function, as TRL calls it."""
        self.failure = None
        try:
            return await self._rewards(completion_ids, asked)
        except (ShikishaError, ExceptionGroup, asyncio.CancelledError) as error:
            failure = first_of(error) if isinstance(error, ExceptionGroup) else error
            if our_crew().count == 1 or not isinstance(failure, ShikishaError | asyncio.CancelledError):
                raise
            self.failure = failure
            return [None] * len(completion_ids)

    async def _rewards(self, completion_ids: Sequence[Sequence[int]], asked: Sequence[Asked]) -> list[float | None]:
        written = [self.text(ids) for ids in completion_ids]
        places = range(0, len(written), self.size)
        self.texts = [written[place : place + self.size] for place in places]
        ones = [asked[place] for place in places]
        items, before = [one.item for one in ones], [one.texts for one in ones]
        work = self._scorer.scores(self.texts, items, before, self.times)
        if self.home is None:
            self.found = await work
        else:
            self._work = asyncio.run_coroutine_threadsafe(work, self.home)
            if self._stopped:  # while it was handed over
                self._work.cancel()
            self.found = await asyncio.wrap_future(self._work)
        return [one.total for found in self.found for one in found]

    def stop(self) -> None:
        """Perform nothing more, from any thread: the reward function is cancelled, now or when it is called."""
        self._stopped = True
        if self._work is not None:
            self._work.cancel()

    def seconds(self, firsts: Sequence[Group], step: int) -> list[Asked]:
        """Return the second rounds that follow these first ones; nobody scouts in them."""
        self.drawing = replace(self.drawing, explore=None)
        table, steps = self._settings.second, self._settings.grpo.steps
        count = round(table.share * len(firsts)) if step >= table.begin * steps else 0
        scouts = self._settings.scouts_at(step)
        return [one for group in firsts[:count] for one in gone_on(group, table.firsts, scouts)]

    def groups(self, asked: Sequence[Asked], batch: Rows) -> Iterator[Group]:
        """Yield what was just performed, with the tokens of TRL's batch of it."""
        prompts = unpadded(batch["prompt_ids"], batch["prompt_mask"])[:: self.size]
        tokens, real = batch["completion_ids"].cpu(), batch["completion_mask"].bool().cpu()
        logprobs = batch.get("sampling_per_token_logps", torch.zeros(tokens.shape)).cpu()
        shape = (len(asked), self.size, -1)
        for place, one in enumerate(asked):
            part = [each.view(shape)[place] for each in (tokens, real, logprobs)]
            texts, found = tuple(self.texts[place]), tuple(self.found[place])
            yield Group(one, prompts[place], part[0], part[1], part[2], texts, found)

    @property
    def second_size(self) -> int:
        """How many completions are sampled for the prompt of a second round."""
        return max(2, self._settings.grpo.group // self._settings.second.firsts)

    def text(self, ids: Sequence[int]) -> str:
        """Return what a completion's tokens say."""
        kept = [token for token in ids if token != self.end]
        text: str = self._words.decode(kept, skip_special_tokens=not self._settings.model.brief)
        return text
