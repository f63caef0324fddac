"""What torch computes on in this process: a GPU where there is one, else all cores that it may use, or one.

Besides: what need not hold its steps up (`settled`). Invariants: where OMP_NUM_THREADS says how many cores, that
counts, and CUDA_VISIBLE_DEVICES says which GPU ("": none); the curve of a training is the same with the same number of
cores. With another number, and on a GPU, it is not the same to the bit: sums come in another order there. Deliberately
absent: several processes (`processes`), and other accelerators than CUDA's.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_MOST_MAKERS = 12


def every_core() -> None:
    """Compute on every core that this process may use, unless it was told how many."""
    if not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(len(os.sched_getaffinity(0)))


def our_device() -> torch.device:
    """Return the GPU that is this process's, or the processor.

    Products of 32-bit numbers are taken with the GPU's TF32 units: 10 bits of mantissa, sums in 32 bits.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.set_float32_matmul_precision("high")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def lesson_makers() -> int:
    """Return how many processes make lessons for a GPU: what cores there are beside this process's own, 8 at most."""
    return max(1, min(_MOST_MAKERS, len(os.sched_getaffinity(0)) - 1))


def one_core() -> None:
    """Compute on one: token by token, the threads of a small model would mostly wait for each other."""
    torch.set_num_threads(1)


@contextmanager
def settled() -> Iterator[None]:
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
