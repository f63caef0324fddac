"""The processes that train together, seen from one of them: which one it is, what they tell each other and agree on.

`accelerate launch` starts the same command several times. The main process alone claims the run's folder, writes and
prints; the others take part. Invariants: all go through the same places in the same order; what fails in one of them in
such a place ends all of them there, and the main one says why; alone, nothing of this happens. Deliberately absent:
gradients (`processes`), and Python objects, which would be pickled: processes tell each other texts.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache

from shikisha.errors import CapReached, ConfigError, Diverged, ShikishaError

_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what a launcher says in the environment
_PATIENCE = timedelta(hours=2)  # for the slowest of a step's workers, wherever its plan is performed
_STOPPED = "stopped"
_KINDS = {kind.__name__: kind for kind in (ConfigError, Diverged, ShikishaError)}


class Crew:
    """This process among `count`; `rank` 0 is the main one."""

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count = rank, count
        self._agreed: BaseException | None = None

    @property
    def main(self) -> bool:
        """Whether this process claims, writes and prints."""
        return not self.rank

    def texts(self, text: str) -> list[str]:
        """Return what every process says here, by rank; ShikishaError where one of them is gone."""
        if self.count == 1:
            return [text]
        try:
            return _gathered(text, self.count)
        except RuntimeError as error:
            first = str(error).strip().partition("\n")[0]
            raise ShikishaError(f"another process of this training has ended: {first}") from None

    def total(self, value: float) -> float:
        """Return the sum of everybody's values."""
        return sum(float(each) for each in self.texts(repr(value)))

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """Let what fails inside, in any process, be raised in all of them; a process that is stopped stops all."""
        failure: BaseException | None = None
        try:
            yield
        except (ShikishaError, asyncio.CancelledError) as error:
            if self.count == 1:
                raise
            failure = error
        self.agree(failure)

    def agree(self, failure: BaseException | None) -> None:
        """Raise the first failure of all, if there is one."""
        if self.count == 1:
            if failure is not None:
                raise failure
            return
        told = self.texts(_told(failure))
        rank = next((rank for rank, one in enumerate(told) if one), None)
        if rank is None:
            return
        self._agreed = failure if failure is not None and rank == self.rank else _raised(told[rank], rank)
        raise self._agreed

    def hushed(self, error: BaseException) -> bool:
        """Whether the main process, which is another, says what this error says."""
        return not self.main and error is self._agreed

    def leave(self) -> None:
        """Be one of them no longer; where all were ended, the main one goes first.

        A launcher ends the others as soon as one is gone, and the main one may have something to say.
        """
        if self.count == 1 or (self.main and self._agreed is not None):
            return
        if self._agreed is not None:
            with suppress(ShikishaError):
                self.texts("")
            return
        from torch import distributed

        distributed.destroy_process_group()


@cache
def our_crew() -> Crew:
    """Return the crew of this process: of those that a launcher has started, or of one."""
    if not launched():
        return Crew()
    import torch
    from torch import distributed

    if not distributed.is_initialized():
        backend = "cuda:nccl,cpu:gloo" if torch.cuda.is_available() else "gloo"
        distributed.init_process_group(backend, timeout=_PATIENCE)
    return Crew(distributed.get_rank(), distributed.get_world_size())


def launched() -> bool:
    """Return whether a launcher has started this process as one of several."""
    return all(os.environ.get(name) for name in _LAUNCHED) and os.environ["WORLD_SIZE"] != "1"


def first_of(group: ExceptionGroup[Exception]) -> Exception:
    """Return what a group of errors is about: the first of ours, else the first."""
    ours, _ = group.split(ShikishaError)
    inner: Exception = ours or group
    while isinstance(inner, ExceptionGroup):
        inner = inner.exceptions[0]
    return inner


def _gathered(text: str, count: int) -> list[str]:
    import torch
    from torch import distributed

    data = torch.tensor(list(text.encode()), dtype=torch.uint8)
    lengths = [torch.zeros(1, dtype=torch.long) for _ in range(count)]
    distributed.all_gather(lengths, torch.tensor([len(data)]))
    longest = max(int(each) for each in lengths)
    if not longest:
        return [""] * count
    rows = [torch.zeros(longest, dtype=torch.uint8) for _ in range(count)]
    distributed.all_gather(rows, torch.cat([data, torch.zeros(longest - len(data), dtype=torch.uint8)]))
    return [bytes(row[: int(length)].tolist()).decode() for row, length in zip(rows, lengths, strict=True)]


def _told(failure: BaseException | None) -> str:
    match failure:
        case None:
            return ""
        case asyncio.CancelledError():
            return json.dumps([_STOPPED])
        case CapReached():
            return json.dumps([CapReached.__name__, failure.cap, failure.why])
        case _:
            return json.dumps([type(failure).__name__, str(failure)])


def _raised(told: str, rank: int) -> BaseException:
    kind, *said = json.loads(told)
    if kind == _STOPPED:
        return asyncio.CancelledError()
    if kind == CapReached.__name__:
        return CapReached(*said)
    return _KINDS.get(kind, ShikishaError)(f"{said[0]} (process {rank})")
