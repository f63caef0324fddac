"""What the process is told by signals: to stop in good order, then to stop now, and then to be gone.

Invariant: from the first signal on until everything is closed, a further one makes it faster and never leaves a run
that could have been released. Deliberately absent: what stopping is (`serving`); and signals on Windows, where Ctrl-C
cancels everything at once.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_HEARD = (signal.SIGTERM, signal.SIGINT)


class Told:
    """What each signal means, in turn; once none is left, the process ends as the signal says."""

    def __init__(self) -> None:
        self._meanings: list[Callable[[], None]] = []
        self._heard = False

    def means(self, *meanings: Callable[[], None]) -> None:
        """Have the first signal mean this, the second one that."""
        self._meanings = list(meanings)
        with suppress(NotImplementedError):
            for number in _HEARD:
                asyncio.get_running_loop().add_signal_handler(number, self._tell, number)
        self._heard = True

    def _tell(self, number: signal.Signals) -> None:
        if self._meanings:
            self._meanings.pop(0)()
            return
        self.forget()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    def forget(self) -> None:
        """Let signals mean what they meant before."""
        heard, self._heard = self._heard, False
        with suppress(NotImplementedError):
            for number in _HEARD if heard else ():
                asyncio.get_running_loop().remove_signal_handler(number)


@contextmanager
def told() -> Iterator[Told]:
    """Give signals a meaning until the end of the block."""
    made = Told()
    try:
        yield made
    finally:
        made.forget()
