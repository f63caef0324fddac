"""What people do on the pages beside a yes: they answer, change an answer, undo what was done, look into child runs."""

import re
from pathlib import Path

import pytest
from serving import served
from test_pages import begin, browsing, csrf

from shikisha.core.events import RunStatus

CONFIG = """
pool = ["solo", "person", "books", "manager", "unbook"]
[server]
port = 0
[workers.solo]
kind = "scripted"
answers = "42"
[workers.person]
kind = "human"
[workers.books]
kind = "scripted"
answers = "booked"
compensate = "unbook"
[workers.unbook]
kind = "scripted"
answers = "unbooked"
[workers.manager]
kind = "conductor"
conductor = "fixed:single"
pool = ["solo"]
"""
SOLO, PERSON, BOOKS, MANAGER = range(4)
REVIEWED = CONFIG + '[[autonomy.classes]]\nmode = "review"\nexpires = 60\n'


async def test_a_person_answers_in_a_workers_place(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        assert at.service is not None
        run = await begin(at, PERSON)
        (asked,) = (await at.service.read_run(run)).open_questions
        assert "part 0" in (await client.get("/ui/approvals")).text
        form = {"csrf": await csrf(client), "decision": "yes", "text": ""}
        way = f"/ui/approvals/{run}/{asked.question}"
        assert (await client.post(way, data=form)).status_code == 400  # an empty answer is none
        assert (await client.post(way, data={**form, "text": "one\r\ntwo"})).status_code == 303
        async for _ in at.service.listen(run):
            pass
        assert (await at.service.read_run(run)).answer == "one\ntwo"


@pytest.mark.parametrize(
    ("decision", "status", "answer"), [("yes", RunStatus.DONE, "43, to be exact"), ("no", RunStatus.FAILED, None)]
)
async def test_an_answer_is_changed_or_refused_in_review(
    tmp_path: Path, decision: str, status: RunStatus, answer: str | None
) -> None:
    async with served(tmp_path, REVIEWED) as at, browsing(at) as client:
        assert at.service is not None
        run = await begin(at, SOLO)
        (asked,) = (await at.service.read_run(run)).open_questions
        page = (await client.get(f"/ui/approvals/{run}/{asked.question}")).text
        assert re.search(r"<textarea[^>]*>\s42</textarea>", page)
        form = {"csrf": await csrf(client), "decision": decision, "text": "43, to be exact", "remark": "as I know"}
        assert (await client.post(f"/ui/approvals/{run}/{asked.question}", data=form)).status_code == 303
        async for _ in at.service.listen(run):
            pass
        past = await at.service.read_run(run)
        assert (past.status, past.answer) == (status, answer)
        assert ("in review" in (await client.get(f"/ui/runs/{run}")).text) is (decision == "yes")


async def test_what_a_run_did_is_undone_on_its_page(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        run, other = await begin(at, BOOKS), await begin(at, SOLO)
        assert "Undo what this run did" in (await client.get(f"/ui/runs/{run}")).text
        assert "Undo what this run did" not in (await client.get(f"/ui/runs/{other}")).text
        answer = await client.post(f"/ui/runs/{run}/rollback", data={"csrf": await csrf(client)})
        assert answer.status_code == 303
        page = (await client.get(f"/ui/runs/{run}")).text
        assert re.search(r">undone</b>: call <code>[^<]+</code> of books, by unbook", page)
        assert "undo unbook" in re.sub(r"<[^>]+>|\s+", " ", page).replace("  ", " ")


async def test_a_child_run_is_linked_and_has_a_page_of_its_own(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        run = await begin(at, MANAGER)
        page = (await client.get(f"/ui/runs/{run}")).text
        (child, *_) = set(re.findall(r'href="/ui/runs/([^"/]+)"', page)) - {run}
        inner = await client.get(f"/ui/runs/{child}")
        assert inner.status_code == 200
        assert f'href="/ui/runs/{run}"' in inner.text
        assert "Cancel" not in inner.text


async def test_a_run_whose_texts_were_erased_is_still_shown_without_them(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client, at.http() as api:
        run = await begin(at, SOLO, prompt="A secret of Ana's")
        assert (await api.post("/admin/erase", json={"runs": [run]})).status_code == 200
        for way in (
            f"runs/{run}",
            f"runs/{run}/journal",
            "runs",
            "workers",
            "compare",
            f"compare?left={run}&right={run}",
        ):
            answer = await client.get(f"/ui/{way}")
            assert answer.status_code == 200, way
            assert "secret of Ana" not in answer.text, way
