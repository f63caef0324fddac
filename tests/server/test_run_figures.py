"""Filters, orders, sums by day, sessions and mean costs: the same answers from SQLite and PostgreSQL."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from fresh import fresh
from journals import keep, whole
from postgres import Cluster
from stores import opened, order

from shikisha.core.budget import Amount
from shikisha.core.events import AnswerGraded, GradeMark, RunStatus
from shikisha.journal.run_index import TextQuery
from shikisha.server.pages.overview_page import read_period
from shikisha.server.store import RunFilter, RunOrder, RunStore, ServedState
from shikisha.server.store.run_figures import (
    list_sessions,
    mean_call_dollars,
    recent_worker_figures,
    run_scores,
    way_figures,
)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return fresh(str(tmp_path / "journal.db"))
    running: Cluster = request.getfixturevalue("postgres")
    return running.fresh()


async def found(store: RunStore, asked: RunFilter) -> list[str]:
    """The runs, page by page of two."""
    seen: list[str] = []
    while True:
        page = await store.search(replace(asked, limit=2))
        seen += [each.run for each in page.runs]
        if page.after is None:
            return seen
        asked = replace(asked, after=page.after)


async def test_both_stores_filter_sort_and_sum_alike(url: str) -> None:
    async with opened(url) as (journal, store):
        for number, dollars in enumerate((0.3, None, 0.1, 0.2)):
            labels = ("private", 'a "b%') if number == 1 else ()
            own = order(f"r{number}", tenant="one" if number < 3 else "two", labels=labels, domain=f"d{number % 2}")
            metadata = {"session_id": "s%"} if number < 2 else {"session": "other"}
            await store.add_run(replace(own, created=100.0 + number, metadata=metadata, key="k"))
            used = Amount(10 * number, dollars)
            store.mark(f"r{number}", ServedState.ENDED, status=RunStatus.DONE, used=used)
            mark, score = (GradeMark.RIGHT, 1.0) if number % 2 else (GradeMark.WRONG, 0.0)
            grade = AnswerGraded(run=f"r{number}", at=12.0, checker="text", mark=mark, score=score)
            await keep(journal, [*whole(f"r{number}", answer=f"The harbour number{number}."), grade])
        assert (await journal.index()).complete
        for asked, expected in (
            (RunFilter(), "3210"),
            (RunFilter(order=RunOrder.COST), "0321"),
            (RunFilter(order=RunOrder.COST, ascending=True), "1230"),
            (RunFilter(order=RunOrder.TOKENS), "3210"),
            (RunFilter(tenant="one", ascending=True), "012"),
            (RunFilter(words=TextQuery("harbour", "one")), "210"),
            (RunFilter(words=TextQuery("number3")), "3"),
            (RunFilter(words=TextQuery("number3", "one")), ""),
            (RunFilter(worker="ann"), "3210"),
            (RunFilter(worker="bob"), ""),
            (RunFilter(label='a "b%'), "1"),
            (RunFilter(label="priv"), ""),
            (RunFilter(domain="d1"), "31"),
            (RunFilter(session="s%"), "10"),
            (RunFilter(session="s%", tenant="two"), ""),
            (RunFilter(session="s_"), ""),
            (RunFilter(least=0.15, most=0.25), "3"),
            (RunFilter(since=101.0, until=103.0), "21"),
            (RunFilter(right=True), "31"),
            (RunFilter(right=False), "20"),
        ):
            assert await found(store, asked) == [f"r{number}" for number in expected], asked
        period = await journal.query(partial(read_period, tenant="one", since=0))
        (day,) = period.days.values()
        assert (day.runs, day.done, day.graded, day.right, day.tokens) == (3, 3, 3, 1, 45)
        assert (round(day.dollars, 9), day.unpriced) == (0.06, 0)  # what the journal says, not the row
        assert set(period.workers) == {"ann"}
        assert set(period.keys) == {"k"}
        assert (await journal.query(partial(mean_call_dollars, workers=["ann", "bob"], tenant="two"))) == {
            "ann": pytest.approx(0.02)
        }
        seen, last = [], None
        while page := await journal.query(partial(list_sessions, tenant=None, after=last, limit=1)):
            seen += [(each.name, each.tenant, each.runs) for each in page]
            last = (page[-1].last, page[-1].tenant, page[-1].name)
        assert seen == [("s%", "one", 2), ("other", "two", 1), ("other", "one", 1)]  # all began at once


async def test_a_run_counts_once_for_a_worker_that_served_its_child_run_too(url: str) -> None:
    async with opened(url) as (journal, store):
        await store.add_run(replace(order("a-b-c"), key="k"))
        grade = AnswerGraded(run="a-b-c", at=12.0, checker="text", mark=GradeMark.RIGHT, score=1.0)
        await keep(journal, [*whole("a-b-c"), *whole("a-b-c-d", parent="a-b-c"), grade])
        assert (await journal.index()).complete
        found = (await journal.query(partial(recent_worker_figures, tenant=None, since=0)))["ann"][""]
        assert (found.runs, found.graded, found.right) == (2, 1, 1)


async def test_what_a_language_model_graded_is_counted_apart(url: str) -> None:
    async with opened(url) as (journal, store):
        for name, people in (("p", True), ("m", False), ("both", True)):
            await store.add_run(replace(order(name), key="k", metadata={"session": "s"}))
            store.mark(name, ServedState.ENDED, status=RunStatus.DONE, used=Amount(1, 0.1))
            said = AnswerGraded(run=name, at=12.0, checker="judge", mark=GradeMark.RIGHT, score=1.0, judged=True)
            fact = AnswerGraded(run=name, at=11.0, checker="text", mark=GradeMark.WRONG, score=0.0)
            await keep(journal, [*whole(name), *([fact] if people else []), *([said] if name != "p" else [])])
        assert (await journal.index()).complete
        period = await journal.query(partial(read_period, tenant=None, since=0))
        (day,), (session,) = period.days.values(), await journal.query(partial(list_sessions, tenant=None))
        (way,) = (await journal.query(partial(way_figures, by="conductor", tenant=None, since=0))).values()
        for each in (day, session, way, period.parts["ann"][""]):
            assert (each.graded, each.right, each.judged, each.judged_right) == (2, 0, 1, 1)
        assert (period.alone[0].graded, period.alone[0].right) == (2, 0)
        assert await journal.query(partial(run_scores, runs=["p", "m", "both"])) == {"p": 0.0, "both": 0.0}
        pages = [RunFilter(right=right, judged=judged) for judged in (False, True) for right in (True, False)]
        assert [set(await found(store, each)) for each in pages] == [set(), {"p", "both"}, {"m"}, set()]
