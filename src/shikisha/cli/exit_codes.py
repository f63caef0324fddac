"""Exit codes, and the one place that maps errors and the status of runs to them."""

from enum import IntEnum
from typing import TYPE_CHECKING

from shikisha.core.errors import CapReached, ConfigError, JournalError, PlanError, ShikishaError, TaskError, UnknownRun

if TYPE_CHECKING:
    from shikisha.core.events import RunStatus


class ExitCode(IntEnum):
    """The exit code of the process."""

    OK = 0  # done: the answer is on stdout
    FAILED = 1  # the run ended without an answer
    INPUT = 2  # a wrong option, task, plan text or run id
    CONFIG = 3  # a configuration that cannot be used, a missing key or library
    CAPPED = 4  # a cap ended the run; what was done so far is on stdout
    WAITING = 5  # the run waits for a person
    JOURNAL = 6  # the journal cannot be used, or is not what was written
    INTERNAL = 70  # an unexpected error
    INTERRUPTED = 130  # stopped by Ctrl-C; the run can be resumed
    TERMINATED = 143  # stopped by SIGTERM; the run can be resumed


class StopSignal(BaseException):
    """Ctrl-C or SIGTERM stopped the process; the code says which. Handlers of `Exception` let it pass."""

    def __init__(self, code: ExitCode) -> None:
        super().__init__(code)
        self.code = code


_CODE_OF_STATUS = {
    "done": ExitCode.OK,
    "failed": ExitCode.FAILED,
    "capped": ExitCode.CAPPED,
    "suspended": ExitCode.WAITING,
    "interrupted": ExitCode.INTERRUPTED,
    "quarantined": ExitCode.FAILED,
    "running": ExitCode.FAILED,
}

EXIT_CODES_HELP = """\
Exit codes: 0 done, 1 the run failed, 2 bad input or plan, 3 configuration, 4 a cap was reached,
5 waits for a person, 6 journal, 130 interrupted (resumable), 143 terminated (resumable).
"""


def exit_code_of_status(status: "RunStatus") -> ExitCode:
    """Return the exit code for the status of a run."""
    return _CODE_OF_STATUS[status]


def exit_code_of_error(error: ShikishaError) -> ExitCode:
    """Return the exit code for an error."""
    match error:
        case PlanError() | TaskError() | UnknownRun():
            return ExitCode.INPUT
        case ConfigError():
            return ExitCode.CONFIG
        case CapReached():
            return ExitCode.CAPPED
        case JournalError():
            return ExitCode.JOURNAL
        case _:
            return ExitCode.FAILED
