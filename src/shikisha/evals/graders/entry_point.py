"""Grade by a user's own Python function, named `package.module:function`.

It is called with (answer, prompt, gold) and returns True or False, a number from 0 to 1, a Grade, or None where nothing
could be extracted; it may be async. The module is imported and run with all rights of this process: that is the user's
own choice, written in the user's own file, and nothing else leads here.

Invariants: whatever the function does, the event loop continues (a plain function runs in a thread of its own) and the
outcome is a Grade. An exception, a return value that is no grade, and a timeout are UNGRADED. A function that does not
end in time stays behind in its thread, which cannot be stopped and which no exit waits for. Deliberately absent:
searching for functions, changing Python's path, and a sandbox (the kind `code` runs code that a model wrote).
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import Annotated, TypeAlias

from pydantic import Field, JsonValue

from shikisha.core.errors import PROCESS_STOPS, ConfigError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.kinds import Kind
from shikisha.core.toml import Table
from shikisha.evals.graders import Grade, GradeMark, GraderTools, grade_from_score, no_answer_grade, ungraded_grade

GradingFunction: TypeAlias = Callable[[str, str, JsonValue], object]

_NAME = "entry_point"
_SHOWN = 500
# Seconds for a cancelled async function to end.
_GRACE = 1.0


class EntryPointSettings(Table):
    """The function (`package.module:function`), its further arguments, and its time limit in seconds."""

    function: Annotated[str, Field(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*$")]
    gold: JsonValue = None
    prompt: str = ""
    seconds: float = Field(default=30.0, gt=0, le=3600)


def build_entry_point_grader(settings: EntryPointSettings, tools: GraderTools) -> "EntryPointGrader":  # noqa: ARG001 - every grader's signature
    """Return the grader; ConfigError names the entry point and says what is wrong with it."""
    return EntryPointGrader(settings, load_function(settings.function))


KIND = Kind(settings=EntryPointSettings, build=build_entry_point_grader)


def load_function(entry_point: str) -> GradingFunction:
    """Import and return the function; ConfigError when there is none that takes (answer, prompt, gold)."""
    module_name, _, path = entry_point.partition(":")
    value = _import_user_module(module_name, entry_point)
    for name in path.split("."):
        if not hasattr(value, name):
            raise ConfigError(f"{entry_point}: {module_name} has no {path!r}")
        value = getattr(value, name)
    if not callable(value):
        raise ConfigError(f"{entry_point}: expected a function, found a {type(value).__name__}")
    function: GradingFunction = value
    try:
        inspect.signature(function).bind("", "", None)
    except TypeError as error:
        raise ConfigError(f"{entry_point}: expected a function of (answer, prompt, gold): {error}") from None
    except ValueError:  # written in C, without a signature: the first call will show it
        pass
    return function


def _import_user_module(name: str, entry_point: str) -> object:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(f"{entry_point}: there is no module {error.name!r} on Python's path") from None
        raise ConfigError(f"{entry_point}: importing {name} failed: {_describe_error(error)}") from error
    except PROCESS_STOPS:
        raise
    except BaseException as error:  # a user's module may raise anything
        raise ConfigError(f"{entry_point}: importing {name} failed: {_describe_error(error)}") from error


@dataclass(frozen=True, slots=True)
class _FunctionError:
    """What a function raised, as text."""

    text: str


class EntryPointGrader:
    """Grades by calling one function."""

    name = _NAME

    def __init__(self, settings: EntryPointSettings, function: GradingFunction) -> None:
        self._settings = settings
        self._function = function

    async def grade(self, answer: str) -> Grade:
        """Call the function and convert its result to a grade."""
        try:
            async with asyncio.timeout(self._settings.seconds):
                outcome = await self._outcome(answer)
        except TimeoutError:
            outcome = _FunctionError(f"no end after {self._settings.seconds:g} s")
        if isinstance(outcome, _FunctionError):
            return ungraded_grade(self.name, f"{self._settings.function}: {outcome.text}")
        return self._grade(outcome)

    async def _outcome(self, answer: str) -> object:
        """Call a plain function in a thread, an async one here; exceptions are returned as values."""
        settings, function = self._settings, self._function
        if not inspect.iscoroutinefunction(function):
            value = await _call_in_thread(lambda: function(answer, settings.prompt, settings.gold))
        else:
            value = function(answer, settings.prompt, settings.gold)
        return await _await_outcome(value) if inspect.isawaitable(value) else value

    def _grade(self, value: object) -> Grade:
        said = f"{self._settings.function} returned"
        if getattr(value, "shape", None) == () and callable(item := getattr(value, "item", None)):
            # An array library's own True, False or number.
            value = item()
        match value:
            case None:
                return no_answer_grade(self.name, f"{said} None")
            case Grade():
                return self._checked(value)
            case bool() | int() | float() if 0 <= value <= 1:
                return grade_from_score(self.name, float(value), None, f"{said} {value!r}")
            case bool() | int() | float():
                return ungraded_grade(self.name, f"{said} {value!r}: expected a number from 0 to 1")
            case _:
                kind = type(value).__name__
                return ungraded_grade(
                    self.name, f"{said} a {kind}: expected a bool, a number from 0 to 1, a Grade, or None"
                )

    def _checked(self, grade: Grade) -> Grade:
        """Return the function's own grade under this grader's name, if it is valid."""
        score = grade.score
        fits = score is None if grade.mark is GradeMark.UNGRADED else score is not None and 0 <= score <= 1
        if not fits:
            problem = f"{self._settings.function} returned a grade {grade.mark} with the score {score!r}"
            return ungraded_grade(self.name, problem, judged=grade.judged)
        return replace(grade, grader=self.name)


async def _await_outcome(value: Awaitable[object]) -> object:
    """Return the result of an awaitable, or _FunctionError."""
    task = asyncio.ensure_future(_catch_everything(value))
    try:
        await asyncio.wait({task})
    finally:
        if task.cancel():
            await asyncio.wait({task}, timeout=_GRACE)
    if task.cancelled():
        return _FunctionError("it was cancelled")
    error = task.exception()
    return task.result() if error is None else _FunctionError(_describe_error(error))


async def _catch_everything(value: Awaitable[object]) -> object:
    """Return the result of an awaitable; SystemExit in a task would end the loop, so it becomes a value."""
    try:
        return await value
    except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - a user's function may raise anything
        return _FunctionError(_describe_error(error))


async def _call_in_thread(call: Callable[[], object]) -> object:
    """Return the result of a call in a thread of its own, or _FunctionError; no exit waits for that thread."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[object] = loop.create_future()

    def settle(outcome: object) -> None:
        if not done.done():
            done.set_result(outcome)

    def run() -> None:
        try:
            outcome = call()
        except BaseException as error:  # noqa: BLE001 - a user's function may raise anything, and this ends its thread
            outcome = _FunctionError(_describe_error(error))
        # The loop is closed: nothing waits for the result.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, outcome)

    Thread(target=run, name=_NAME, daemon=True).start()
    return await done


def _describe_error(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:_SHOWN]
    except BaseException:  # noqa: BLE001 - its __str__ may raise anything too
        return type(error).__name__
