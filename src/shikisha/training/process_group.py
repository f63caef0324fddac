"""The processes that train together, seen from one of them: which one it is, what they tell each other and agree on.

`accelerate launch` starts the same command several times. The main process alone claims the run's folder, writes and
prints; the others take part. Invariants: all go through the same places in the same order; what fails in one of them in
such a place ends all of them there, and the main one says why; alone, nothing of this happens. Deliberately absent:
gradients (`processes`), and Python objects, which would be pickled: processes tell each other texts.

What torch computes on in this process: a GPU where there is one, else all cores that it may use, or one.

Besides: what need not hold its steps up (`settled`). Invariants: where OMP_NUM_THREADS says how many cores, that
counts, and CUDA_VISIBLE_DEVICES says which GPU ("": none); the curve of a training is the same with the same number of
cores. With another number, and on a GPU, it is not the same to the bit: sums come in another order there. Deliberately
absent: several processes (`processes`), and other accelerators than CUDA's.
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

from shikisha.core.errors import CapReached, ConfigError, ShikishaError, TrainingDiverged

_LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what a launcher says in the environment
_TIMEOUT = timedelta(hours=2)  # for the slowest of a step's workers, wherever its plan is performed
_STOPPED = "stopped"
_ERROR_TYPES = {kind.__name__: kind for kind in (ConfigError, TrainingDiverged, ShikishaError)}


class ProcessGroup:
    """This process among `count`; `rank` 0 is the main one."""

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count = rank, count
        self._agreed: BaseException | None = None

    @property
    def main(self) -> bool:
        """Whether this process claims, writes and prints."""
        return not self.rank

    def gather_texts(self, text: str) -> list[str]:
        """Return what every process says here, by rank; ShikishaError where one of them is gone."""
        if self.count == 1:
            return [text]
        try:
            return _all_gather(text, self.count)
        except RuntimeError as error:
            first = str(error).strip().partition("\n")[0]
            raise ShikishaError(f"another process of this training has ended: {first}") from None

    def sum(self, value: float) -> float:
        """Return the sum of everybody's values."""
        return sum(float(each) for each in self.gather_texts(repr(value)))

    @contextmanager
    def raise_together(self) -> Iterator[None]:
        """Let what fails inside, in any process, be raised in all of them; a process that is stopped stops all."""
        failure: BaseException | None = None
        try:
            yield
        except (ShikishaError, asyncio.CancelledError) as error:
            if self.count == 1:
                raise
            failure = error
        self.raise_first(failure)

    def raise_first(self, failure: BaseException | None) -> None:
        """Raise the first failure of all, if there is one."""
        if self.count == 1:
            if failure is not None:
                raise failure
            return
        told = self.gather_texts(_encode_failure(failure))
        rank = next((rank for rank, one in enumerate(told) if one), None)
        if rank is None:
            return
        self._agreed = failure if failure is not None and rank == self.rank else _decode_failure(told[rank], rank)
        raise self._agreed

    def is_reported_elsewhere(self, error: BaseException) -> bool:
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
                self.gather_texts("")
            return
        from torch import distributed

        distributed.destroy_process_group()


@cache
def current_process_group() -> ProcessGroup:
    """Return the crew of this process: of those that a launcher has started, or of one."""
    if not is_distributed():
        return ProcessGroup()
    import torch
    from torch import distributed

    if not distributed.is_initialized():
        backend = "cuda:nccl,cpu:gloo" if torch.cuda.is_available() else "gloo"
        distributed.init_process_group(backend, timeout=_TIMEOUT)
    return ProcessGroup(distributed.get_rank(), distributed.get_world_size())


def is_distributed() -> bool:
    """Return whether a launcher has started this process as one of several."""
    return all(os.environ.get(name) for name in _LAUNCHER_VARIABLES) and os.environ["WORLD_SIZE"] != "1"


def first_error(group: ExceptionGroup[Exception]) -> Exception:
    """Return what a group of errors is about: the first of ours, else the first."""
    ours, _ = group.split(ShikishaError)
    inner: Exception = ours or group
    while isinstance(inner, ExceptionGroup):
        inner = inner.exceptions[0]
    return inner


def _all_gather(text: str, count: int) -> list[str]:
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


def _decode_failure(told: str, rank: int) -> BaseException:
    kind, *said = json.loads(told)
    if kind == _STOPPED:
        return asyncio.CancelledError()
    if kind == CapReached.__name__:
        return CapReached(*said)
    return _ERROR_TYPES.get(kind, ShikishaError)(f"{said[0]} (process {rank})")


_MAX_SFT_WORKERS = 12


def use_all_cores() -> None:
    """Compute on every core that this process may use, unless it was told how many."""
    if not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(len(os.sched_getaffinity(0)))


def default_device() -> torch.device:
    """Return the GPU that is this process's, or the processor.

    Products of 32-bit numbers are taken with the GPU's TF32 units: 10 bits of mantissa, sums in 32 bits.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.set_float32_matmul_precision("high")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def sft_worker_count() -> int:
    """Return how many processes make lessons for a GPU: what cores there are beside this process's own, 8 at most."""
    return max(1, min(_MAX_SFT_WORKERS, len(os.sched_getaffinity(0)) - 1))


def use_one_core() -> None:
    """Compute on one: token by token, the threads of a small model would mostly wait for each other."""
    torch.set_num_threads(1)


@contextmanager
def freeze_garbage_collection() -> Iterator[None]:
    """Leave what is in memory by now out of searches for garbage: models and libraries stay, what a step makes passes.

    Going through all of them took a twenty-fifth of a small model's step. Where somebody else has left some out, this
    changes nothing: it could only be taken back as a whole.
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
