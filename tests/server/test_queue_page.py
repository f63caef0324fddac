"""The queue in which people judge runs: whose turn it is, what comes first, that nothing is lost, what is exported."""

import asyncio
import csv
import io
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

from serving import served
from test_pages import CONFIG, begin, browsing, csrf

from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Run
from shikisha.server.keys.key import KeyScope
from shikisha.server.pages.queue_page import dispute_rank, is_due, measure_agreement, person_grades
from support import plan_of, pool_of, run_plans


def grade(run: Run, score: float, actor: str = "") -> Run:
    """The run with one more grade."""
    mark = GradeMark.RIGHT if score else GradeMark.WRONG
    run.grades = [*run.grades, AnswerGraded(run=run.id, at=1.0, checker="x", mark=mark, score=score, actor=actor)]
    return run


async def test_disputed_runs_come_first_and_a_third_person_decides_where_two_differ() -> None:
    async def fresh() -> Run:
        return await run_plans(pool_of(ann="A", bob="B"), plan_of((0, ())))

    plain = await fresh()
    disputed = await run_plans(pool_of(ann="A", bob="B"), Plan((Step("Which?", 1), Step("Which?", 0))))
    graded = grade(grade(await fresh(), 1.0), 0.0, "ann")
    assert [dispute_rank(run) for run in (graded, disputed, plain)] == [0, 1, 2]
    assert is_due(plain.grades, "kim", 1)
    once = grade(await fresh(), 1.0, "kim")
    assert [is_due(once.grades, who, people) for who in ("kim", "lee") for people in (1, 2)] == [
        False,
        False,
        False,
        True,
    ]
    twice = grade(grade(await fresh(), 1.0, "kim"), 0.0, "lee")
    assert [is_due(twice.grades, who, people) for who in ("kim", "mia") for people in (1, 2)] == [
        False,
        False,
        True,
        True,
    ]
    settled = grade(twice, 0.0, "mia")
    assert not is_due(settled.grades, "ned", 2)
    changed = grade(once, 0.0, "kim")
    assert person_grades(changed.grades)["kim"].score == 0.0


async def test_agreement_of_two_people_is_measured_beyond_chance() -> None:
    verdicts = [(1.0, 1.0)] * 4 + [(0.0, 0.0)] * 4 + [(1.0, 0.0), (0.0, 1.0)]
    runs = []
    for ours, theirs in verdicts:
        run = await run_plans(pool_of(ann="A"), plan_of((0, ())))
        runs.append(grade(grade(run, ours, "kim"), theirs, "lee"))
    found = measure_agreement(run.grades for run in runs)
    assert found is not None
    assert (found.same, found.of, round(found.kappa or 0, 9)) == (8, 10, 0.6)
    assert measure_agreement([(await run_plans(pool_of(ann="A"), plan_of((0, ())))).grades]) is None


async def test_two_people_judge_apart_nothing_is_lost_and_all_of_it_is_exported(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as kim:
        assert at.service is not None
        runs = [await begin(at, 0, prompt=f"Question {number}?") for number in range(3)]
        token = await csrf(kim)
        other = await at.issue(KeyScope.RUN, tenant="default")
        async with browsing(at, other.secret) as lee:
            kept = [re.findall(r'<body data-login="(.+?)"', (await each.get("/ui/queue")).text) for each in (kim, lee)]
            assert kept[0] != kept[1] == [other.key.id]  # a draft is kept under its login's key
            for client, right in ((kim, "yes"), (lee, "no")):
                form = {"csrf": token if client is kim else await csrf(client), "queue": "people=2", "right": right}
                seen = []
                for _ in runs:
                    page = (await client.get("/ui/queue?people=2")).text
                    assert "further, a person" not in page  # what kim wrote is not shown to lee
                    seen += re.findall(r"/ui/runs/([^/\"]+)/feedback", page)
                    sent = await client.post(
                        f"/ui/runs/{seen[-1]}/feedback", data={**form, "note": "further, a person"}
                    )
                    assert sent.headers["location"] == f"/ui/queue?people=2&last={seen[-1]}"
                assert sorted(seen) == sorted(runs)
                assert "Nothing waits for you" in (await client.get("/ui/queue?people=2")).text  # a reload
            assert "agree on 0 of 3 runs" in (await kim.get("/ui/queue?people=2")).text
            rows = [json.loads(line) for line in (await kim.get("/ui/runs/export/annotations.jsonl")).text.splitlines()]
            assert sorted((row["run"], row["mark"]) for row in rows) == sorted(
                (run, mark) for run in runs for mark in ("right", "wrong")
            )
            cells = list(csv.DictReader(io.StringIO((await kim.get("/ui/runs/export/annotations.csv")).text)))
            assert {row["note"] for row in cells} == {"further, a person"}
            skipped = (await lee.get(f"/ui/queue?run={runs[0]}&skip={runs[0]}")).text
            assert f'action="/ui/runs/{runs[0]}/feedback"' in skipped  # a run may be judged again by its name


async def test_a_run_that_is_skipped_is_offered_again_at_the_end(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        older, run = [await begin(at, 0) for _ in range(2)]
        page = (await client.get("/ui/queue")).text
        assert f"skip={run}" in page  # the newest first
        assert f"skip={run}%2C{older}" in (await client.get(f"/ui/queue?skip={run}")).text
        assert "Back to the 2 runs that you skipped" in (await client.get(f"/ui/queue?skip={run},{older}")).text


async def test_a_run_that_was_tampered_with_keeps_nobody_from_the_queue_or_from_other_runs(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        assert at.service is not None
        broken, whole = [await begin(at, 0, prompt=prompt) for prompt in ("The first?", "The second?")]
        await client.post(f"/ui/runs/{broken}/feedback", data={"csrf": await csrf(client), "right": "yes"})
        await at.service.journal.index(9)
        (path,) = await asyncio.to_thread(lambda: list(tmp_path.rglob("*.db")))
        with closing(sqlite3.connect(path)) as connection, connection:
            changed = connection.execute("UPDATE bodies SET body = 'x' WHERE body = CAST('The first?' AS BLOB)")
            assert changed.rowcount == 1
        assert f"/ui/runs/{whole}/feedback" in (await client.get("/ui/queue")).text
        assert "What speaks for it" in (await client.get(f"/ui/runs/{whole}")).text
