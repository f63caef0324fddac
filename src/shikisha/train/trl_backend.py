"""TRL step by step: what the plain loop offers (`reference.Loop`), so that a run is driven alike by either.

TRL trains in a thread of its own, which stands still between steps; plans are performed in the event loop that awaits
the step. Invariants: while nobody awaits a step nothing changes; a step that is cancelled, once or more often, has
either touched no weight, or is whole when the cancellation comes through. Deliberately absent: what happens after a
step (`session`).
"""

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Semaphore, Thread
from typing import TYPE_CHECKING

import torch

from shikisha.errors import ConfigError
from shikisha.train import whole
from shikisha.train.arguments import wrapped
from shikisha.train.progress import Step
from shikisha.train.scoring import Scorer
from shikisha.train.settings import TrainSettings
from shikisha.train.source import Source
from shikisha.train.trainer import Trainer

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from shikisha.train.keeping import Kept
    from shikisha.train.replay import Replay
    from shikisha.train.session import Result, Run


async def reinforced(run: "Run", kept: "Kept | None") -> "Result":
    """Take what is left of a run's steps; where the model is briefed in English, by its chat template."""
    begun = run.begun
    chats: Tokenizer | PreTrainedTokenizerFast = begun.tokenizer
    if not run.order.settings.model.brief:
        if begun.pad is None or begun.end is None:
            raise ConfigError("model.start: expected a model with a pad and an end token")
        chats = wrapped(begun.tokenizer, begun.pad, begun.end, begun.template)

    def loop(model: "PreTrainedModel", _: "Tokenizer", *more: object) -> TrlLoop:
        made = TrlLoop(model, chats, *more)  # type: ignore[arg-type]  # as they come
        run.weights = partial(whole.weights, made.trainer)
        if not made.trainer.own:
            run.likeliest = partial(whole.likeliest, made.trainer)
        return made

    return await run.reinforced(kept, loop)


class TrlLoop:
    """A policy and the state of its training. `advance` takes one step."""

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "Tokenizer | PreTrainedTokenizerFast",
        source: Source,
        scorer: Scorer,
        settings: TrainSettings,
        reference: "PreTrainedModel | None" = None,
    ) -> None:
        self.trainer = Trainer(model, tokenizer, source, scorer, settings, reference)
        if settings.grpo.explores and self.trainer.rollout_func is None:
            raise ConfigError("grpo.phases: explore: expected 0 where TRL or vLLM samples, or weights lie in pieces")
        self._steps = settings.grpo.steps
        self._thread: Thread | None = None
        self._taken: Future[Step] = Future()
        self._go = Semaphore(0)

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """What moves the weights; None where every process holds a piece of it, and nothing of it is kept."""
        return None if self.trainer.sharded else self.trainer.moving

    @property
    def generator(self) -> torch.Generator:
        """What samples are drawn with."""
        return self.trainer.generator

    @property
    def step(self) -> int:
        """How many steps were taken."""
        return self.trainer.step

    @step.setter
    def step(self, taken: int) -> None:
        self.trainer.step = taken

    @property
    def replay(self) -> "Replay | None":
        """Lessons beside reinforcement."""
        return self.trainer.replay

    @replay.setter
    def replay(self, lessons: "Replay | None") -> None:
        self.trainer.replay = lessons

    async def advance(self) -> Step:
        """Take one step and say what it came to."""
        self._taken = Future()
        self.trainer.play.begin(asyncio.get_running_loop())
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._train, name="trl", daemon=True)
            self._thread.start()
        else:
            self._go.release()
        waited = asyncio.wrap_future(self._taken)
        try:
            return await asyncio.shield(waited)
        except asyncio.CancelledError:
            self.trainer.play.stop()
            while not waited.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([waited])
            raise
        finally:
            if waited.exception() is not None or waited.result().number >= self._steps:
                await asyncio.to_thread(self._thread.join)

    def _train(self) -> None:
        try:
            self.trainer.run(self._told)
        except BaseException as error:  # noqa: BLE001 - raised again where the step is awaited
            self._taken.set_exception(error)

    def _told(self, step: Step) -> None:
        self._taken.set_result(step)
        if step.number < self._steps:
            self._go.acquire()
