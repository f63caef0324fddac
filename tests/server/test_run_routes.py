"""`/runs`: begun, listed, looked at whole, followed event by event, cancelled; and nobody sees another tenant's."""

import json
from collections.abc import Mapping
from pathlib import Path

import httpx2
from responding import by_model, responding

from shikisha.server.keys.key import KeyScope
from shikisha.testing import InjectedFault, ScriptedAnswer

TASK: Mapping[str, object] = {"prompt": "What is it?"}


async def begun(http: httpx2.AsyncClient, **more: object) -> str:
    answer = await http.post("/runs", json={**TASK, **more})
    assert answer.status_code in (200, 202), answer.text
    return str(answer.json()["id"])


def events_of(text: str) -> list[dict[str, str]]:
    """The events of a stream, each as its fields."""
    blocks = [block for block in text.replace("\r\n", "\n").strip().split("\n\n") if not block.startswith(":")]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


async def test_a_task_is_done_and_shown_whole(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _), at.http() as http:
        body = {**TASK, "context": "here", "conductor": "two", "domain": "d", "labels": ["l"], "metadata": {"a": "b"}}
        answer = await http.post("/runs", json=body)
        told = answer.json()
        assert answer.status_code == 200
        assert (told["status"], told["state"], told["answer"]) == ("done", "ended", "m2 says so")
        assert (told["model"], told["domain"], told["labels"]) == ("shikisha/two", "d", ["l"])
        steps = told["explanation"]["rounds"][0]["steps"]
        assert [step["worker"] for step in steps] == ["first", "second"]
        assert told["tokens"] == told["explanation"]["totals"]["tokens"] > 0
        assert (await http.get(f"/runs/{told['id']}")).json() == told


async def test_what_cannot_be_honoured_is_refused_by_name(tmp_path: Path) -> None:
    refused: Mapping[str, Mapping[str, object]] = {
        "conductor": {"model": "shikisha", "conductor": "two"},
        "budgets.steps": {"budgets": {"steps": 10**6}},
        "budgets.money": {"budgets": {"money": 1}},
        "pool": {"pool": ["nobody"]},
        "prompt": {"prompt": ""},
        "more": {"more": 1},
    }
    async with responding(tmp_path, by_model) as (at, _), at.http() as http:
        for param, body in refused.items():
            answer = await http.post("/runs", json={**TASK, **body})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_budgets_and_workers_are_narrowed(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _), at.http() as http:
        run = await begun(http, pool=["first"], budgets={"steps": 3, "seconds": 9})
        assert at.service is not None
        started = (await at.service.read_run(run)).started
        assert (started.pool, started.caps.steps, started.caps.seconds) == (("first",), 3, 9)


async def test_a_run_is_followed_and_followed_on(tmp_path: Path) -> None:
    async with responding(tmp_path, [ScriptedAnswer(text="so it is", latency=0.1)]) as (at, _), at.http() as http:
        run = await begun(http, background=True)
        told = events_of((await http.get(f"/runs/{run}/events", params={"pieces": True})).text)
        numbered = [event for event in told if "id" in event]
        assert [int(event["id"]) for event in numbered] == list(range(len(numbered)))
        assert [numbered[0]["event"], numbered[-1]["event"], told[-1]["event"]] == [
            "run.started",
            "run.finished",
            "end",
        ]
        assert "config" not in json.loads(numbered[0]["data"])
        assert "".join(json.loads(each["data"])["piece"] for each in told if each["event"] == "text") == "so it is"
        rest = await http.get(f"/runs/{run}/events", headers={"Last-Event-ID": "3"})
        assert [event["id"] for event in events_of(rest.text) if "id" in event] == [each["id"] for each in numbered[4:]]
        over = await http.get(f"/runs/{run}/events", params={"after": numbered[-1]["id"]})
        assert over.status_code == 204


async def test_runs_are_listed_a_page_at_a_time_and_filtered(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _), at.http() as http:
        runs = [await begun(http, prompt=f"What is {name}?") for name in ("one", "two", "three")]
        first = (await http.get("/runs", params={"limit": 2})).json()
        assert [run["id"] for run in first["data"]] == [runs[2], runs[1]]
        rest = (await http.get("/runs", params={"after": first["next"]})).json()
        assert ([run["id"] for run in rest["data"]], rest["has_more"]) == ([runs[0]], False)
        found = (await http.get("/runs", params={"text": "two", "status": "done", "api": "runs"})).json()
        assert [run["id"] for run in found["data"]] == [runs[1]]
        assert (await http.get("/runs", params={"after": "nonsense"})).status_code == 400
        assert (await http.get("/runs", params={"unknown": "1"})).status_code == 400


async def test_a_run_is_cancelled_for_good(tmp_path: Path) -> None:
    async with responding(tmp_path, [ScriptedAnswer(mishap=InjectedFault.SILENCE)]) as (at, _), at.http() as http:
        run = await begun(http, background=True)
        told = (await http.post(f"/runs/{run}/cancel")).json()
        assert (told["state"], told["status"]) == ("stopped", "interrupted")
        assert events_of((await http.get(f"/runs/{run}/events")).text)[-1]["event"] == "end"


async def test_what_a_run_waits_for_is_shown(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model, 'approval = "always"') as (at, _), at.http() as http:
        told = (await http.post("/runs", json=TASK)).json()
        assert (told["state"], told["status"]) == ("waiting", "suspended")
        (question,) = told["questions"]
        assert (question["asks"], question["worker"]) == ("approve", "first")


async def test_another_tenants_run_is_not_there(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model) as (at, _), at.http() as http:
        run = await begun(http)
        other = await at.issue(KeyScope.RUN, KeyScope.READ)
        async with at.http(other.secret) as stranger:
            for path in (f"/runs/{run}", f"/runs/{run}/events", "/runs/261122-000000-00000000"):
                assert (await stranger.get(path)).status_code == 404
            assert (await stranger.post(f"/runs/{run}/cancel")).status_code == 404
            assert (await stranger.get("/runs")).json()["data"] == []
            assert (await stranger.get("/runs", params={"tenant": "main"})).status_code == 404
        reader = await at.issue(KeyScope.READ)
        async with at.http(reader.secret) as only_reads:
            assert (await only_reads.post("/runs", json=TASK)).status_code == 403


TEAM = """
[workers.team]
kind = "conductor"
conductor = "two"
pool = ["first", "second"]
[conductors.three]
kind = "fixed"
topology = "single"
roles = {worker = "team"}
"""


async def test_child_runs_are_listed_looked_at_and_followed_like_their_parent(tmp_path: Path) -> None:
    async with responding(tmp_path, by_model, end=TEAM) as (at, _), at.http() as http:
        told = (await http.post("/runs", json={**TASK, "conductor": "three"})).json()
        assert told["answer"] == "m2 says so"
        (child,) = told["children"]
        shown = (await http.get(f"/runs/{child}")).json()
        assert (shown["root"], shown["explanation"]["parent"]) == (told["id"], told["id"])
        assert shown["tokens"] == told["tokens"]
        assert events_of((await http.get(f"/runs/{child}/events")).text)[0]["event"] == "run.started"
        assert (await http.post(f"/runs/{child}/cancel")).status_code == 409
        other = await at.issue(KeyScope.RUN)
        async with at.http(other.secret) as stranger:
            assert (await stranger.get(f"/runs/{child}")).status_code == 404
