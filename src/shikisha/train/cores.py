"""How many cores torch computes on in this process: all that it may use, or one.

Invariant: where OMP_NUM_THREADS says how many, that counts; the curve of a training is the same with any number.
Deliberately absent: several processes (`processes`).
"""

import os

import torch


def every_core() -> None:
    """Compute on every core that this process may use, unless it was told how many."""
    if not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(len(os.sched_getaffinity(0)))


def one_core() -> None:
    """Compute on one: token by token, the threads of a small model would mostly wait for each other."""
    torch.set_num_threads(1)
