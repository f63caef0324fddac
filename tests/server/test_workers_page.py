"""What the index says of calls: whose they are, what counts as answered, and how often their runs were right."""

import re
from functools import partial
from pathlib import Path

import pytest
from serving import At, served
from test_pages import CONFIG, begin, browsing

from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.engine.worker import Card
from shikisha.server.keys.key import KeyScope
from shikisha.server.pages.overview_page import best_alone
from shikisha.server.pages.workers_page import workers_view
from shikisha.server.store.run_figures import (
    AloneFigures,
    RunFigures,
    alone_figures,
    recent_worker_figures,
    way_figures,
)

FLAKY = """
[server]
port = 0
[workers.flaky]
kind = "scripted"
answers = ["41", "42"]
faults = ["connect"]
input_tokens = 10
output_tokens = 5
checks = ["right"]
[workers.flaky.price]
input = 1000
output = 1000
[checks.right]
kind = "pattern"
pattern = "42"
"""


async def figures(at: At, tenant: str | None = None) -> dict[str, dict[str, RunFigures]]:
    assert at.service is not None
    await at.service.journal.index(9)
    return await at.service.journal.query(partial(recent_worker_figures, tenant=tenant, since=0))


async def grade(at: At, run: str, score: float) -> None:
    assert at.service is not None
    mark = GradeMark.RIGHT if score else GradeMark.WRONG
    at.service.journal.add(AnswerGraded(run=run, at=1.0, checker="exact", mark=mark, score=score))
    await at.service.journal.flush()


async def test_a_worker_that_answers_always_and_is_wrong_is_shown_as_wrong(tmp_path: Path) -> None:
    async with served(tmp_path, FLAKY) as at:
        run = await begin(at, 0)
        found = (await figures(at))["flaky"][""]
        assert (found.runs, found.done, found.tokens, found.graded) == (3, 1, 30, 0)
        assert found.dollars == pytest.approx(0.03)
        await grade(at, run, 0.0)
        found = (await figures(at))["flaky"][""]
        assert (found.graded, found.right, found.right_share) == (1, 0, 0.0)
        async with browsing(at) as client:
            shown = (await client.get("/ui/overview")).text.partition("By worker")[2].partition("By model")[0]
        assert re.search(r'data-name="right">0\s% <small class="quiet">of 1<', shown), shown


async def test_a_tenant_sees_its_own_calls_only(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at:
        theirs = await at.issue(KeyScope.RUN, tenant="other")
        await begin(at, 0)
        await begin(at, 0, key=theirs.secret)
        counts = {
            tenant: sum(part.runs for worker in (await figures(at, tenant)).values() for part in worker.values())
            for tenant in (None, "other", "nobody")
        }
        assert counts[None] == 2 * counts["other"] > counts["nobody"] == 0


async def test_runs_that_one_worker_answered_alone_are_counted_for_it(tmp_path: Path) -> None:
    async with served(tmp_path, FLAKY) as at:
        assert at.service is not None
        await grade(at, await begin(at, 0), 1.0)
        await at.service.journal.index(9)
        found = await at.service.journal.query(partial(alone_figures, tenant=None, since=0))
        assert [(one.worker, one.priced, one.graded, one.right) for one in found] == [("flaky", 1, 1, 1)]
        assert found[0].dollars == pytest.approx(0.03)
        assert found[0].squares == pytest.approx(0.03**2)


async def test_a_run_that_waits_for_a_person_is_no_failure_of_its_policy(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at:
        assert at.service is not None
        for worker in (0, 1):  # the second asks for approval
            await begin(at, worker)
        await at.service.journal.index(9)
        found = await at.service.journal.query(partial(way_figures, by="model", tenant=None, since=0))
        assert [(each.runs, each.done) for each in found.values()] == [(1, 1)]


def test_the_best_alone_is_the_most_often_right_with_enough_graded_and_its_dollars_have_an_interval() -> None:
    few, best = AloneFigures("few", 100, 1.0, 0.02, 29, 29), AloneFigures("best", 100, 2.0, 0.05, 40, 36)
    other, mixed = AloneFigures("other", 100, 1.0, 0.02, 40, 20), AloneFigures("", 900, 9.0, 0.1, 900, 900)
    found = best_alone([few, other, best, mixed], 1_000)
    assert found is not None
    assert (found.worker, found.right.right, found.right.of) == ("best", 36, 40)
    assert (found.right.low, found.right.high) == pytest.approx((0.769, 0.960), abs=0.001)
    assert found.dollars is not None
    reach = 1_000 * 1.96 * ((0.05 / 100 - 0.02**2) / 99) ** 0.5
    assert found.dollars == pytest.approx((20.0, 20.0 - reach, 20.0 + reach))
    assert best_alone([few, mixed], 1_000) is None


def test_workers_that_are_no_more_are_shown_after_those_that_are_configured() -> None:
    found = {
        "a": {"law": RunFigures("a", runs=2, done=1), "tax": RunFigures("a", runs=1)},
        "gone": {"": RunFigures("gone")},
    }
    one, other, gone = workers_view(found, [Card("a"), Card("b")])
    assert (one.all.runs, one.all.done, [domain for domain, _ in one.by_domain]) == (3, 1, ["law", "tax"])
    assert (other.all.runs, other.all.done_share) == (0, None)
    assert (gone.name, gone.card) == ("gone", None)


async def test_pages_and_filters_show_a_models_grades_apart(tmp_path: Path) -> None:
    async with served(tmp_path, FLAKY) as at, browsing(at) as client:
        assert at.service is not None
        run = await begin(at, 0)
        said = AnswerGraded(run=run, at=9.0, checker="judge", mark=GradeMark.RIGHT, score=1.0, judged=True)
        at.service.journal.add(said)
        await at.service.journal.flush()
        await at.service.journal.index(9)
        for page in ("overview", "workers", "sessions", "compare"):
            text = " ".join(re.sub(r"<[^>]+>", "", (await client.get(f"/ui/{page}")).text).split())
            assert ("a model: 100 % of 1" in text) == (page in ("overview", "workers")), page
            assert "A model takes 100 % of 1 of others for right." in text or page != "overview"
        lists = {right: (await client.get(f"/ui/runs?right={right}")).text for right in ("yes", "no", "model-yes")}
        assert {right: run in text for right, text in lists.items()} == {"yes": False, "no": False, "model-yes": True}
        row = (await client.get("/ui/runs/export/runs.jsonl")).json()
        assert (row["score"], row["judged"]) == (1.0, True)
        assert (await client.get("/ui/runs/export/taskset.jsonl")).text == ""
