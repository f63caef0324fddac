"""The page of what was learned: its evidence and intervals, its switches, and who may see and turn them."""

from dataclasses import replace
from pathlib import Path

import pytest
from serving import served
from test_pages import browsing, csrf

from shikisha.config.learned_switches import LearnedSwitches
from shikisha.core.errors import ConfigError
from shikisha.core.task import OPERATOR
from shikisha.learned.learned_file import LearnedGain, write_learned
from shikisha.learned.lessons import LessonState, book_file, load_book, make_lesson
from shikisha.learned.skills import Skill, SkillStep, write_skill
from shikisha.learned.tuned_prompt import prompt_file
from shikisha.server.keys.key import KeyScope

CONFIG = """
conductor = "lm:planner"
[server]
port = 0
[workers.planner]
kind = "scripted"
answers = 'model_id = [1]\\nsubtasks = ["x"]\\naccess_list = [[]]'
[workers.solo]
kind = "scripted"
answers = "42"
[learned]
prompt = "advice.json"
lessons = "lessons.json"
skills = "skills"
"""
GAIN = LearnedGain("share of right runs", 0.2, 0.1, 0.3, 80, "measured")
HOSTILE = '<img src=x onerror=alert(1)>{{ 7*7 }}"'


def fill_learned(folder: Path) -> None:
    """Write advice, three lessons and a skill, as the commands do."""
    write_learned(
        folder / "advice.json", prompt_file("Show every step what it needs.", ("r1", "r2"), OPERATOR, GAIN, 1.0)
    )
    kept = replace(
        make_lesson("Ask solo for harbours.", "Which harbour is open?", ["r1"]),
        shown=(40, 32.0),
        withheld=(40, 16.0),
        state=LessonState.KEPT,
    )
    trial = make_lesson(f"Say the year. {HOSTILE}", f"What year is it? {HOSTILE}", ["r2", "r3"])
    retired = replace(make_lesson("Shout.", "Shout it.", ["r4"]), state=LessonState.RETIRED)
    write_learned(folder / "lessons.json", book_file([kept, trial, retired], OPERATOR, 1.0))
    step = SkillStep("Say {0}.", "solo", ())
    write_skill(folder / "skills", Skill("skill-1", ("Say ", " now"), (step,), ("r5",), (4, 4), OPERATOR), 1.0)


async def test_all_that_was_learned_stands_with_its_evidence_and_intervals(tmp_path: Path) -> None:
    fill_learned(tmp_path)
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        page = (await client.get("/ui/learned")).text
        assert "share of right runs +0.200 [+0.100, +0.300] on 80 tasks, measured" in page
        assert "+0.40 [" in page
        assert 'href="/ui/runs/r1"' in page
        assert "Right in 4 of 4 replays" in page
        assert "<img src=x" not in page
        assert "{{ 7*7 }}" in page
        found = (await client.get("/ui/learned", params={"text": "Which harbour is closed?"})).text
        assert "Ask solo for harbours." in found
        assert "Shout." not in found
        shown = (await client.get("/ui/learned?state=retired&page=99999999")).text
        assert "Shout." in shown
        assert "Ask solo" not in shown


async def test_a_switch_holds_from_the_next_run_on_and_is_in_the_audit(tmp_path: Path) -> None:
    fill_learned(tmp_path)
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        assert at.service is not None
        token = await csrf(client)

        async def turn(what: str, to: str) -> int:
            form = {"csrf": token, "what": what, "to": to}
            return (await client.post("/ui/learned/switch", data=form)).status_code

        def acting() -> list[str]:
            assert at.service is not None
            _, conductor = at.service.cast("", ("planner", "solo"))
            names = [type(conductor).__name__]
            while hasattr(conductor, "inner"):
                conductor = conductor.inner
                names.append(type(conductor).__name__)
            return names

        assert acting() == ["SkilledConductor", "AdvisedConductor", "LanguageModelConductor"]
        assert await turn("skills", "off") == 303
        assert acting() == ["AdvisedConductor", "LanguageModelConductor"]
        assert [await turn("prompt", "off"), await turn("lessons", "off")] == [303, 303]
        assert acting() == ["LanguageModelConductor"]
        assert [await turn("skills", "on"), await turn("skill skill-1", "off")] == [303, 303]
        assert acting() == ["LanguageModelConductor"]
        assert "Switch on" in (await client.get("/ui/learned")).text
        assert [await turn(bad, "off") for bad in ("", "weights", "skill ../x")] == [404] * 3
        acts = [(act.action, act.target) for act in await at.service.keys.acts()]
        assert acts[:2] == [("learned.off", "skill skill-1"), ("learned.on", "skills")]
        (tmp_path / "learned-switches.json").write_text("{}")
        assert (await client.get("/ui/learned")).status_code >= 400
        with pytest.raises(ConfigError, match="no switches"):
            at.service.cast("", ("planner", "solo"))


async def test_a_lesson_is_retired_and_tried_again(tmp_path: Path) -> None:
    fill_learned(tmp_path)
    async with served(tmp_path, CONFIG) as at, browsing(at) as client:
        token = await csrf(client)
        first = load_book(tmp_path / "lessons.json").lessons[0]
        for to, state in (("retired", LessonState.RETIRED), ("trial", LessonState.TRIAL)):
            answer = await client.post(f"/ui/learned/lessons/{first.id}", data={"csrf": token, "to": to})
            assert answer.status_code == 303
            assert load_book(tmp_path / "lessons.json").lessons[0].state is state
        gone = await client.post("/ui/learned/lessons/zzz", data={"csrf": token, "to": "retired"})
        assert gone.status_code == 404


async def test_only_an_admin_with_the_forms_token_sees_or_turns_anything(tmp_path: Path) -> None:
    fill_learned(tmp_path)
    async with served(tmp_path, CONFIG) as at:
        reader = await at.issue(KeyScope.READ, KeyScope.RUN, KeyScope.APPROVE)
        async with browsing(at, reader.secret) as client:
            form = {"csrf": await csrf(client), "what": "skills", "to": "off"}
            assert (await client.get("/ui/learned")).status_code == 403
            assert (await client.post("/ui/learned/switch", data=form)).status_code == 403
            assert "/ui/learned" not in (await client.get("/ui/workers")).text
        async with browsing(at) as client:
            assert (
                await client.post("/ui/learned/switch", data={"what": "skills", "to": "off", "csrf": "0" * 64})
            ).status_code == 403
            assert "/ui/learned" in (await client.get("/ui/workers")).text
        assert LearnedSwitches(tmp_path / "learned-switches.json").read() == {}


async def test_a_file_that_was_edited_by_hand_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    fill_learned(tmp_path)
    file = tmp_path / "advice.json"
    file.write_text(file.read_text().replace("Show every", "Hide every"))
    async with served(tmp_path, CONFIG.replace('conductor = "lm:planner"', "")) as at, browsing(at) as client:
        page = (await client.get("/ui/learned")).text
        assert "refused" in page
        assert "Ask solo for harbours." in page
