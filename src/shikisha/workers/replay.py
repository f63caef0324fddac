"""A worker that answers from an outcome log: what this worker really answered to this very task.

Invariants: a record is found by the task's id and the worker's name only, so a replay answers the whole task whatever
its subtask says; usage and dollars are the recorded ones; a missing record is NO_RECORD and never a guess.
"""

from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import Field

from shikisha.core.budget import Price, Usage
from shikisha.core.call import Card, Reply, Request
from shikisha.core.errors import FaultKind, UnknownName, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.core.toml import Table
from shikisha.engine.worker import WorkerKind
from shikisha.outcomes.log_reader import Outcome, OutcomeLog, open_log

ReplayContent: TypeAlias = Literal["answer", "response", "both"]


class ReplaySettings(Table):
    """The log, the recorded worker (by default the one of the same name), and which text is the answer."""

    log: Path = Field(description="the folder of the outcome log")
    worker: str | None = Field(default=None, description="the name in the log; by default this worker's own")
    reply: ReplayContent = Field(default="answer", description="the extracted answer, the full text, or both")


Settings = ReplaySettings  # the name that `config.kinds` looks up


def build(settings: ReplaySettings, card: Card, secret_store: SecretStore) -> "ReplayWorker":  # noqa: ARG001 - every adapter's signature
    """Return the worker; UnknownName when the log has no such worker."""
    return ReplayWorker(open_log(settings.log), settings.worker or card.name, settings.reply)


def fit_card(settings: ReplaySettings, card: Card) -> Card:
    """Return the card with the price and the bounds from the log, so that caps hold for its records."""
    return replay_card(open_log(settings.log), settings.worker or card.name, card)


KIND = WorkerKind(settings=ReplaySettings, build=build, fit_card=fit_card)


def replay_card(log: OutcomeLog, worker: str, card: Card | None = None) -> Card:
    """Return the card (or a new one) with the log's price, one attempt, and a bound on its records.

    `max_output_tokens` is so large that no recorded call uses more tokens, or more dollars, than are reserved for it.
    Without a price in the log the price is None: refused under a dollar cap.
    """
    price = log.prices.get(worker)
    tokens, dollars = _largest_outcome(log, worker)
    if price is not None and price.output:
        tokens = max(tokens, ceil(dollars * 1e6 / price.output))
    elif price is not None:
        price = Price(price.input, 0.0, call=dollars)
    return replace(card or Card(worker, kind="replay"), price=price, max_output_tokens=tokens, attempts=1)


def _largest_outcome(log: OutcomeLog, worker: str) -> tuple[int, float]:
    outcomes = list(log.outcomes_of(worker))
    tokens = max((outcome.usage.total for outcome in outcomes if outcome.usage), default=0)
    return tokens, max((outcome.dollars or 0.0 for outcome in outcomes), default=0.0)


class ReplayWorker:
    """Replays one worker of a log."""

    def __init__(self, log: OutcomeLog, worker: str, reply: ReplayContent = "answer") -> None:
        if worker not in log.workers:
            raise UnknownName(f"worker in {log.folder}", worker, log.workers)
        self._log = log
        self._worker = worker
        self._reply = reply
        self._responses = {} if reply == "answer" else log.responses(worker)

    async def perform(self, request: Request) -> Reply:
        """Reply with the record; NO_RECORD where there is none, EMPTY where the worker gave no answer."""
        task_id = request.task.id
        outcome = self._log.find(task_id, self._worker)
        if outcome is None or (self._reply == "response" and task_id not in self._responses):
            raise WorkerError(FaultKind.NO_RECORD, f"{self._worker!r} on task {task_id!r}: not in {self._log.folder}")
        text = self._text(outcome)
        usage = outcome.usage or Usage()
        if text is None or not text.strip():
            message = f"{self._worker!r} on task {task_id!r}: recorded without an answer"
            raise WorkerError(FaultKind.EMPTY, message, tokens=usage.total, dollars=_dollars(outcome, self._log))
        return Reply(text, usage, _dollars(outcome, self._log), model=self._worker)

    def _text(self, outcome: Outcome) -> str | None:
        written = self._responses.get(outcome.task_id)
        match self._reply:
            case "answer":
                return self._log.answer_text(outcome)
            case "response":
                return written
            case "both":
                return self._log.response_text(outcome, written)


def _dollars(outcome: Outcome, log: OutcomeLog) -> float | None:
    if outcome.dollars is not None or outcome.usage is None:
        return outcome.dollars
    price = log.prices.get(outcome.worker)
    return None if price is None else price.of(outcome.usage)
