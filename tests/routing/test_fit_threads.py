"""Threads: linear algebra keeps to one for as long as somebody learns, and has what it had afterwards."""

import pytest
import scipy.linalg  # noqa: F401  brings a library of its own, which is to be seen from the beginning
from panels import panel
from threadpoolctl import threadpool_info, threadpool_limits

from shikisha.routing.fit.model_selection import core_executor, select_policy, single_threaded_blas


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_linear_algebra_has_one_thread_while_fits_run_and_what_it_had_afterwards() -> None:
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with single_threaded_blas(), core_executor() as beside:
            assert list(beside.map(lambda _: threads(), range(3))) == [{1}] * 3
        assert threads() == before


def test_that_holds_while_a_ladder_is_climbed() -> None:
    said: list[set[int]] = []
    select_policy(panel(tasks=30), report=lambda _: said.append(threads()))
    assert said
    assert set.union(*said) == {1}


def test_an_error_lets_go_of_it() -> None:
    before = threads()
    with pytest.raises(ZeroDivisionError), single_threaded_blas():
        raise ZeroDivisionError
    assert threads() == before
