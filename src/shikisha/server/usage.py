"""The bill of a run: what its answer's own call used, and what everything else used (planning, steps, checks, retries).

Invariant: every call of the run and of its child runs is counted once, on one of the two sides, and the two sides
together are the total; dollars are None as soon as nobody can say what one call cost. A call that failed is known by
its charge alone, which does not tell input from output: it counts as input. What calls may have used besides, whose
outcome nobody knows, is a figure of its own and in no other. A run that waited for a client's tools is
billed in parts, one to a response (`less`). Deliberately absent: prices (they are in the events), caps (`ledger`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shikisha.budget import NOTHING, Amount, Usage
from shikisha.events import AttemptFinished
from shikisha.run import Attempt, Run
from shikisha.scope import child_id

Details = dict[str, int]
Billed = dict[str, "int | float | Details | None"]
_NOTHING = Usage()


@dataclass(frozen=True, slots=True)
class Bill:
    """What was used: by the call that gave the answer, by all others, and the dollars for both.

    `uncertain` is what may have been used besides.
    """

    answer: Usage = _NOTHING
    others: Usage = _NOTHING
    dollars: float | None = 0.0
    uncertain: Amount = NOTHING

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.answer.total + self.others.total

    def less(self, earlier: "Bill") -> "Bill":
        """Return what was used since an earlier bill of the same run; the answer's call is this bill's own."""
        before = _plus(earlier.answer, earlier.others)
        unknown = self.dollars is None or earlier.dollars is None
        dollars = None if unknown else max(0.0, (self.dollars or 0.0) - (earlier.dollars or 0.0))
        possible = max(0.0, (self.uncertain.dollars or 0.0) - (earlier.uncertain.dollars or 0.0))
        uncertain = Amount(max(0, self.uncertain.tokens - earlier.uncertain.tokens), possible)
        return Bill(self.answer, _minus(self.others, before), dollars, uncertain)

    def chat(self) -> Billed:
        """Return it as the `usage` of a chat completion."""
        return {
            "prompt_tokens": self.answer.input_tokens,
            "completion_tokens": self.answer.output_tokens,
            "total_tokens": self.tokens,
            "prompt_tokens_details": self._into(),
            "completion_tokens_details": self._out(),
            "cost": self.dollars,
            **self._besides(),
        }

    def responses(self) -> Billed:
        """Return it as the `usage` of a response."""
        return {
            "input_tokens": self.answer.input_tokens,
            "input_tokens_details": self._into(),
            "output_tokens": self.answer.output_tokens,
            "output_tokens_details": self._out(),
            "total_tokens": self.tokens,
            "cost": self.dollars,
            **self._besides(),
        }

    def _besides(self) -> Billed:
        """Return what may have been used besides, where that is anything."""
        if self.uncertain == NOTHING:
            return {}
        return {"uncertain_tokens": self.uncertain.tokens, "uncertain_cost": self.uncertain.dollars}

    def _into(self) -> Details:
        return {
            "cached_tokens": self.answer.cached_tokens,
            "orchestration_input_tokens": self.others.input_tokens,
            "orchestration_input_cached_tokens": self.others.cached_tokens,
        }

    def _out(self) -> Details:
        return {
            "reasoning_tokens": self.answer.reasoning_tokens,
            "orchestration_output_tokens": self.others.output_tokens,
        }


def bill(run: Run, family: Iterable[Run] = ()) -> Bill:
    """Return a run's bill so far; `family` are its child runs, and theirs, as far as they are known."""
    below = {child.id: child for child in family if child.id != run.id}
    answer, others, charged, uncertain = _NOTHING, _NOTHING, NOTHING, NOTHING
    for attempt, is_answer in _calls(run, below, answers=True):
        charged += attempt.charged
        uncertain += attempt.uncertain
        if is_answer:
            answer = _plus(answer, _used(attempt))
        else:
            others = _plus(others, _used(attempt))
    return Bill(answer, others, charged.dollars, uncertain)


def answering(run: Run) -> Attempt | None:
    """Return the call that gave the run's answer, or the last thing that the run said before it waited."""
    if run.finished is not None:
        if run.finished.round is None or run.finished.step is None:
            return None
        record = run.rounds[run.finished.round].steps.get(run.finished.step)
        if record is None or record.finished is None:
            return None
        return next((call for call in record.attempts if call.started.attempt == record.finished.attempt), None)
    asked = {(question.round, question.step) for question in run.open_questions}
    spoken = [call for call in run.attempts if isinstance(call.outcome, AttemptFinished)]
    return next((call for call in reversed(spoken) if (call.started.round, call.started.step) in asked), None)


def _calls(run: Run, below: Mapping[str, Run], *, answers: bool) -> Iterable[tuple[Attempt, bool]]:
    """Yield every call, child runs' in the place of the calls that started them, and whether it gave the answer."""
    last, seen = answering(run) if answers else None, set[str]()
    for attempt in run.attempts:
        key = attempt.started.key
        if key in seen:
            continue  # a repeat finds the child runs of its key again
        children = _children(key, below)
        if not children:
            yield attempt, attempt is last
            continue
        seen.add(key)
        for child in children:
            yield from _calls(
                child, below, answers=child is children[-1] and last is not None and last.started.key == key
            )


def _children(key: str, below: Mapping[str, Run]) -> list[Run]:
    found: list[Run] = []
    while (child := below.get(child_id(key, len(found)))) is not None:
        found.append(child)
    return found


def _used(attempt: Attempt) -> Usage:
    match attempt.outcome:
        case AttemptFinished(usage=usage):
            return usage
        case _:
            return Usage(attempt.charged.tokens)


def _plus(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cached_tokens + other.cached_tokens,
        one.reasoning_tokens + other.reasoning_tokens,
    )


def _minus(one: Usage, other: Usage) -> Usage:
    return Usage(
        max(0, one.input_tokens - other.input_tokens),
        max(0, one.output_tokens - other.output_tokens),
        max(0, one.cached_tokens - other.cached_tokens),
        max(0, one.reasoning_tokens - other.reasoning_tokens),
    )
