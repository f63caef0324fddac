"""Outcomes from where work ends, over HTTP: our own form, GitHub's and GitLab's events, and senders who may not."""

import hmac
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from serving import At, served

from shikisha.core.errors import ConfigError
from shikisha.core.events import AnswerGraded, GradeBasis
from shikisha.server.keys.key import KeyScope

SECRET, THEIRS, WRONG = "a secret of sixteen or more", "another secret of another tenant", "a wrong secret"
COMMIT, TRACE = "0123456789abcdef0123456789abcdef01234567", "4bf92f3577b34da6a3ce929d0e0e4736"
Body = Callable[[str], dict[str, Any]]
CONFIG = """
pool = ["send"]
[server]
port = 0
outcomes = [{ secret_env = "HOOK" }, { secret_env = "THEIRS", tenant = "theirs" }]
[workers.send]
kind = "scripted"
answers = "sent"
"""


@dataclass(frozen=True, slots=True)
class Here:
    """A served service with one run that has an answer."""

    at: At
    client: httpx2.AsyncClient
    run: str

    async def hook(
        self, event: str, body: Mapping[str, Any], delivery: str = "", secret: str = SECRET
    ) -> tuple[int, dict[str, Any]]:
        """Send an event as GitHub does."""
        raw = json.dumps(body).encode()
        signature = "sha256=" + hmac.new(secret.encode(), raw, "sha256").hexdigest()
        headers = {"x-github-event": event, "x-hub-signature-256": signature, "x-github-delivery": delivery}
        told = await self.client.post("/v1/outcomes", content=raw, headers=headers)
        return told.status_code, told.json()

    async def lab(self, body: Mapping[str, Any], delivery: str = "", token: str = SECRET) -> tuple[int, dict[str, Any]]:
        """Send an event as GitLab does."""
        headers = {"x-gitlab-event": "Hook", "x-gitlab-token": token, "x-gitlab-event-uuid": delivery}
        told = await self.client.post("/v1/outcomes", json=body, headers=headers)
        return told.status_code, told.json()

    async def grades(self) -> list[AnswerGraded]:
        """The grades in the journal."""
        assert self.at.service is not None
        return (await self.at.service.read_run(self.run)).grades


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    async with served(tmp_path, CONFIG, {"HOOK": SECRET, "THEIRS": THEIRS}) as at, at.http() as own:
        sent = {"prompt": "send it", "metadata": {"commit": COMMIT, "ticket": "T-7"}}
        told = await own.post("/runs", json=sent, headers={"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"})
        assert told.status_code == 200, told.text
        async with at.http(None) as client:
            yield Here(at, client, str(told.json()["id"]))


def suite(run: str, conclusion: str) -> dict[str, Any]:
    commit = {"message": f"Mend it\n\nShikisha-Run: {run}"}
    return {"action": "completed", "check_suite": {"conclusion": conclusion, "head_branch": "x", "head_commit": commit}}


def pull(run: str, merged: bool) -> dict[str, Any]:
    about = {"merged": merged, "title": "Mend it", "body": None, "head": {"ref": f"shikisha/{run}"}}
    return {"action": "closed", "pull_request": about, "sender": {"login": "ann"}}


def issue(run: str, action: str = "reopened") -> dict[str, Any]:
    return {"action": action, "issue": {"title": "Broken", "body": f"Shikisha-Run: {run}"}}


def push(message: str) -> dict[str, Any]:
    return {"commits": [{"message": "Something else"}, {"message": message}]}


def pipeline(run: str, status: str) -> dict[str, Any]:
    return {"object_kind": "pipeline", "object_attributes": {"status": status, "ref": f"shikisha/{run}"}}


def merge(run: str, action: str) -> dict[str, Any]:
    about = {"action": action, "title": "Mend it", "description": f"Shikisha-Run: {run}"}
    return {"object_kind": "merge_request", "object_attributes": about, "user": {"username": "bob"}}


@pytest.mark.parametrize(
    ("event", "body", "score", "source", "basis"),
    [
        ("check_suite", lambda run: suite(run, "success"), 1.0, "github.check_suite", "executed"),
        ("check_suite", lambda run: suite(run, "timed_out"), 0.0, "github.check_suite", "executed"),
        (
            "workflow_run",
            lambda run: {"action": "completed", "workflow_run": suite(run, "failure")["check_suite"]},
            0.0,
            "github.workflow_run",
            "executed",
        ),
        ("pull_request", lambda run: pull(run, True), 1.0, "github.pull_request", "person"),
        ("pull_request", lambda run: pull(run, False), 0.0, "github.pull_request", "person"),
        ("issues", issue, 0.0, "github.issues.reopened", "executed"),
        ("push", lambda run: push(f'Revert "Mend it"\n\nShikisha-Run: {run}'), 0.0, "github.push.revert", "executed"),
        # By the commit that the run's metadata hold.
        (
            "check_suite",
            lambda _: {"action": "completed", "check_suite": {"conclusion": "success", "head_sha": COMMIT}},
            1.0,
            "github.check_suite",
            "executed",
        ),
        (
            "push",
            lambda _: push(f'Revert "Mend"\n\nThis reverts commit {COMMIT}.'),
            0.0,
            "github.push.revert",
            "executed",
        ),
        (
            "push",
            lambda run: (
                push("Apply suggestions from code review")
                | {"ref": f"refs/heads/shikisha/{run}", "sender": {"login": "ann"}}
            ),
            1.0,
            "github.push.suggestion",
            "person",
        ),
        (
            "",
            lambda _: {"object_kind": "pipeline", "object_attributes": {"status": "failed", "sha": COMMIT}},
            0.0,
            "gitlab.pipeline",
            "executed",
        ),
        (
            "",
            lambda run: (
                {"object_kind": "push", "user_username": "bob"} | push(f"Apply 1 suggestion(s)\n\nShikisha-Run: {run}")
            ),
            1.0,
            "gitlab.push.suggestion",
            "person",
        ),
        ("", lambda run: pipeline(run, "success"), 1.0, "gitlab.pipeline", "executed"),
        ("", lambda run: pipeline(run, "failed"), 0.0, "gitlab.pipeline", "executed"),
        ("", lambda run: merge(run, "merge"), 1.0, "gitlab.merge_request", "person"),
        ("", lambda run: merge(run, "close"), 0.0, "gitlab.merge_request", "person"),
    ],
)
async def test_an_event_grades_the_run_that_it_names(
    here: Here, event: str, body: Body, score: float, source: str, basis: str
) -> None:
    sent = body(here.run)
    status, told = await (here.hook(event, sent, "d1") if event else here.lab(sent, "d1"))
    assert (status, [one["run"] for one in told["graded"]]) == (201, [here.run])
    [grade] = await here.grades()
    assert (grade.score, grade.checker, grade.basis, grade.judged) == (score, source, GradeBasis(basis), False)


@pytest.mark.parametrize(
    ("event", "body"),
    [
        ("check_suite", lambda run: suite(run, "cancelled")),
        ("check_suite", lambda run: suite(run, "success") | {"action": "requested"}),
        ("check_suite", lambda _: {"action": "completed", "check_suite": None}),
        ("pull_request", lambda run: pull(run, True) | {"action": "opened"}),
        ("issues", lambda run: issue(run, "closed")),
        ("push", lambda run: push(f"Mend it\n\nShikisha-Run: {run}")),
        ("push", lambda run: {"commits": f"Revert {run}"}),
        ("star", issue),
        ("", lambda run: pipeline(run, "running")),
        ("", lambda run: merge(run, "approved")),
        ("", lambda run: {"object_kind": run, "object_attributes": [1]}),
        ("check_suite", lambda run: suite(run[:-1] + "?", "success")),
        ("check_suite", lambda _: suite("no-such-run", "success")),
    ],
)
async def test_an_event_that_decides_nothing_or_names_no_run_leaves_no_trace(
    here: Here, event: str, body: Body
) -> None:
    sent = body(here.run)
    status, told = await (here.hook(event, sent) if event else here.lab(sent))
    assert (status, told["graded"]) == (202, [])
    assert told["ignored"]
    assert await here.grades() == []


async def test_a_delivery_grades_a_run_once_and_later_events_are_further_grades(here: Here) -> None:
    assert (await here.hook("check_suite", suite(here.run, "success"), "d1"))[0] == 201
    again, told = await here.hook("check_suite", suite(here.run, "success"), "d1")
    assert (again, told["graded"][0]["score"]) == (200, 1.0)
    assert (await here.hook("issues", issue(here.run), "d2"))[0] == 201
    assert [grade.score for grade in await here.grades()] == [1.0, 0.0]
    assert here.at.service is not None
    counts = (await here.at.service.read_run(here.run)).grade
    assert counts is not None
    assert counts.score == 0.0  # what was reopened was not right, whatever the checks said before


async def test_only_who_signs_is_heard_and_only_about_runs_of_its_tenant(here: Here) -> None:
    body = suite(here.run, "success")
    assert (await here.hook("check_suite", body, secret=WRONG))[0] == 401
    assert (await here.lab(pipeline(here.run, "success"), token=WRONG))[0] == 401
    assert (await here.lab(pipeline(here.run, "success"), token=""))[0] == 401
    unsigned = await here.client.post("/v1/outcomes", json=body, headers={"x-github-event": "check_suite"})
    assert unsigned.status_code == 401
    status, told = await here.hook("check_suite", body, secret=THEIRS)
    assert (status, told["ignored"]) == (202, "it names no run of this tenant")
    assert await here.grades() == []


async def test_our_own_form_with_a_key(here: Here) -> None:
    async with here.at.http() as client:
        sent = {"run": here.run, "score": 0.5, "source": "rows", "delivery": "row-7", "remark": "half were kept"}
        assert [(await client.post("/v1/outcomes", json=sent)).status_code for _ in range(2)] == [201, 200]
        person = {"run": f"resp_{here.run}", "score": 1, "basis": "person"}
        assert (await client.post("/v1/outcomes", json=person)).json()["graded"][0]["basis"] == "person"
        for wrong, status in (
            ({"run": here.run}, 400),
            ({"score": 1}, 400),
            ({"run": here.run, "session": "s", "score": 1}, 400),
            ({"run": here.run, "score": 2}, 400),
            ({"run": "no-such-run", "score": 1}, 404),
            ({"session": "none", "score": 1}, 404),
            ({"reference": "none", "score": 1}, 404),
            ({"reference": COMMIT[:20], "score": 1}, 404),
        ):
            assert (await client.post("/v1/outcomes", json=wrong)).status_code == status, wrong
        huge = {"run": here.run, "score": 1, "remark": "x" * 20_000}
        assert (await client.post("/v1/outcomes", json=huge)).status_code == 400
    first, second = await here.grades()
    assert (first.score, first.checker, first.basis) == (0.5, "rows", GradeBasis.EXECUTED)
    assert first.evidence == "half were kept [delivery row-7]"
    assert second.basis is GradeBasis.PERSON
    other = await here.at.issue(KeyScope.RUN, tenant="theirs")
    told = await here.client.post("/v1/outcomes", json=sent, headers={"Authorization": f"Bearer {other.secret}"})
    assert told.status_code == 404


async def test_a_session_means_its_last_run(here: Here) -> None:
    async with here.at.http() as client:
        headers = {"X-Shikisha-Session": "ticket-7"}
        body = {"model": "shikisha", "messages": [{"role": "user", "content": "send it"}]}
        runs = [(await client.post("/v1/chat/completions", json=body, headers=headers)).json()["id"] for _ in range(2)]
        told = await client.post("/v1/outcomes", json={"session": "ticket-7", "score": 0})
        assert told.json()["graded"][0]["run"] == runs[-1].removeprefix("chatcmpl-")


async def test_a_secret_that_is_missing_is_said_when_the_server_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="THEIRS"):
        async with served(tmp_path, CONFIG, {"HOOK": SECRET}):
            pass


@pytest.mark.parametrize("reference", [COMMIT, TRACE, "T-7"], ids=["commit", "trace", "ticket"])
async def test_a_run_is_found_by_what_its_metadata_hold(here: Here, reference: str) -> None:
    async with here.at.http() as client:
        sent = {"reference": reference, "score": 1, "delivery": "days later"}
        told = [await client.post("/v1/outcomes", json=sent) for _ in range(2)]
    assert [one.status_code for one in told] == [201, 200]
    assert [grade.score for grade in await here.grades()] == [1.0]
    theirs, ignored = await here.hook(
        "check_suite",
        {"action": "completed", "check_suite": {"conclusion": "success", "head_sha": COMMIT}},
        secret=THEIRS,
    )
    assert (theirs, ignored["graded"]) == (202, [])
