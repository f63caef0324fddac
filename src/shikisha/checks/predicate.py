"""A check in one expression: Python in Monty, over `answer`, `question` and `subtask`, whatever language they are in.

Invariant: only True passes. An expression that fails, or that is neither true nor false, has not passed, and says why.
Deliberately absent: statements, and anything that the sandbox does not hand out.
"""

from pydantic import BaseModel, ConfigDict, Field

from shikisha.core.errors import ConfigError
from shikisha.core.events import CheckStatus
from shikisha.core.run import CheckVerdict
from shikisha.engine.checker import Inspection
from shikisha.sandbox import Execution, Sandbox, SandboxLimits


class Settings(BaseModel):
    """The expression (`len(answer.splitlines()) == 3`), what to say when it is False, the seconds it may take."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    expression: str = Field(
        description="an expression over `answer` and `question`, as in len(answer.splitlines()) == 3"
    )
    reason: str = Field(default="", description="what the worker is told when the expression is false")
    seconds: float = Field(default=1.0, gt=0, le=60, description="the most seconds to judge one answer")


def build(settings: Settings, name: str) -> "PredicateCheck":
    """Return the check; ConfigError when the expression is no Python."""
    from shikisha.sandbox.monty import shared_monty

    return PredicateCheck(settings, shared_monty(SandboxLimits(seconds=settings.seconds)), name)


class PredicateCheck:
    """Passes answers for which the expression is True."""

    def __init__(self, settings: Settings, sandbox: Sandbox, name: str = "predicate") -> None:
        self.name = name
        self._settings = settings
        self._sandbox = sandbox
        self._code = _wrapped(settings.expression, name)

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        """Evaluate the expression."""
        task = inspection.task
        inputs = {"answer": inspection.text, "question": task.prompt, "subtask": inspection.subtask}
        execution = await self._sandbox.run(self._code, inputs)
        if execution.error is None and execution.value == "True":
            return CheckVerdict(self.name, CheckStatus.PASS)
        return CheckVerdict(self.name, CheckStatus.FAIL, self._why(execution))

    def _why(self, execution: Execution) -> str:
        expression = self._settings.expression
        if execution.error is not None:
            return f"{expression} failed: {execution.error}"
        if execution.value != "False":
            return f"{expression} is neither True nor False"
        return self._settings.reason or f"the answer must satisfy {expression}"


def _wrapped(expression: str, name: str) -> str:
    """Return code whose value is the expression's if that is True or False, and None if it is not."""
    try:
        compile(expression, "expression", "eval")
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"checks.{name}.expression: no Python expression: {error}") from None
    return f"_holds = (\n{expression}\n)\n_holds if _holds is True or _holds is False else None"
