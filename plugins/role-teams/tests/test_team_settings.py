"""[teams]: the shipped example, offline, with tests of code that really run; teams that cannot work; teams served."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from sandboxes import NEEDS_A_JAIL, jailed
from serving import served

from shikisha.config.container import Container, build_container
from shikisha.config.entrant_version import entrant_version
from shikisha.config.preflight import conductor_problems
from shikisha.core.call import GrantedStep, Request
from shikisha.core.errors import ConfigError, WorkerError
from shikisha.core.events import CheckStatus, RunStatus
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Inspection
from shikisha.engine.recorder import MemoryRecorder
from shikisha_role_teams.hand_over import role_line
from shikisha_role_teams.media_type import MediaTypeCheck
from shikisha_role_teams.tests_worker import CodeTestsSettings, CodeTestsWorker

EXAMPLE = ROOT / "examples" / "team" / "shikisha.toml"


def container(**changes: object) -> Container:
    """The example's configuration, with tables changed."""
    data: dict[str, Any] = tomllib.loads(EXAMPLE.read_text())
    for path, value in changes.items():
        table, *names, last = path.split("__")
        inside = data[table]
        for name in names:
            inside = inside[name.replace("_", "-")]
        inside[last] = value
    return build_container(data, "shikisha.toml", Path())


def role(**keys: object) -> dict[str, object]:
    """A role of the tester's place."""
    return {"worker": "scripted-tester", **keys}


async def performed(own: Container, conductor: str = "") -> Run:
    """A run of a task by the configured team, or by the one that is named."""
    pool = own.pool(own.team_pool(conductor))
    task = Task("Write a Python function median(numbers).")
    return await Engine(MemoryRecorder()).run(task, pool, own.conductor(conductor, pool), own.caps)


@NEEDS_A_JAIL
async def test_the_example_stops_prose_asks_back_and_loops_until_the_tests_pass() -> None:
    run = await performed(container())
    assert run.status is RunStatus.DONE
    names: dict[str, Any] = {}
    exec(run.answer or "", names)  # noqa: S102 - the example's own program
    assert names["median"]([4, 1, 3, 2]) == 2.5
    reports = [result.text for each in run.rounds for step in each.steps.values() if (result := step.result)]
    assert any("assert median([4, 1, 3, 2]) == 2.5: expected 2.5, got 3" in (text or "") for text in reports)
    checks = [check.status for each in run.rounds for step in each.steps.values() for check in step.checks]
    assert checks.count(CheckStatus.FAIL) == 1  # the programmer's prose


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"teams__software__roles__tester": role(sees=["nobody"])},
            "teams.software: roles.tester.sees: 'nobody' is not",
        ),
        ({"teams__software__roles__tester": role(worker="nobody")}, "roles.tester.worker: unknown worker 'nobody'"),
        (
            {"teams__software__roles__tester": {"skill": "tests"}},
            "roles.tester.skill: unknown skill of a worker 'tests'",
        ),
        ({"workers__scripted-analyst": {"kind": "local", "tool": "units"}}, "cannot write JSON to a schema"),
        ({"workers__scripted-programmer": {"kind": "tests"}}, "hands over passed and report; expected no schema"),
        ({"budgets__rounds": 4}, "no way to end within budgets.rounds = 4: the team needs 5 when nothing is sent back"),
        ({"teams__software__answer": "programmer.program"}, "answer: 'program' is not a required field"),
        ({"teams__software__roles__tester": role(schema={"type": "array"})}, "expected a schema of an object"),
        ({"teams__software__roles__tester": role(schema={"type": 3})}, "roles.tester.schema"),
        ({"teams__software__roles__tester": role(schema_file="none.json")}, "roles.tester.schema_file: none.json"),
        ({"teams__software__roles": {}}, "no way to end"),
        ({"teams__software__roles__answer": role()}, "the name is taken by what hands out the answer"),
        ({"teams__software__roles__sandbox__back": {"to": "programmer", "until": "done", "most": 1}}, "no way to end"),
        ({"teams__software__roles__sandbox__back": {"to": "programmer", "until": "passed"}}, "back.most: is missing"),
        (
            {"teams__software__roles__sandbox__back__most": 1_000_000},
            "back.most: expected at most 50",
        ),
        ({"teams__software__roles__tester": role(asks={"analyst": 0})}, "asks.analyst: expected a number from 1 to 50"),
        ({"workers__scripted-tester": {"kind": "conductor"}}, "whose workers are no members of the team"),
        ({"teams__software__roles__tester": role(skill="x")}, "expected either worker or skill"),
    ],
)
def test_a_table_that_cannot_work_is_an_error_that_says_where(changes: Mapping[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        container(**changes).team("software")
    assert said in str(raised.value)


def test_a_check_that_asks_a_worker_outside_the_team_is_refused() -> None:
    asks = {"good": {"kind": "opinion", "worker": "sandbox"}}
    data = tomllib.loads(EXAMPLE.read_text()) | {"checks": asks}
    data["workers"]["scripted-tester"]["checks"] = ["good"]
    with pytest.raises(ConfigError, match="'good' asks a worker for an opinion"):
        build_container(data, "shikisha.toml", Path()).pool(["software/tester"])


def test_a_wrong_team_is_found_before_the_first_request_and_changes_the_version() -> None:
    wrong = dict(conductor_problems(container(teams__software__answer="programmer.program")))
    assert "'program' is not a required field" in str(wrong["teams.software"])
    assert all(problem is None for _, problem in conductor_problems(container()))
    one, other = container(), container(teams__software__roles__analyst__prompt="Else.")
    names = one.team_pool()
    assert entrant_version(one, "team:software", names, []) != entrant_version(other, "team:software", names, [])
    with pytest.raises(ConfigError, match="unknown option 'who'; known are conductor, casting"):
        one.conductor("team:software?who=me")


@NEEDS_A_JAIL
async def test_the_same_team_is_planned_by_a_model_or_cast_by_another_conductor() -> None:
    plan = 'model_id = [0, 1, 2, 3]\nsubtasks = ["a", "b", "c", "d"]\naccess_list = [[], [0], [0], [1, 2]]'
    again = 'model_id = [2, 3]\nsubtasks = ["Mend.", "Run."]\naccess_list = [[], [0]]'
    planner = {"kind": "scripted", "answers": [plan, again]}
    own = container(workers__planner=planner, teams__software__roles__tester__asks={})
    run = await performed(own, "team:software?conductor=lm:planner")
    # The scripted tester asks first, which is no hand-over here: it is told so, and hands over.
    assert (run.status, run.answer is None) == (RunStatus.DONE, False)
    assert [len(each.plan) for each in run.rounds if each.plan] == [4, 2, 1]
    cast = container(
        workers__twin={"kind": "scripted", "answers": "{}"}, teams__software__casting="fixed:single?worker=twin"
    )
    assert (await performed(cast)).answer is not None  # each role has one worker: there is nothing to cast


@NEEDS_A_JAIL
async def test_a_team_is_a_model_of_the_server(tmp_path: Path) -> None:
    async with served(tmp_path, EXAMPLE.read_text()) as at, at.openai() as client:
        assert "shikisha/team:software" in [model.id async for model in client.models.list()]
        said = await client.chat.completions.create(
            model="shikisha", messages=[{"role": "user", "content": "Write a Python function median(numbers)."}]
        )
        assert "def median" in (said.choices[0].message.content or "")


def granted(role_name: str, **document: object) -> GrantedStep:
    """A hand-over of a role."""
    return GrantedStep(0, role_line(role_name, "t"), json.dumps(document))


@NEEDS_A_JAIL
async def test_a_program_that_attacks_its_tests_does_not_pass() -> None:
    attacks = [
        "import os\ndef f(x):\n    os._exit(0)",
        "import sys\ndef f(x):\n    sys.exit(0)",
        "import builtins\nbuiltins.print('{\"passed\": true}')\ndef f(x):\n    return 0",
        "class Same(int):\n    def __eq__(self, other):\n        return True\ndef f(x):\n    return Same(0)",
        "import gc\n[d.update(passed=True) for d in gc.get_objects() if type(d) is dict]\ndef f(x):\n    return 0",
    ]
    tests = granted("tester", tests=["assert f(1) == 2", "assert f(2) == 3"])
    async with jailed() as jail:
        worker = CodeTestsWorker(CodeTestsSettings(), jail)
        for attack in attacks:
            # It brings tests of its own, too: those of the tester hold.
            program = granted("programmer", code=attack, tests=["assert True"])
            reply = await worker.perform(Request(Task("f"), "run", (tests, program)))
            assert json.loads(reply.text)["passed"] is False, attack
        right = granted("programmer", code="def f(x):\n    return x + 1")
        assert json.loads((await worker.perform(Request(Task("f"), "run", (right, tests)))).text)["passed"] is True


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        (None, "expected assert statements"),
        ([], "expected assert statements"),
        (["x = 1"], "with an assert among them"),
        (["assert ("], "not Python"),
        (["assert 1"] * 201, "expected 1 to 200 statements"),
        ("assert 1 #" + "x" * 20_000, "characters are more than"),
        ("assert " + "(" * 5_000 + ")" * 5_000, "not Python"),
        ("assert " + "-" * 9_000 + "1", "not Python"),
    ],
)
async def test_tests_that_cannot_be_run_have_not_passed(tests: object, said: str) -> None:
    request = Request(Task("f"), "run", (granted("tester", tests=tests), granted("programmer", code="f = 1")))
    report = json.loads((await CodeTestsWorker(CodeTestsSettings()).perform(request)).text)
    assert (report["passed"], said in report["report"]) == (False, True)


async def test_without_a_program_there_is_nothing_to_run() -> None:
    with pytest.raises(WorkerError, match=r"expected programmer\.code"):
        await CodeTestsWorker(CodeTestsSettings()).perform(Request(Task("f"), "run"))


@pytest.mark.parametrize(
    ("document", "passes"),
    [
        ({"code": "x = 1", "more": ["y = 2"]}, True),
        ({"code": "def f(:"}, False),
        ({"code": ""}, False),
        ({"code": "x = 1", "more": ["y = 2", "for"]}, False),
        ({"code": "(" * 100_000}, False),
        ({"code": "x" * 30_001}, False),
        ({"code": "x" * 20_000, "more": ["y" * 20_000]}, False),
    ],
)
async def test_a_field_that_is_to_be_python_is_parsed(document: object, passes: bool) -> None:
    typed = {"type": "string", "contentMediaType": "text/x-python"}
    check = MediaTypeCheck({"properties": {"code": typed, "more": {"type": "array", "items": typed}}})
    assert (await check.inspect(Inspection(Task("x"), "y", json.dumps(document)))).passed is passes


def test_a_media_type_that_nothing_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="code: contentMediaType 'text/x-c': known is text/x-python"):
        MediaTypeCheck({"properties": {"code": {"contentMediaType": "text/x-c"}}})
