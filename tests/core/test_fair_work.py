"""Shared threads and places: every owner has its turn, however much another one has queued."""

import asyncio
from concurrent.futures import Future
from contextlib import ExitStack
from contextvars import copy_context
from threading import Event
from time import sleep

import pytest

from shikisha.core.errors import CapReached
from shikisha.core.fair_work import WORK_OWNER, FairExecutor, FairSemaphore, WorkOwner


class Pool:
    """An executor whose units wait until they are let go, and what was begun in which order."""

    def __init__(self, share: int, more: int) -> None:
        self.threads = FairExecutor("test", share, more)
        self.begun: list[str] = []
        self.go = Event()

    def queue(self, owner: str, most: int | None = None, *, waits: bool = True) -> "Future[None]":
        def work() -> None:
            self.begun.append(owner)
            if waits:
                assert self.go.wait(30)

        context = copy_context()
        context.run(WORK_OWNER.set, WorkOwner(owner, most))
        return context.run(self.threads.submit, work)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self.threads.shutdown()


def test_an_owner_waits_for_one_unit_of_each_other_one_and_not_for_all_that_they_queued() -> None:
    with Pool(1, 0) as pool:
        flood = [pool.queue("x") for _ in range(50)]
        other = [pool.queue("y"), pool.queue("y"), pool.queue("z")]
        pool.go.set()
        for each in (*flood, *other):
            each.result(30)
    assert pool.begun[:6] == ["x", "x", "y", "z", "x", "y"]  # the second x had waited first


def test_an_owner_never_has_all_the_threads() -> None:
    with Pool(2, 1) as pool:
        flood = [pool.queue("x") for _ in range(9)]
        pool.queue("y", waits=False).result(30)  # at once, while every unit of x that has begun waits
        assert pool.begun == ["x", "x", "y"]
        pool.go.set()
        for each in flood:
            each.result(30)
    assert pool.begun.count("x") == 9


def test_what_is_not_accepted_yet_is_refused_where_its_owner_has_too_much_waiting() -> None:
    with Pool(1, 1) as pool:
        pool.queue("x", most=2)
        while not pool.begun:
            sleep(0.001)
        for _ in range(2):
            pool.queue("x", most=2)
        with pytest.raises(CapReached, match="2 units of this key's work wait already"):
            pool.queue("x", most=2)
        pool.queue("x")  # a run that was accepted is not refused
        pool.queue("y", most=2, waits=False).result(30)


def test_what_was_cancelled_is_not_performed_and_errors_reach_whoever_waits() -> None:
    with Pool(1, 0) as pool, ExitStack() as at_end:
        at_end.callback(pool.go.set)
        pool.queue("x")
        cancelled, kept = pool.queue("x"), pool.queue("x")
        assert cancelled.cancel()
        broken = pool.threads.submit(lambda: 1 // 0)
        pool.go.set()
        kept.result(30)
        with pytest.raises(ZeroDivisionError):
            broken.result(30)
    assert pool.begun == ["x", "x"]


async def test_places_go_to_waiting_owners_in_turn() -> None:
    places, order = FairSemaphore(1), list[str]()

    async def work(owner: str) -> None:
        WORK_OWNER.set(WorkOwner(owner))
        async with places:
            order.append(owner)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for owner in ["x"] * 20 + ["y", "z"]:
            group.create_task(work(owner))
    assert order[:4] == ["x", "x", "y", "z"]
    assert len(order) == 22


async def test_a_place_is_not_lost_by_whoever_is_cancelled() -> None:
    places = FairSemaphore(1)

    async def work() -> None:
        async with places:
            await asyncio.sleep(0)

    async with places:
        waiting, granted = asyncio.create_task(work()), asyncio.create_task(work())
        await asyncio.sleep(0)
        waiting.cancel()
    granted.cancel()  # in the very turn of the loop in which it was granted the place
    await asyncio.wait([waiting, granted])
    async with asyncio.timeout(5), places:
        pass
