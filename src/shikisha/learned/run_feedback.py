"""What a run tells somebody who is to write better advice: its plan, what each worker saw, what failed, what it cost.

Only a journal has this: who was shown what and what was withheld, verdicts of checks and guards with their reasons,
faults, dollars of each step. Invariant: all of it is quoted material, cut to a bounded length.
"""

from shikisha.core.budget import format_dollars
from shikisha.core.prompts import quote_lines
from shikisha.core.run import RoundRecord, Run

_SHOWN = 400  # characters of a text
_MAX_STEPS = 20


def describe_run(run: Run, score: float | None, expected: str = "") -> str:
    """Return a run in words, with its grade and, where it is known and the run was wrong, the right answer."""
    grade = "not graded" if score is None else f"score {score:g}"
    lines = [f"Task: {_cut(run.started.prompt)}", f"Result: {grade}, {format_dollars(run.charged.dollars or 0.0)}"]
    if run.why:
        lines.append(f"Ended: {_cut(run.why)}")
    for turn in run.rounds:
        lines += _round_lines(turn)
    lines.append(f"Answer: {_cut(run.answer or '(none)')}")
    if expected and score is not None and score < 1:
        lines.append(f"Right would have been: {_cut(expected)}")
    return quote_lines("\n".join(lines))


def _round_lines(turn: RoundRecord) -> list[str]:
    lines = [f"Rejected plan: {_cut(one.what)}" for one in turn.rejected]
    if turn.plan is None:
        return lines
    for index, step in list(enumerate(turn.plan.steps))[:_MAX_STEPS]:
        shown = ", ".join(map(str, step.access)) or "no other step"
        lines.append(f"Step {index} by model {step.worker}, shown {shown}: {_cut(step.subtask)}")
        record = turn.steps.get(index)
        attempt = None if record is None else record.accepted_attempt
        if record is not None and record.finished is not None and record.finished.fault is not None:
            lines.append(f"  no answer: {record.finished.fault}: {_cut(record.finished.message)}")
        elif attempt is not None and record is not None and (result := record.result) is not None:
            lines.append(f"  said ({format_dollars(attempt.charged.dollars or 0.0)}): {_cut(result.text or '')}")
        checks = record.checks if record is not None else ()
        lines += [f"  check {check.check}: {check.status}: {_cut(check.reason)}" for check in checks]
    return lines


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN else f"{flat[:_SHOWN]} …"
