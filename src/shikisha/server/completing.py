"""One chat completion under way: a run that is attended for its client, and what is written of it.

Invariants: what can be refused was refused before this begins; whatever happens then ends in a whole completion, an
error, or a stream with its end marker. A run whose client leaves is cancelled, unless all that the client waited for is
there already. Deliberately absent: reading requests (`chat`).
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from fastapi.responses import JSONResponse

from shikisha.errors import ShikishaError
from shikisha.run import Run
from shikisha.server import sse
from shikisha.server.attending import Kept, Wanted, attend
from shikisha.server.headers import about, of_ended
from shikisha.server.house import House
from shikisha.server.mapping import NO_RETRY, Answer, outcome, problem_of
from shikisha.server.narrowing import Narrowing
from shikisha.server.problems import Problem
from shikisha.server.streaming import LENGTH, STOP, TOOLS, Chunks, Head, Message, completion
from shikisha.server.telling import Ended, Note, Paused, Piece, Replaced, Teller, Told
from shikisha.server.usage import Bill, bill
from shikisha.server.withholding import passed

APPROVALS = "/ui/approvals"
Last = Told | Wanted | Kept | None


@dataclass(slots=True)
class Completing:
    """A completion under way. `before` is what earlier responses of its run billed; `nested`: it may have children."""

    house: House
    head: Head
    teller: Teller
    narrowing: Narrowing
    nested: bool = False
    theirs: bool = True  # this client's alone: False where an earlier request began the run
    usage_wanted: bool = False
    before: Bill = field(default_factory=Bill)
    done: bool = False

    @property
    def run(self) -> str:
        """The run's id."""
        return self.head.run

    async def gone(self) -> None:
        """Cancel the run: its client has left."""
        if self.theirs and not self.done:
            await self.house.cancel(self.run)

    async def whole(self) -> JSONResponse:
        """Return the completion, or the error, once there is one."""
        text, notes, last = "", list[str](), None
        async for told in self._attended():
            match told:
                case Piece():
                    text += told.text
                case Note():
                    notes.append(told.line)
                case _:
                    last = told
        self.done = True
        run, used = await self._billed()
        if (problem := self._objection(last, run)) is not None:
            return self._refusal(problem, run, used)
        reasoning = "\n".join(notes) if self.narrowing.progress else ""
        said = _message(last, run, text)
        message = Message(said.text, said.finish, said.calls, reasoning)
        body = completion(self.head, message, used.chat(), self._about(run))
        return JSONResponse(body, headers=of_ended(self.run, used))

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the stream."""
        chunks, last = Chunks(self.head), None
        yield chunks.role()
        try:
            async for told in self._attended():
                match told:
                    case Piece():
                        yield chunks.text(told.text)
                    case Note():
                        if self.narrowing.progress:
                            yield chunks.reasoning(told.line)
                    case _:
                        last = told
            run, used = await self._billed()
            problem = self._objection(last, run)
        except Problem as error:
            problem = error
        except ShikishaError as error:
            problem = problem_of(error)
        self.done = True
        if problem is not None:
            yield chunks.error(problem, self.run)
            yield sse.DONE
            return
        for chunk in self._ending(chunks, last, run):
            yield chunk
        if self.usage_wanted:
            yield chunks.usage(used.chat())
        yield sse.DONE

    def _attended(self) -> AsyncGenerator[Told | Wanted | Kept]:
        return attend(self.house, self.run, self.teller, self.house.settings.patience)

    def _ending(self, chunks: Chunks, last: Last, run: Run) -> list[bytes]:
        told = self.teller.text
        said = _message(last, run, told)
        rest = [chunks.text(said.text[len(told) :])] if len(said.text) > len(told) else []
        calls = [chunks.calls(said.calls)] if said.calls else []
        return [*rest, *calls, chunks.finish(said.finish, self._about(run))]

    def _objection(self, last: Last, run: Run) -> Problem | None:
        """Return what stands in the way of an answer; None when nothing does."""
        match last:
            case Wanted():
                return None
            case Replaced():
                said = f"run {self.run}: what was streamed is not the answer: a further attempt said something else"
                return Problem(502, f"{said}; the run has it", "answer_replaced")
            case Kept(suspended=True):
                at = f"{(self.house.settings.url or '').rstrip('/')}{APPROVALS}"
                return Problem(409, f"run {self.run} waits for a person, at {at}", "approval_required")
            case Ended() | Paused():
                found = outcome(run)
                if isinstance(found, Problem):
                    return self._closing() if isinstance(last, Paused) and self.house.closing else found
                told = self.teller.text
                return None if found.text.startswith(told) else self._objection(Replaced(), run)
            case _:
                return self._closing()

    def _closing(self) -> Problem:
        said = f"run {self.run} is not performed just now, and is taken up again"
        return Problem(503, said, "run_interrupted", wait=self.house.settings.drain)

    def _refusal(self, problem: Problem, run: Run, used: Bill) -> JSONResponse:
        """Return the error of a run that was begun; no client should try again by itself: each try has a price."""
        told = self._about(run)
        body = {**problem.body(), "run": self.run} | ({} if told is None else {"shikisha": told})
        headers = {**problem.headers(), **NO_RETRY, **of_ended(self.run, used)}
        return JSONResponse(body, problem.status, headers)

    async def _billed(self) -> tuple[Run, Bill]:
        """Return the run as it stands, and what this response bills."""
        run = Run.fold(self.teller.events)
        family = (await self.house.family(self.run)).values() if self.nested else ()
        return run, bill(run, family).less(self.before)

    def _about(self, run: Run) -> object:
        told = passed(run, self.teller.events, self.house.composition.oversight())
        return about(told, self.narrowing.detail, self.house.settings.url)


def _message(last: Last, run: Run, text: str) -> Message:
    """Return what the assistant says, given what was told of it and the last thing that was."""
    if isinstance(last, Wanted):
        return Message(text, TOOLS, last.calls)
    found = outcome(run)
    if isinstance(found, Answer) and found.cut:
        return Message(found.text, LENGTH)
    return Message(text, STOP)
