"""A response as it is given: its run's course, what was asked, and the bill.

Invariant: a response says the same whenever it is looked at once it has ended. Its bill is what was used since the
run's response before it. Deliberately absent: reading anything (whoever calls has read it).
"""

from collections.abc import Iterable

from shikisha.events import RunFinished, Status
from shikisha.oversight import Oversight
from shikisha.run import Run
from shikisha.server.headers import about
from shikisha.server.legs import response_id
from shikisha.server.live import Happened
from shikisha.server.mapping import outcome
from shikisha.server.problems import Problem
from shikisha.server.responses_course import Course, Terms
from shikisha.server.responses_keeping import Found, Kept
from shikisha.server.store import Served, State
from shikisha.server.usage import Bill, bill
from shikisha.server.wire.responses_answer import Cut, Failure, ResponseObject, Standing, Used
from shikisha.server.wire.responses_request import Text, TextFormat, Thinking
from shikisha.server.withholding import passed

_CAPS = {"tokens": "max_output_tokens"}


def course_of(found: Found) -> Course:
    """Return a response's course, as far as it has come."""
    course = Course(Terms(found.leg.number, found.kept.progress, found.kept.approves))
    for number, event in enumerate(found.events[: found.leg.end]):
        course.hear(Happened(number, event))
    if course.standing is None and found.served.state is State.STOPPED:
        course.stop()
    return course


def bill_of(found: Found, family: Iterable[Run]) -> Bill:
    """Return what a response used."""
    family = list(family)
    before = found.before
    spent = bill(found.run, family)
    return spent if before is None else spent.less(bill(before, family))


def rendered(
    found: Found, course: Course, spent: Bill | None, oversight: Oversight, url: str | None = None
) -> ResponseObject:
    """Return the response object; `spent` None: what it used is not known yet."""
    asked, run = found.kept.request, Run.fold(course.events)
    standing = course.standing or _under_way(found, course)
    over = course.standing is not None
    return ResponseObject(
        id=found.id,
        created_at=found.events[found.leg.begin].at,
        completed_at=course.events[-1].at if standing == "completed" else None,
        status=standing,
        background=found.served.detached,
        error=_failure(run) if standing == "failed" else None,
        incomplete_details=_cut(run) if standing == "incomplete" else None,
        instructions=asked.instructions,
        max_output_tokens=asked.max_output_tokens,
        metadata=asked.metadata or {},
        model=found.served.model,
        output=course.output,
        parallel_tool_calls=asked.parallel_tool_calls is not False,
        previous_response_id=_previous(found.kept, found.served, found.leg.number),
        prompt_cache_key=asked.prompt_cache_key,
        reasoning=asked.reasoning or Thinking(),
        safety_identifier=asked.safety_identifier,
        store=asked.store is not False,
        temperature=asked.temperature,
        text=_text(asked.text),
        tool_choice=asked.tool_choice or "auto",
        tools=asked.tools or [],
        top_p=asked.top_p,
        usage=Used.model_validate(spent.responses()) if over and spent is not None else None,
        user=asked.user,
        shikisha=about(passed(run, course.events, oversight), found.kept.detail, url) if over else None,
    )


def problem_with(course: Course) -> Problem | None:
    """Return why there is no answer, once that is so."""
    if course.standing not in ("failed", "cancelled"):
        return None
    came = outcome(Run.fold(course.events))
    return came if isinstance(came, Problem) else None


def _under_way(found: Found, course: Course) -> Standing:
    return "queued" if found.served.detached and len(course.events) - found.leg.begin <= 1 else "in_progress"


def _previous(kept: Kept, served: Served, leg: int) -> str | None:
    return response_id(served.run, leg - 1) if leg else kept.request.previous_response_id


def _failure(run: Run) -> Failure | None:
    came = outcome(run)
    return Failure(code=came.code, message=came.message) if isinstance(came, Problem) else None


def _cut(run: Run) -> Cut | None:
    end: RunFinished | None = run.finished
    if end is None:
        return None
    if end.status is Status.CAPPED and end.cap is not None:
        return Cut(reason=_CAPS.get(end.cap, f"max_{end.cap}"))
    return Cut(reason="max_output_tokens")


def _text(asked: Text | None) -> Text:
    form = asked.format if asked and asked.format else TextFormat(type="text")
    return Text(format=form, verbosity=asked.verbosity if asked else None)
