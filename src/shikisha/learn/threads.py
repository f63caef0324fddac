"""Threads: fits run side by side, one on each core, and the linear algebra inside them has no threads of its own.

The matrices of a fit are small. A linear algebra library that starts a thread for each core spends its time waiting for
them, the more so where every core is busy already: five times the processor time on two cores. Invariant: what a fit
comes to hangs neither on how many cores there are nor on what runs beside it. Deliberately absent: processes, which
would each need the whole panel.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from os import sched_getaffinity

from shikisha.errors import MissingExtra


def one_on_each_core() -> ThreadPoolExecutor:
    """Return what runs as many functions at a time as there are cores, in the order in which they are submitted."""
    return ThreadPoolExecutor(len(sched_getaffinity(0)))


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Keep linear algebra to the thread that calls it; also a decorator."""
    try:
        import scipy.linalg  # noqa: F401  brings a library of its own, which must be there to be limited
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise MissingExtra("learn", "learning") from None
    with threadpool_limits(limits=1, user_api="blas"):
        yield
