"""The simulated workers: what they know from a request, the real tools they use, and how they answer.

A worker parses the question and its subtask, works out which parts it was granted and which it has to do, does honest
work, and then slips as often as its profile says. Facts come from SQLite full-text search, arithmetic from Monty, the
rest from plain Python. A worker that is told to do something outside its skill, or to use a result that it was not
granted, says so in a sentence; none answers with another part's value.

Invariants: a reply is a function of the request (task, subtask, granted results, remarks; for noisy work its key too)
and of the worker's `luck`. Nothing from a question is run as code or as a query: Monty gets the operation's own formula
with numbers as inputs, FTS5 one quoted word. Granted results count for the part that their subtask names; one that
names none is `loose` and stands for whatever feeds the part to be done.
"""

import asyncio
import atexit
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import TypeVar

from shikisha.core.budget import Usage
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.visibility import request_messages
from shikisha.engine.worker import Reply, Request
from shikisha.simulation.instructions import InstructionKind, SubtaskInstruction, parse_instruction
from shikisha.simulation.question_families import FORMULAS, Operation
from shikisha.simulation.questions import FAMILIES, ComposedQuestion, PartReference, QuestionPart, parse_question
from shikisha.simulation.seeded_random import hash_fraction
from shikisha.simulation.values import (
    SimulatedValue,
    ValueKind,
    corrupt_value,
    format_value,
    normalize_answer,
    parse_value,
)
from shikisha.simulation.vocabulary import fact_table
from shikisha.simulation.worker_profiles import WorkerProfile

# "go on with the earlier result: 412", as a later round can say.
_STATED_VALUE = re.compile(r":\s*([\w-]+)[\s.!]*$")
CANNOT_PREFIX, LACK_PREFIX = "I cannot ", "I lack "


class CannotPerform(Exception):
    """The worker cannot do its subtask; the text says why."""


@dataclass(frozen=True, slots=True)
class RequestView:
    """The question and the granted results in order, each with its part (None: loose)."""

    question: ComposedQuestion
    results: tuple[tuple[int | None, str], ...]

    @property
    def known(self) -> dict[int, str]:
        """The results by part; a later one of the same part counts."""
        return {part: text for part, text in self.results if part is not None}

    @property
    def loose(self) -> str | None:
        """The last result that names no part."""
        return next((text for part, text in reversed(self.results) if part is None), None)

    def missing(self, part: int, known: dict[int, str]) -> tuple[int, ...]:
        """Return the parts that this part's value still needs, itself included, in order of work."""
        needed, waiting = set[int](), [part]
        while waiting:
            at = waiting.pop()
            if at not in known and at not in needed:
                needed.add(at)
                waiting += self.question.parts[at].uses
        return tuple(sorted(needed))

    def given(self, part: QuestionPart, done: dict[int, SimulatedValue]) -> tuple[SimulatedValue, ...]:
        """Return a part's inputs from what is done, granted or in the question; CannotPerform when one is missing."""
        return tuple(
            self._value(given, kind, part, done) if isinstance(given, PartReference) else given
            for given, kind in zip(part.inputs, part.operation.takes, strict=True)
        )

    def _value(
        self, ref: PartReference, kind: ValueKind, part: QuestionPart, done: dict[int, SimulatedValue]
    ) -> SimulatedValue:
        if ref.part in done:
            return done[ref.part]
        text = self.known.get(ref.part, None if part.operation.joins else self.loose)
        if text is None:
            raise CannotPerform(f"{LACK_PREFIX}the result of the {self.question.parts[ref.part].family} part.")
        value = parse_value(text, ValueKind.NUMBER if kind is ValueKind.TEXT and text.strip().isdigit() else kind)
        if value is None:
            raise CannotPerform(f"{CANNOT_PREFIX}use the previous result: it is no {kind}.")
        return value


def view_request(question: ComposedQuestion, request: Request) -> RequestView:
    """Return what a request shows; a value that its subtask states is a loose result."""
    prompt = request.task.prompt
    results: list[tuple[int | None, str]] = []
    last: int | None = None
    for earlier in request.granted:
        instruction = read_instruction(earlier.subtask, prompt)
        if (
            earlier.text is None
            or instruction.verb is InstructionKind.PLAN
            or earlier.text.startswith((CANNOT_PREFIX, LACK_PREFIX))
        ):
            continue
        last = _part_covered(instruction, question, last)
        results.append((last, earlier.text))
    if stated := _STATED_VALUE.search(request.subtask.replace(prompt, " ")):
        results.append((None, stated[1]))
    return RequestView(question, tuple(results))


def read_instruction(subtask: str, prompt: str) -> SubtaskInstruction:
    """Return what a subtask asks for, without the question that it may repeat."""
    return parse_instruction(subtask.replace(prompt, " "))


def _part_covered(instruction: SubtaskInstruction, question: ComposedQuestion, last: int | None) -> int | None:
    end = len(question) - 1
    match instruction.verb:
        case InstructionKind.ANSWER | InstructionKind.FINISH:
            return end
        case InstructionKind.PARTS if instruction.number is not None:
            return min(instruction.number, end)
        case InstructionKind.PARTS:
            return max(
                (place for place, name in enumerate(question.families) if name in instruction.families), default=None
            )
        case InstructionKind.NEXT:
            return None if last is None else min(last + 1, end)
        case _:
            return last


def parts_to_do(instruction: SubtaskInstruction, view: RequestView, able: Callable[[str], bool]) -> tuple[int, ...]:
    """Return the parts that the instruction asks for, in order of work; none when the answer was already granted."""
    question, known = view.question, view.known
    match instruction.verb:
        case InstructionKind.ANSWER:
            return tuple(range(len(question)))
        case InstructionKind.PARTS if instruction.number is not None:
            if instruction.number >= len(question):
                raise CannotPerform(f"{CANNOT_PREFIX}do that part: there is none.")
            return (instruction.number,)
        case InstructionKind.PARTS:
            return _parts_of_families(instruction.families, question)
        case InstructionKind.FINISH if known:
            return view.missing(len(question) - 1, known)
        case InstructionKind.FINISH:
            return (len(question) - 1,)
        case _:
            return _next_part(view, known, able)


def _parts_of_families(families: frozenset[str], question: ComposedQuestion) -> tuple[int, ...]:
    found = tuple(place for place, name in enumerate(question.families) if name in families)
    if not found:
        raise CannotPerform(f"{CANNOT_PREFIX}do that part: the question has no {' or '.join(sorted(families))} part.")
    return found


def _next_part(view: RequestView, known: dict[int, str], able: Callable[[str], bool]) -> tuple[int, ...]:
    parts = view.question.parts
    if known:
        ready = [at for at, part in enumerate(parts) if at > max(known) and set(part.uses) <= known.keys()]
        return (ready[0],) if ready else (len(parts) - 1,)
    following = [at for at, part in enumerate(parts) if part.uses]
    return next(((at,) for at in following if able(parts[at].family)), tuple(following[:1]) or (len(parts) - 1,))


Tool = TypeVar("Tool", "FactLookup", "Calculator")


class FactNotFound(LookupError):
    """The table has no such entry."""


class FactLookup:
    """The table of facts, in an SQLite full-text index in memory."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self._connection.execute("CREATE VIRTUAL TABLE facts USING fts5(place, quality, value UNINDEXED)")
        self._connection.executemany("INSERT INTO facts VALUES (?, ?, ?)", _fact_rows())

    def find(self, place: str, quality: str) -> str:
        """Return the table's value; FactNotFound where there is none."""
        # FTS5 quotes a word as SQL does: a quote inside it is doubled, and nothing else has a meaning.
        word = place.replace('"', '""')
        query = f'place:"{word}" quality:"{quality}"'
        with self._lock:
            found = self._connection.execute("SELECT value FROM facts WHERE facts MATCH ?", (query,)).fetchone()
        if found is None:
            raise FactNotFound(place)
        return str(found[0])

    def close(self) -> None:
        """Close the index."""
        self._connection.close()


def _fact_rows() -> list[tuple[str, str, str]]:
    return [
        (place, quality, value)
        for place, entry in fact_table().items()
        for quality, value in (
            ("tally", str(entry.tally)),
            ("keeper", entry.keeper),
            ("founded", entry.founded.isoformat()),
        )
    ]


class Calculator:
    """Computes formulas in Monty, which is a sandbox by construction, in a warm process.

    `sandbox.monty` is for untrusted code: its limits, kills and threads cost 0.3 ms a run. These formulas
    are our own and short, so Monty is called directly, in 0.05 ms: training makes millions of such calls.
    """

    def __init__(self) -> None:
        from pydantic_monty import Monty  # heavy: only a process that calculates pays for it

        self._monty = Monty(max_processes=1)
        self._monty.__enter__()

    def compute(self, formula: str, **numbers: int) -> int:
        """Return the formula's value; WorkerError when Monty failed."""
        from pydantic_monty import MontyError

        try:
            with self._monty.checkout() as session:
                return int(session.feed_run(formula, inputs=numbers))
        except MontyError as error:  # its process died: the next call gets another
            raise WorkerError(FaultKind.SERVER, f"calculator: {error}") from error

    def close(self) -> None:
        """End the worker process."""
        self._monty.__exit__(None, None, None)


@cache
def fact_lookup(process: int) -> FactLookup:
    """Return the table of facts of the process with this id, which must be the caller's."""
    return _close_at_exit(FactLookup(), process)


@cache
def calculator(process: int) -> Calculator:
    """Return the calculator of the process with this id, which must be the caller's."""
    return _close_at_exit(Calculator(), process)


def _close_at_exit(tool: Tool, process: int) -> Tool:
    """Close the tool when its process ends; a forked child that inherited it leaves it alone."""
    atexit.register(lambda: tool.close() if os.getpid() == process else None)
    return tool


def apply_with_tool(
    operation: Operation, inputs: Sequence[SimulatedValue], constants: Sequence[SimulatedValue]
) -> SimulatedValue:
    """Do the operation with its tool; FactNotFound when the table has no such entry."""
    if operation.family == "fact":
        text = fact_lookup(os.getpid()).find(str(inputs[0]), operation.name.removeprefix("fact."))
        value = parse_value(text, operation.gives)
        return text if value is None else value
    if operation.family == "arithmetic":
        named = {**_named_numbers("xy", inputs), **_named_numbers(operation.slots, constants)}
        return calculator(os.getpid()).compute(FORMULAS[operation.name], **named)
    return operation.apply(inputs, constants)


def _named_numbers(slots: str, values: Sequence[SimulatedValue]) -> dict[str, int]:
    return {slot: int(str(value)) for slot, value in zip(slots, values, strict=False)}


_TOKEN = re.compile(r"\w+|[^\w\s]")
# How often a model keeps a result that differs from its own.
_KEEP_CHECKED_SHARE = 0.5


class SimulatedWorker:
    """A worker with a profile; `luck` seeds its slips, `pace` scales its seconds (0: it answers at once)."""

    def __init__(self, profile: WorkerProfile, luck: int = 0, pace: float = 0.0) -> None:
        self.profile = profile
        self.luck = luck
        self.pace = pace

    async def perform(self, request: Request) -> Reply:
        """Answer the subtask, or say why not."""
        if self.pace:
            await asyncio.sleep(self.pace * self.profile.seconds)
        text = self.answer(request)
        usage = simulated_usage(request, text) if self.profile.is_model else Usage()
        return Reply(text, usage, model=self.profile.name)

    def answer(self, request: Request) -> str:
        """Return what the worker says."""
        prompt = request.task.prompt
        question = parse_question(prompt)
        if question is None:
            return f"{CANNOT_PREFIX}make sense of this question."
        instruction, view = read_instruction(request.subtask, prompt), view_request(question, request)
        if instruction.previous and not view.results:
            return f"{LACK_PREFIX}the previous result."
        try:
            return self._follow(instruction, view, request)
        except CannotPerform as reason:
            return str(reason)
        except FactNotFound as name:
            return f"{CANNOT_PREFIX}find an entry for {name}."

    def _follow(self, instruction: SubtaskInstruction, view: RequestView, request: Request) -> str:
        match instruction.verb:
            case InstructionKind.PLAN:
                return self._plan(view.question, request)
            case InstructionKind.VOTE:
                return self._vote(view, request)
            case InstructionKind.CHECK:
                return self._check(view, request)
        parts = parts_to_do(instruction, view, self._able)
        if not parts and not self.profile.is_model:
            raise CannotPerform(f"{CANNOT_PREFIX}find anything that is left to do.")
        return format_value(self._do(parts, view, request)) if parts else view.results[-1][1]

    def _able(self, family: str) -> bool:
        return self.profile.is_model or family in self.profile.skills

    def _do(self, parts: tuple[int, ...], view: RequestView, request: Request) -> SimulatedValue:
        """Do these parts and return the last one's value."""
        return self._guess(parts, view, request) if self.profile.is_model else self._work(parts, view, request)

    def _work(self, parts: tuple[int, ...], view: RequestView, request: Request) -> SimulatedValue:
        done: dict[int, SimulatedValue] = {}
        for at in parts:
            part = view.question.parts[at]
            skill = self.profile.skills.get(part.family)
            if skill is None:
                raise CannotPerform(f"{CANNOT_PREFIX}do the {part.family} part.")
            value = apply_with_tool(part.operation, view.given(part, done), part.constants)
            attempt = request.key if FAMILIES[part.family].noisy else ""
            done[at] = self._with_slip(value, skill, request, part.operation.name, attempt)
        return done[parts[-1]]

    def _guess(self, parts: tuple[int, ...], view: RequestView, request: Request) -> SimulatedValue:
        done: dict[int, SimulatedValue] = {}
        for at in parts:
            part = view.question.parts[at]
            try:
                done[at] = part.operation.apply(view.given(part, done), part.constants)
            except KeyError as name:
                raise FactNotFound(str(name)) from None
        skill = self.profile.skill(tuple(view.question.families[at] for at in parts))
        return self._with_slip(done[parts[-1]], skill, request, "parts", parts, len(request.remarks))

    def _vote(self, view: RequestView, request: Request) -> str:
        if not self.profile.vote:
            raise CannotPerform(f"{CANNOT_PREFIX}judge between results.")
        at = view.results[-1][0]
        votes = Counter(normalize_answer(text) for part, text in view.results if part == at)
        top = max(votes.values())
        leaders = [text for text, count in votes.items() if count == top]
        circumstances = ("vote", *sorted(votes.items()))
        chosen = leaders[int(self._share(request, "tie", *circumstances) * len(leaders))]
        value = next((value for kind in _RESULT_KINDS if (value := parse_value(chosen, kind)) is not None), None)
        if value is None:
            return chosen
        return format_value(self._with_slip(value, self.profile.vote, request, *circumstances))

    def _check(self, view: RequestView, request: Request) -> str:
        at, stated = view.results[-1]
        if not self.profile.is_model and not self.profile.skills:
            return self._vote(view, request)
        if at is None:
            raise CannotPerform(f"{CANNOT_PREFIX}check this: nobody says which part it is.")
        known = {part: text for part, text in view.known.items() if part != at}
        own = format_value(self._do(view.missing(at, known), view, request))
        if (
            self.profile.is_model
            and normalize_answer(own) != normalize_answer(stated)
            and self._share(request, "keep", stated) < _KEEP_CHECKED_SHARE
        ):
            return stated
        return own

    def _plan(self, question: ComposedQuestion, request: Request) -> str:
        if not self.profile.is_model:
            raise CannotPerform(f"{CANNOT_PREFIX}plan.")
        families = list(question.families)
        if self._share(request, "plan") >= self.profile.skill_by_parts[0]:
            families[0] = next(name for name in FAMILIES if name not in families)
        return ", then ".join(families)

    def _with_slip(
        self, value: SimulatedValue, skill: float, request: Request, *circumstances: object
    ) -> SimulatedValue:
        if self._share(request, *circumstances) < skill:
            return value
        return corrupt_value(value, self._share(request, "slip", *circumstances))

    def _share(self, request: Request, *circumstances: object) -> float:
        return hash_fraction(self.luck, self.profile.name, request.task.prompt, *circumstances)


_RESULT_KINDS = (ValueKind.NUMBER, ValueKind.DAY, ValueKind.WORD)


def simulated_usage(request: Request, text: str) -> Usage:
    """Count words and punctuation in the prompt and in the reply: the simulated models' tokenizer."""
    prompt_tokens = sum(len(_TOKEN.findall(turn.text)) for turn in request_messages(request))
    return Usage(prompt_tokens, len(_TOKEN.findall(text)))
