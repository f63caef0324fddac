"""The person at the terminal: approves calls, answers subtasks and reviews answers.

Invariant: only what is typed at the terminal counts as an answer; what is shown is cleaned and indented, so that no
text can draw a prompt of its own. Reading does not block the event loop, so that Ctrl-C and deadlines reach an open
question. One question is asked at a time. On Windows runs wait for `shikisha runs approve` instead.
"""

import asyncio
import getpass
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TextIO

from shikisha.cli import output
from shikisha.core.events import QuestionKind
from shikisha.core.text import clean_text
from shikisha.engine.approvals import ApprovalQuestion, Approver, Decision, NoApprover

_END_OF_ANSWER = "."
_BAR = "│ "
_DEFAULT_WIDTH = 80
_MAX_LINE = 65_536


def current_user() -> str:
    """Return the account at this terminal, as the journal names it."""
    with suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return "unknown"


def choose_approver(paused: Callable[[], AbstractContextManager[None]]) -> Approver:
    """Return an approver at the terminal; without a terminal, or in its background, one that suspends the run."""
    if sys.stderr.isatty() and hasattr(os, "tcgetpgrp"):
        with suppress(OSError):
            descriptor = os.open("/dev/tty", os.O_RDONLY)
            if os.tcgetpgrp(descriptor) == os.getpgrp():
                return TerminalApprover(descriptor, sys.stderr, paused)
            os.close(descriptor)
    return NoApprover()


class TerminalApprover:
    """Asks at the terminal of this file descriptor; writes to `screen` while the progress is paused."""

    def __init__(self, descriptor: int, screen: TextIO, paused: Callable[[], AbstractContextManager[None]]) -> None:
        self._descriptor = descriptor
        self._screen = screen
        self._paused = paused
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, question: ApprovalQuestion) -> Decision | None:
        """Return the decision of the person; None when it is postponed, which suspends the run."""
        async with self._one_at_a_time:
            with self._paused():
                self._show(question)
                match question.asks:
                    case QuestionKind.ANSWER:
                        return await self._answer()
                    case QuestionKind.REVIEW:
                        return await self._review()
                    case QuestionKind.TOOLS:
                        return None  # the client of the server answers
                    case QuestionKind.APPROVE:
                        return await self._approval()

    def _show(self, question: ApprovalQuestion) -> None:
        place = "planning" if question.step is None else f"step {question.step}"
        self._print(f"\n{question.worker} ({place} of run {question.run}):\n")
        width = os.get_terminal_size(self._descriptor).columns if os.isatty(self._descriptor) else _DEFAULT_WIDTH
        self._print(quote_text(question.prompt, width))

    async def _approval(self) -> Decision | None:
        while True:
            self._print("May this call be made? [y]es, [n]o, [l]ater: ")
            line = await self._line()
            match line.strip().lower() if line else "l":
                case "y" | "yes":
                    return Decision(True, current_user())
                case "n" | "no":
                    return Decision(False, current_user())
                case "l" | "later":
                    return None

    async def _review(self) -> Decision | None:
        while True:
            self._print("May this be the answer? [y]es, [n]o, [c]hange it, [l]ater: ")
            line = await self._line()
            match line.strip().lower() if line else "l":
                case "y" | "yes":
                    return Decision(True, current_user())
                case "n" | "no":
                    return Decision(False, current_user())
                case "c" | "change":
                    return await self._answer()
                case "l" | "later":
                    return None

    async def _answer(self) -> Decision | None:
        self._print(f"Your answer (end with a line that holds only {_END_OF_ANSWER!r}; Ctrl-D to answer later):\n")
        lines: list[str] = []
        while (line := await self._line()).rstrip("\r\n") != _END_OF_ANSWER or not "".join(lines).strip():
            if not line:
                return None
            lines.append("" if line.rstrip("\r\n") == _END_OF_ANSWER else line)
        return Decision(True, current_user(), "".join(lines).strip())

    async def _line(self) -> str:
        """Return the next line that is typed; empty at the end of input."""
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[bytes] = loop.create_future()

        def read() -> None:
            if not typed.done():
                typed.set_result(os.read(self._descriptor, _MAX_LINE))

        loop.add_reader(self._descriptor, read)
        try:
            return (await typed).decode("utf-8", "replace")
        finally:
            loop.remove_reader(self._descriptor)

    def _print(self, text: str) -> None:
        self._screen.write(clean_text(text))
        self._screen.flush()


def quote_text(text: str, width: int) -> str:
    """Return the text wrapped to the width of a terminal, each line behind a bar that no text can draw itself."""
    lines = output.wrap_text(text, max(width - len(_BAR), 10)).split("\n")
    return "".join(f"{_BAR}{line}\n" for line in lines)
