"""The shipped fake: a worker whose answers, pauses and faults are given beforehand.

Invariant: the same script and the same calls in the same order give the same result, random choices included (seeded).
A call costs a few microseconds, so measurements around it measure the engine. Workers that understand subtasks are in
`shikisha_train.office`; the two of `simulated_pool` repeat theirs.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import TypeAlias

from pydantic import Field

from shikisha.core.budget import Price, Usage
from shikisha.core.call import Card, Reply, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.core.text import one_line
from shikisha.core.toml import Table
from shikisha.engine.pool import Member, Pool
from shikisha.engine.worker import WorkerKind

_SIMULATED_CHARACTERS = 200  # of the task, which a simulated worker repeats

ScriptedAnswers: TypeAlias = str | Sequence[str] | Mapping[str, str] | Callable[[Request], str | Reply]
ScriptedFault: TypeAlias = FaultKind | WorkerError | None


class ScriptedSettings(Table):
    """A script: `answers` is one text, texts in turn (the last one stays), or texts by subtask."""

    answers: str | tuple[str, ...] | dict[str, str] = Field(
        default="done", description="one text, texts in turn (the last one repeats), or texts by subtask"
    )
    seconds: tuple[float, ...] = Field(
        default=(0.0,), min_length=1, description="pauses before answers in turn, in seconds; the last one repeats"
    )
    faults: tuple[FaultKind | None, ...] = Field(
        default=(), description="the faults that the first calls raise, in turn"
    )
    seed: int | None = Field(default=None, description="draw answers at random from this seed, instead of in turn")
    input_tokens: int = Field(default=0, ge=0, description="the input tokens that each reply reports")
    output_tokens: int = Field(default=0, ge=0, description="the output tokens that each reply reports")


Settings = ScriptedSettings  # the name that `config.kinds` looks up


def build(settings: ScriptedSettings, card: Card, secret_store: SecretStore) -> "ScriptedWorker":  # noqa: ARG001 - every adapter's signature
    """Return the fake; it keeps no requests."""
    return ScriptedWorker(
        settings.answers,
        seconds=settings.seconds,
        faults=settings.faults,
        seed=settings.seed,
        usage=Usage(settings.input_tokens, settings.output_tokens),
        keep=0,
    )


KIND = WorkerKind(settings=ScriptedSettings, build=build, any_task=True)


class ScriptedWorker:
    """Answers from a script.

    `answers`: one text; texts in turn, the last one stays (by chance with a `seed`); texts by subtask; or a function
    of the request. `seconds`: the pause before each call, one for all or in turn. `faults`: raised by the first calls,
    in turn, after the pause (None: that call is fine). `requests` are the last `keep` requests (None: all), `calls`
    counts them by idempotency key; with `keep=0` neither is kept, so that a long run does not grow.
    """

    def __init__(
        self,
        answers: ScriptedAnswers = "done",
        *,
        seconds: float | Sequence[float] = 0.0,
        faults: Iterable[ScriptedFault] = (),
        seed: int | None = None,
        usage: Usage | None = None,
        keep: int | None = None,
    ) -> None:
        self._answer = _answerer(answers, seed)
        values = (seconds,) if isinstance(seconds, int | float) else seconds
        self._pauses = chain(values, repeat(values[-1]))
        self._faults = iter(tuple(faults))
        self._usage = usage or Usage()
        self._keeps = keep != 0
        self.requests: deque[Request] = deque(maxlen=keep)
        self.calls: Counter[str] = Counter()

    async def perform(self, request: Request) -> Reply:
        """Pause, fail or answer as the script says next."""
        if self._keeps:
            self.requests.append(request)
            self.calls[request.key] += 1
        trouble = next(self._faults, None)
        pause = next(self._pauses)
        if pause:
            await asyncio.sleep(pause)
        if trouble is not None:
            raise trouble if isinstance(trouble, WorkerError) else WorkerError(trouble, "as scripted")
        answer = self._answer(request)
        reply = answer if isinstance(answer, Reply) else Reply(answer, self._usage)
        if request.on_text is not None:
            request.on_text(reply.text)
        return reply


def _answerer(answers: ScriptedAnswers, seed: int | None) -> Callable[[Request], str | Reply]:
    if isinstance(answers, str):
        return lambda _: answers
    if isinstance(answers, Mapping):
        return lambda request: _by_subtask(answers, request.subtask)
    if callable(answers):
        return answers
    if seed is not None:
        chance = random.Random(seed)  # noqa: S311 - a fake's chance is repeatable, not secret
        return lambda _: chance.choice(answers)
    following = chain(answers, repeat(answers[-1]))
    return lambda _: next(following)


def _by_subtask(answers: Mapping[str, str], subtask: str) -> str:
    if subtask not in answers:
        raise WorkerError(FaultKind.NO_RECORD, f"the script has no answer to {subtask[:80]!r}")
    return answers[subtask]


def simulated_pool() -> Pool:
    """Return two simulated workers, who repeat what they were asked: for tests, load, and a look at a run."""
    priced = {"simulated-small": Price(input=0.1, output=0.4), "simulated-large": Price(input=2.0, output=8.0)}
    usage = Usage(40, 12)
    return Pool(
        [
            Member(
                Card(name, f"{name}: repeats its task", "simulated", price, max_output_tokens=200),
                ScriptedWorker(_simulated_answer, usage=usage, keep=0),
            )
            for name, price in priced.items()
        ]
    )


def _simulated_answer(request: Request) -> str:
    return f"simulated answer to: {one_line(request.task.prompt, _SIMULATED_CHARACTERS)}"
