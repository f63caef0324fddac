"""What waits for a person, as it is shown to that person: the exact call, what it may cost, until when it may be made.

Invariant: what is approved is what is shown: arguments are printed whole, the hash of the question is that of the call,
and an answer goes to that question and no other. Deliberately absent: markup, and which questions are open
(`server.asking`).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from shikisha.events import QuestionAsked, QuestionKind
from shikisha.run import Run


@dataclass(frozen=True, slots=True)
class Shown:
    """An earlier step that the call would be shown."""

    step: int
    worker: str
    text: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A question to a person. `call` is the subtask word by word, `arguments` its JSON where it is an object.

    `answer` is what a review is about. `expires` None: never; `dollars` None: nobody can say what it may cost.
    """

    root: str
    asked: QuestionAsked
    task: str
    labels: tuple[str, ...]
    domain: str
    call: str
    arguments: tuple[tuple[str, str], ...]
    why: str
    answer: str
    sees: tuple[Shown, ...]
    expires: float | None
    tokens: int
    dollars: float | None

    @property
    def kind(self) -> str:
        """What is wanted: approve, answer or review."""
        return str(self.asked.asks)


def waiting(root: str, run: Run, asked: QuestionAsked) -> Waiting:
    """Return a question of a run (the root, or a child run of it) as it is shown."""
    call = _call(run, asked)
    reviewed = run.reached if asked.asks is QuestionKind.REVIEW else None
    return Waiting(
        root=root,
        asked=asked,
        task=run.started.prompt,
        labels=run.started.labels,
        domain=run.started.domain,
        call=call,
        arguments=_arguments(call),
        why=reviewed.asks if reviewed else "",
        answer=(reviewed.answer or "") if reviewed else "",
        sees=tuple(_sees(run, asked)),
        expires=asked.expires or None,
        tokens=asked.bound.tokens,
        dollars=asked.bound.dollars,
    )


def _call(run: Run, asked: QuestionAsked) -> str:
    """Return the subtask that the plan gives the worker; what the question says where no plan does."""
    if asked.asks is QuestionKind.APPROVE and asked.round >= 0 and asked.step is not None:
        plan = run.round(asked.round).plan
        if plan is not None and asked.step < len(plan):
            return plan.steps[asked.step].subtask
    return asked.prompt


def _arguments(call: str) -> tuple[tuple[str, str], ...]:
    """Return a JSON object's members as texts; nothing for any other text."""
    try:
        found = json.loads(call)
    except ValueError:
        return ()
    if not isinstance(found, dict):
        return ()
    return tuple((str(name), value if isinstance(value, str) else json.dumps(value)) for name, value in found.items())


def _sees(run: Run, asked: QuestionAsked) -> Iterator[Shown]:
    if asked.step is None or asked.round < 0 or asked.asks is QuestionKind.REVIEW:
        return
    turn = run.round(asked.round)
    if turn.plan is None or asked.step >= len(turn.plan):
        return
    for earlier in turn.plan.steps[asked.step].access:
        result = turn.results[earlier] if earlier < len(turn.results) else None
        if result is not None:
            yield Shown(
                earlier, result.worker, result.text if result.text is not None else f"no answer: {result.fault}"
            )
