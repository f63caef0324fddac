"""A run, or a call of it, once more with another prompt, worker or plan: what holds, and what is asked first."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from time import sleep

import httpx2
import pytest
from serving import At, served
from shelves import asking, shelf_of
from test_pages import begin, browsing, csrf

from shikisha.core.call import ApprovalMode, Card
from shikisha.core.errors import PlanError
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.core.run import Run
from shikisha.core.task import EVERYBODY
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys import KeySpec
from shikisha.server.keys.key import KeyScope
from shikisha.server.lifecycle.service import RunService
from shikisha.server.pages import runs_page
from shikisha.server.pages.replay_page import StepForm, may_change_something, parse_place, plan_of_forms

CONFIG = """
[server]
port = 0
[budgets]
dollars = 0.5
[workers.solo]
kind = "scripted"
answers = "42"
[workers.other]
kind = "scripted"
answers = "43"
[workers.books]
kind = "scripted"
answers = "booked"
approval = "always"
"""
SOLO, OTHER, BOOKS = range(3)


async def replayed(at: At, client: httpx2.AsyncClient, run: str, **fields: str | list[str]) -> tuple[str, Run | None]:
    """Send the form of a run's replay; return where it leads or what it shows, and the run once it ends or waits."""
    form = {"csrf": await csrf(client), "prompt": "What?", "model": "shikisha", "how": "plan", "context": "", **fields}
    answer = await client.post(f"/ui/runs/{run}/replay", data=form)
    if answer.status_code != 303:
        return f"{answer.status_code} {answer.text}", None
    assert at.service is not None
    found = re.findall(r"right=([^&#]+)", answer.headers["location"])[0]
    async for _ in at.service.listen(found):
        pass
    return answer.headers["location"], await at.service.read_run(found)


async def test_a_run_is_replayed_with_another_prompt_worker_and_plan_beside_the_first(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        run = await begin(at, SOLO, SOLO)
        page = (await client.get(f"/ui/runs/{run}/replay")).text
        assert page.count('name="subtask"') == 3  # two steps, and one more
        steps = {"worker": ["other", "solo", "solo"], "subtask": ["first", "second", ""], "access": ["", "0", ""]}
        way, again = await replayed(at, client, run, prompt="Really?", **steps)
        assert again is not None
        plan = again.rounds[0].plan
        assert plan is not None
        assert [(again.started.pool[step.worker], step.subtask, step.access) for step in plan.steps] == [
            ("other", "first", ()),
            ("solo", "second", (0,)),
        ]
        assert (again.started.prompt, again.answer) == ("Really?", "42")
        beside = (await client.get(way)).text
        assert "<del>What</del><ins>Really</ins>" in beside
        assert "<del>solo</del> <ins>other</ins>" in beside
        _, anew = await replayed(at, client, run, how="anew", again="books")
        assert anew is not None
        assert anew.answer == "42"
        await replayed(at, client, run, how="anew", model="shikisha-mini", again="books")
        policies = (await client.get("/ui/compare")).text
        assert "shikisha-mini (1)" in policies
        assert "The second less the first" in policies


async def test_a_call_is_replayed_alone_with_what_it_saw(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        assert at.service is not None
        run = await begin(at, SOLO, SOLO)
        _, chained = await replayed(
            at, client, run, worker=["solo", "solo"], subtask=["first", "second"], access=["", "0"]
        )
        assert chained is not None
        page = (await client.get(f"/ui/runs/{chained.id}/replay?step=0.1")).text
        assert "Result of step 0:\n42" in page
        assert page.count('name="subtask"') == 1
        seen = {"step": "0.1", "context": "Result of step 0:\n42"}
        way, again = await replayed(at, client, chained.id, worker="other", subtask="third", access="", **seen)
        assert again is not None
        assert (again.answer, again.started.context) == ("43", "Result of step 0:\n42")
        beside = (await client.get(way)).text
        assert "A call and its replay" in beside
        assert "<del>42</del><ins>43</ins>" in beside
        assert "<del>second</del><ins>third</ins>" in beside
        assert (await client.get(way.replace("step=0.1", "step=9.9"))).status_code == 404
        assert (await client.get(f"/ui/runs/{run}/replay?step=0.7")).status_code == 404


async def test_nothing_that_may_change_something_is_called_again_unasked_and_an_approval_holds(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        assert at.service is not None
        run = await begin(at, BOOKS)
        begun = len(await at.service.journal.runs())
        step = {"worker": "books", "subtask": "Book it.", "access": ""}
        for fields in (step, {"how": "anew"}, {**step, "again": "solo"}):
            shown, again = await replayed(at, client, run, **fields)
            assert (shown[:3], again) == ("409", None)
            assert 'name="again" value="books"' in shown
        assert len(await at.service.journal.runs()) == begun
        sent = [await replayed(at, client, run, **step, again="books", once="a") for _ in range(2)]
        assert sent[0][0] == sent[1][0]  # a form that is sent twice
        assert len(await at.service.journal.runs()) == begun + 1
        again = sent[0][1]
        assert again is not None
        assert again.open_questions  # it waits for a yes of its own
        assert (await replayed(at, client, run, **step, again="books", once="b"))[0] != sent[0][0]


async def test_caps_and_labels_of_the_first_run_hold_and_what_is_no_plan_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        run = await begin(at, SOLO)
        step = {"worker": "solo", "subtask": "x", "access": ""}
        for fields, why in (
            ({**step, "dollars": "9"}, "at most 0.5, as in the first run"),
            ({**step, "access": "1"}, "step 0"),
            ({**step, "access": "x"}, "expected numbers of earlier steps"),
            ({**step, "worker": "nobody"}, "is not among solo, other, books"),
            ({**step, "subtask": " "}, "the plan is empty"),
            ({**step, "prompt": ""}, "the prompt is empty"),
        ):
            shown, again = await replayed(at, client, run, **fields)
            assert (shown[:3], again) == ("400", None), fields
            assert why in shown, fields
        _, again = await replayed(at, client, run, **step, dollars="0.1")
        assert again is not None
        assert again.started.caps.dollars == 0.1


def test_a_step_that_is_left_out_changes_nobodys_access() -> None:
    forms = [StepForm("a", text, sees) for text, sees in (("x", ""), ("", ""), ("y", "0"), ("z", "0"), ("end", "2"))]
    assert [step.access for step in plan_of_forms(forms, ("a",), None).steps] == [(), (0,), (0,), (1,)]
    for sees in ("1", "4", "5"):
        with pytest.raises(PlanError, match="expected numbers of earlier steps"):
            plan_of_forms([*forms[:4], StepForm("a", "end", sees)], ("a",), None)


def test_stand_ins_count_and_an_unknown_kind_may_change_something() -> None:
    chat, other = Card("chat", kind="chat", fallback="tool"), Card("plain", kind="chat")
    tool, mail = Card("tool", kind="http"), replace(other, name="mail", compensate="unsend")
    asks = replace(other, name="asks", approval=ApprovalMode.WRITES)
    assert may_change_something(["chat", "plain"], [chat, other, tool]) == ["tool"]
    assert may_change_something(["mail", "asks", "gone"], [mail, asks]) == ["mail", "asks", "gone"]
    assert [parse_place(text) for text in ("0.1", "")] == [(0, 1), None]


async def test_a_place_or_number_that_is_none_is_refused_and_nothing_begins(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        run = await begin(at, SOLO)
        for place in ("x", "1.-1", "9999.99999", "0.\u00b2", "0.1" + "0" * 5_000):
            with pytest.raises(ApiError, match="round and step"):
                parse_place(place)
        step = {"worker": "solo", "subtask": "x", "access": ""}
        for fields, status in (({"step": "x"}, "404"), ({"step": "0.7"}, "404"), ({"access": "9" * 5_000}, "400")):
            shown, again = await replayed(at, client, run, **{**step, **fields})
            assert (shown[:3], again) == (status, None), fields


async def test_an_admin_does_not_take_another_tenants_run_into_its_own(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as admin:
        theirs = await at.issue(KeyScope.RUN, tenant="other")
        run = await begin(at, SOLO, key=theirs.secret)
        assert "/replay" not in (await admin.get(f"/ui/runs/{run}")).text
        assert (await admin.get(f"/ui/runs/{run}/replay")).status_code == 403
        shown, again = await replayed(at, admin, run, worker="solo", subtask="x", access="")
        assert (shown[:3], again) == ("403", None)
        async with browsing(at, theirs.secret) as client:
            assert "/replay" in (await client.get(f"/ui/runs/{run}")).text
            assert (await client.get(f"/ui/runs/{run}/replay")).status_code == 200


async def test_a_policy_that_did_not_act_is_asked_again_and_what_is_not_known_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = [replace(made, about=replace(made.about, scope=EVERYBODY)) for made in (asking("ann"), asking("bob"))]
    ann, bob = shelf_of(tmp_path / "shelf", *policies)
    workers = "".join(f'[workers.{name}]\nkind = "scripted"\nanswers = "{name}"\n' for name in ("ann", "bob", "cyd"))
    config = f'[server]\nport = 0\n{workers}[conductors.shelf]\nkind = "policy"\nfile = "shelf"\n'
    async with served(tmp_path, config) as at, browsing(at) as client:
        assert at.service is not None
        page = (await client.get("/ui/compare/policy")).text
        assert all(f"shelf: policy-{place} {version}" in page for place, version in enumerate((ann, bob)))
        runs = [await begin(at, 0, prompt=f"{number}?") for number in range(2)]  # as ann alone answers
        at.service.journal.add(AnswerGraded(run=runs[0], at=9.0, checker="text", mark=GradeMark.RIGHT, score=1.0))
        await at.service.journal.flush()
        for place, version, same in ((0, ann, "100 %"), (1, bob, "0 %")):
            shown = await client.get("/ui/compare/policy", params={"policy": f"shelf: policy-{place} {version}"})
            text = " ".join(re.sub(r"<[^>]+>", "", shown.text).split())
            assert f"It would have done all that was done on {same}" in text
            assert "By inverse propensity: not known. No run has recorded chances" in text
            assert "The runs themselves: 100 % [21 %, 100 %] of 1 task right" in text
        files = {"policy": str(tmp_path / "shelf" / f"{ann}.policy")}  # a file is no name
        assert "It would have done" not in (await client.get("/ui/compare/policy", params=files)).text
        busy, most, replay = 0, 0, runs_page._replay

        def counted(service: RunService, runs: list[Run], spec: str, name: str) -> object:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            sleep(0.05)  # long enough for others to begin, if they may
            try:
                return replay(service, runs, spec, name)
            finally:
                busy -= 1

        monkeypatch.setattr(runs_page, "_replay", counted)
        asked = {"policy": f"shelf: policy-0 {ann}"}
        answers = await asyncio.gather(*(client.get("/ui/compare/policy", params=asked) for _ in range(4)))
        assert all("It would have done" in each.text for each in answers)
        assert most == 1
        assert len(await at.service.journal.runs()) == 2


async def test_a_view_is_shared_within_its_tenant_and_home_shows_the_parts_and_columns_that_are_chosen(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        assert at.service is not None
        await begin(at, SOLO)
        chosen = "/ui/overview?show=model&column=cost&column=p50"
        own = {"csrf": await csrf(client), "name": " Our  costs ", "address": chosen}
        assert (await client.post("/ui/views", data=own)).headers["location"] == chosen
        page = (await client.get(chosen)).text
        heads = re.findall(r'<th scope="col"[^>]*>([^<]+)', page)
        assert (heads, "By worker</h2>" in page, 'class="lead"' in page) == (
            ["Model", "Cost", "Time p50"],
            False,
            False,
        )
        assert 'href="/ui/overview?show=model&amp;column=cost&amp;column=p50">Our costs</a>' in page
        for wrong in ({"address": "https://example.org/"}, {"address": "/ui/keys"}, {"name": " "}, {"name": "x" * 61}):
            assert (await client.post("/ui/views", data={**own, **wrong})).status_code == 400, wrong
        keys = [
            await at.service.keys.issue(KeySpec("k", tenant, frozenset({scope})), "tests")
            for tenant, scope in (("other", KeyScope.RUN), ("default", KeyScope.READ))
        ]
        for key, seen in zip(keys, (False, True), strict=True):
            async with browsing(at, key.secret) as reader:
                page = (await reader.get("/ui/overview")).text
                assert (">Our costs</a>" in page, "Remove a view" in page) == (seen, False)
        await client.post("/ui/views/remove", data=own | {"name": "Our costs"})
        assert ">Our costs</a>" not in (await client.get("/ui/overview")).text
