"""What was learned, on the command line: lessons, skills, tuned advice, practice, and the one place to see it all."""

import asyncio
import json
from pathlib import Path

import pytest
from test_learn_values_cli import fill
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.config.container import load_config
from shikisha.core.task import OPERATOR, Task
from shikisha.engine.conductor import Situation
from shikisha.learned.learned_file import LearnedGain, write_learned
from shikisha.learned.lessons import book_file, make_lesson
from shikisha.learned.skills import Skill, SkillStep, write_skill
from shikisha.learned.tuned_prompt import prompt_file

CONFIG = """
conductor = "careful"
[journal]
file = "runs.db"
[workers.ann]
kind = "scripted"
price = { call = 0.001 }
answers = "right"
[workers.bob]
kind = "scripted"
price = { call = 0.001 }
answers = "wrong"
[workers.planner]
kind = "scripted"
price = { call = 0.001 }
answers = 'model_id = [0]\\nsubtasks = ["x"]\\naccess_list = [[]]'
[conductors.careful]
kind = "value"
file = "steps.json"
over = "lm:planner"
[budgets]
dollars = 0.05
"""
LEARNED = """
[learned]
prompt = "advice.json"
lessons = "lessons.json"
skills = "skills"
use = ["values", "prompt", "lessons", "skills"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shikisha.toml").write_text(CONFIG)
    return tmp_path


def call(folder: Path, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*words, "-c", str(folder / "shikisha.toml")])
    assert result.exit_code == code, (result.output, result.stderr)
    return result.stdout if "--json" in words else result.stdout + result.stderr


def test_lessons_are_written_shown_retired_and_brought_back(folder: Path) -> None:
    asyncio.run(fill(folder, 60))
    file = str(folder / "lessons.json")
    assert "lessons, version" in call(folder, "memory", "learn", "--file", file)
    lessons = json.loads(call(folder, "memory", "show", "--file", file, "--json"))["lessons"]
    assert lessons
    first = lessons[0]
    assert first["runs"]
    assert first["id"] in call(folder, "memory", "why", first["id"][:6], "--file", file)
    assert "retired" in call(folder, "memory", "retire", first["id"], "--file", file)
    again = json.loads(call(folder, "memory", "show", "--file", file, "--json"))["lessons"]
    assert again[0]["state"] == "retired"
    call(folder, "memory", "learn", "--file", file)
    kept = json.loads(call(folder, "memory", "show", "--file", file, "--json"))["lessons"]
    assert next(one for one in kept if one["id"] == first["id"])["state"] == "retired"
    call(folder, "memory", "restore", first["id"], "--file", file)
    call(folder, "memory", "why", "zzz", "--file", file, code=3)
    assert "--dollars" in call(folder, "memory", "learn", "--file", file, "--reflector", "ann", code=3)
    said = call(folder, "memory", "learn", "--file", file, "--reflector", "ann", "--dollars", "0.01")
    assert "lessons written for $" in said


def test_one_place_shows_what_was_learned_and_whether_it_is_used(folder: Path) -> None:
    assert "refused" in call(folder, "learned")
    asyncio.run(fill(folder, 5))
    gain = LearnedGain("dollars of worth a run", 0.01, 0.002, 0.018, 60, "measured")
    write_learned(folder / "advice.json", prompt_file("Be brief.", ["run-1"], OPERATOR, gain, 1.0))
    write_learned(folder / "lessons.json", book_file([make_lesson("Ask ann.", "sums", ["run-2"])], OPERATOR, 1.0))
    skill = Skill("sums", ("Add ", "."), (SkillStep("Add {0}.", "ann", ()),), ("run-3",), (2, 2), OPERATOR)
    write_skill(folder / "skills", skill, 1.0)
    call(folder, "learn", "steps", "--out", str(folder / "steps.json"), "--trial")
    (folder / "shikisha.toml").write_text(CONFIG + LEARNED)
    rows = json.loads(call(folder, "learned", "--json", "--check"))["learned"]
    assert {row["what"]: row["used"] for row in rows} == {
        "values (careful)": True, "prompt": True, "lessons": True, "skill sums": True
    }  # fmt: skip
    assert {row["what"]: row["erased"] for row in rows}["prompt"] == 1  # a run that is not there
    assert "+0.010 [+0.002, +0.018]" in next(row["brought"] for row in rows if row["what"] == "prompt")
    container = load_config(folder / "shikisha.toml")
    pool = container.pool(["ann", "bob"])
    found = asyncio.run(container.conductor("", pool).propose(Situation(Task("Add 3 and 4."), pool.cards)))
    assert "skill sums" in found.note
    page = folder / "skills" / "sums" / "SKILL.md"
    page.write_text(page.read_text() + "more")
    (folder / "shikisha.toml").write_text(CONFIG + LEARNED.replace('"prompt", ', ""))
    rows = json.loads(call(folder, "learned", "--json"))["learned"]
    assert {row["what"]: row["used"] for row in rows}["prompt"] is False
    assert "changed after it was written" in next(row["brought"] for row in rows if row["what"] == "skill sums")
    assert "changed after it was written" in call(folder, "plan", "Add 3 and 4.", code=3)


def test_two_versions_are_compared(folder: Path) -> None:
    write_learned(folder / "advice.json", prompt_file("Be brief.", ["run-1"], OPERATOR, None, 1.0))
    write_learned(folder / "old.json", prompt_file("Be long.", ["run-1", "run-2"], OPERATOR, None, 1.0))
    (folder / "shikisha.toml").write_text(CONFIG + '\n[learned]\nprompt = "advice.json"\n')
    said = json.loads(call(folder, "learned", "--diff", str(folder / "old.json"), "--json"))
    assert (said["changed"], said["runs_added"], said["runs_gone"]) == (["advice"], 0, 1)


def test_skills_are_mined_and_brought_in(folder: Path) -> None:
    asyncio.run(fill(folder, 40))
    skills = str(folder / "skills")
    shown = json.loads(call(folder, "skills", "mine", "--folder", skills, "--json"))["skills"]
    assert json.loads(call(folder, "skills", "show", "--folder", skills, "--json"))["skills"] == shown
    foreign = Skill("sums", ("Add ", "."), (SkillStep("Add {0}.", "ann", ()),), ("run-3",), (2, 2), OPERATOR)
    source = write_skill(folder / "elsewhere", foreign, 1.0)
    assert "it is not used" in call(folder, "skills", "import", str(source), "--folder", skills)
    assert "there is a skill" in call(folder, "skills", "import", str(source), "--folder", skills, code=3)
    assert "a text alone" in call(folder, "skills", "import", str(folder), "--folder", skills, code=3)


def test_a_tune_that_cannot_pay_for_a_comparison_is_refused_with_the_price(folder: Path) -> None:
    tasks = folder / "tasks.jsonl"
    rows = [{"prompt": f"Say right, {at}.", "checker": "text", "answer": "right"} for at in range(40)]
    tasks.write_text("\n".join(json.dumps(row) for row in rows))
    words = (
        "tune",
        "-C",
        "lm:planner",
        "--reflector",
        "bob",
        "--out",
        str(folder / "advice.json"),
        "--run-cost",
        "0.002",
    )
    said = call(folder, *words, "--taskset", str(tasks), "--dollars", "0.05", code=3)
    assert "one honest comparison costs about $" in said
    assert "nothing was spent" in said
    assert "one of them" in call(folder, *words, "--dollars", "1", code=3)
    found = json.loads(call(folder, *words, "--taskset", str(tasks), "--dollars", "0.5", "--json"))
    assert found["accepted"] is False
    assert not (folder / "advice.json").exists()


def test_practice_performs_tasks_within_its_budget_and_none_twice(folder: Path) -> None:
    asyncio.run(fill(folder, 5))
    call(folder, "learn", "steps", "--out", str(folder / "steps.json"), "--trial")
    tasks = folder / "tasks.jsonl"
    rows = [{"prompt": f"Add {at} and 4.", "checker": "text", "answer": "right"} for at in range(12)]
    tasks.write_text("\n".join(json.dumps(row) for row in rows))
    words = ("practise", "--taskset", str(tasks), "--values", str(folder / "steps.json"), "--json")
    first = json.loads(call(folder, *words, "-C", "fixed:single?worker=ann", "--budget", "0.0045"))
    assert first["dollars"] <= 0.0045 + 1e-9
    assert (first["tasks"], first["why"]) == (4, "the budget is spent")
    again = json.loads(call(folder, *words, "-C", "fixed:single?worker=ann", "--budget", "1"))
    assert again["tasks"] == 8
    assert again["right"] == 8
