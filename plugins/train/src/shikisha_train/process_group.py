"""The processes that train together, seen from one of them, and what this process computes on.

`accelerate launch` starts the same command several times. The main process alone owns the run's folder, writes and
prints. Processes exchange texts: Python objects would be pickled.

Invariants: all processes reach the same calls in the same order; a failure in one of them ends all, and the main one
reports it; the curve of a training is the same with the same number of cores. With another number, and on a GPU, sums
are taken in another order. Deliberately absent: gradients (`trl`), accelerators other than CUDA's.
"""

import asyncio
import gc
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache

import torch
from torch import distributed

from shikisha.core.errors import CapReached, ConfigError, ShikishaError, TrainingDiverged

_LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # set by `accelerate launch`
# For the slowest of a step's workers, wherever its plan is performed.
_TIMEOUT = timedelta(hours=2)
_STOPPED = "stopped"
_ERROR_TYPES = {kind.__name__: kind for kind in (ConfigError, TrainingDiverged, ShikishaError)}


class ProcessGroup:
    """This process among `count`; `rank` 0 is the main one."""

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count = rank, count
        self._agreed: BaseException | None = None

    @property
    def main(self) -> bool:
        """Whether this process owns the run's folder, writes and prints."""
        return not self.rank

    def gather_texts(self, text: str) -> list[str]:
        """Return the texts of all processes, by rank; ShikishaError where one of them is gone."""
        if self.count == 1:
            return [text]
        try:
            count = self.count
            data = torch.tensor(list(text.encode()), dtype=torch.uint8)
            lengths = [torch.zeros(1, dtype=torch.long) for _ in range(count)]
            distributed.all_gather(lengths, torch.tensor([len(data)]))
            longest = max(int(each) for each in lengths)
            if not longest:
                return [""] * count
            rows = [torch.zeros(longest, dtype=torch.uint8) for _ in range(count)]
            distributed.all_gather(rows, torch.cat([data, torch.zeros(longest - len(data), dtype=torch.uint8)]))
            return [bytes(row[: int(length)].tolist()).decode() for row, length in zip(rows, lengths, strict=True)]
        except RuntimeError as error:
            first = str(error).strip().partition("\n")[0]
            raise ShikishaError(f"another process of this training has ended: {first}") from None

    def sum(self, value: float) -> float:
        """Return the sum of the processes' values."""
        return sum(float(each) for each in self.gather_texts(repr(value)))

    @contextmanager
    def raise_together(self) -> Iterator[None]:
        """Raise in all processes what fails inside in any of them; a process that is stopped stops all."""
        failure: BaseException | None = None
        try:
            yield
        except (ShikishaError, asyncio.CancelledError) as error:
            if self.count == 1:
                raise
            failure = error
        self.raise_first(failure)

    def raise_first(self, failure: BaseException | None) -> None:
        """Raise the first failure of all processes, if there is one."""
        if self.count == 1:
            if failure is not None:
                raise failure
            return
        failures = self.gather_texts(_encode_failure(failure))
        rank = next((rank for rank, one in enumerate(failures) if one), None)
        if rank is None:
            return
        self._agreed = failure if failure is not None and rank == self.rank else _decode_failure(failures[rank], rank)
        raise self._agreed

    def is_reported_elsewhere(self, error: BaseException) -> bool:
        """Whether the main process, which is another, reports this error."""
        return not self.main and error is self._agreed

    def leave(self) -> None:
        """Leave the group; after a failure the main process ends first.

        A launcher ends the others as soon as one is gone, and the main one may still have to print.
        """
        if self.count == 1 or (self.main and self._agreed is not None):
            return
        if self._agreed is not None:
            with suppress(ShikishaError):
                self.gather_texts("")
            return
        distributed.destroy_process_group()


@cache
def current_process_group() -> ProcessGroup:
    """Return the group of this process: of those that a launcher has started, or of one."""
    if not is_distributed():
        return ProcessGroup()
    if not distributed.is_initialized():
        backend = "cuda:nccl,cpu:gloo" if torch.cuda.is_available() else "gloo"
        distributed.init_process_group(backend, timeout=_TIMEOUT)
    return ProcessGroup(distributed.get_rank(), distributed.get_world_size())


def is_distributed() -> bool:
    """Return whether a launcher has started this process as one of several."""
    return all(os.environ.get(name) for name in _LAUNCHER_VARIABLES) and os.environ["WORLD_SIZE"] != "1"


def first_error(group: ExceptionGroup[Exception]) -> Exception:
    """Return the first of a group's errors that is ours, else the first."""
    ours, _ = group.split(ShikishaError)
    inner: Exception = ours or group
    while isinstance(inner, ExceptionGroup):
        inner = inner.exceptions[0]
    return inner


def _encode_failure(failure: BaseException | None) -> str:
    match failure:
        case None:
            return ""
        case asyncio.CancelledError():
            return json.dumps([_STOPPED])
        case CapReached():
            return json.dumps([CapReached.__name__, failure.cap, failure.why])
        case _:
            return json.dumps([type(failure).__name__, str(failure)])


def _decode_failure(encoded: str, rank: int) -> BaseException:
    kind, *details = json.loads(encoded)
    if kind == _STOPPED:
        return asyncio.CancelledError()
    if kind == CapReached.__name__:
        return CapReached(*details)
    return _ERROR_TYPES.get(kind, ShikishaError)(f"{details[0]} (process {rank})")


def use_all_cores() -> None:
    """Compute on every core that this process may use, unless OMP_NUM_THREADS says how many."""
    if not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(len(os.sched_getaffinity(0)))


@contextmanager
def freeze_garbage_collection() -> Iterator[None]:
    """Exclude the objects that exist now, models and libraries, from garbage collection.

    Visiting them took 4 % of a small model's step. Where objects are frozen already, this changes nothing: `unfreeze`
    has no part.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
