"""Kinds of plug-ins: imported when they are named, never absent without a word, never two of one name."""

import os
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from plugged import install

from shikisha.cli import PLUGGED
from shikisha.config import adapters
from shikisha.config.container import build_container
from shikisha.core.errors import ConfigError, MissingPlugin, UnknownName
from shikisha.core.kinds import Registry
from shikisha.engine.worker import WorkerKind
from shikisha.evals.graders.grader_registry import GRADERS
from shikisha.evals.tasksets.taskset_loader import LAYOUTS
from shikisha.outcomes.importers.importer_registry import SOURCE_KINDS

GOOD = """
from pydantic import BaseModel, ConfigDict
from shikisha.engine.worker import Reply, WorkerKind

class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    times: int = 1

class Echo:
    async def perform(self, request):
        return Reply(request.subtask)

KIND = WorkerKind(settings=Settings, build=lambda settings, card, secrets: Echo(), double=Echo)
"""


def plug(folder: Path, name: str, text: str, *points: str, version: str = "1.0") -> None:
    """Lay a distribution of one module beside others, as an installation would."""
    project = folder / "projects" / name
    project.mkdir(parents=True)
    lines = [f'[project]\nname = "{name}"\nversion = "{version}"\n']
    for point in points:
        group, kind = point.split(" ")
        lines.append(f'[project.entry-points."shikisha.{group}"]\n{kind} = "{name.replace("-", "_")}"\n')
    (project / "pyproject.toml").write_text("".join(lines))
    install(project, folder / "site")
    (folder / "site" / f"{name.replace('-', '_')}.py").write_text(text)


def said(folder: Path, program: str) -> str:
    """What a program prints that has these distributions on its path and no others."""
    path = os.pathsep.join((str(folder / "site"), str(ROOT / "src")))
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": path, "HOME": str(folder)}, cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout + done.stderr


READ = """
import sys
from pathlib import Path
from shikisha.config.container import build_container
from shikisha.core.errors import ConfigError
try:
    own = build_container({"workers": {"w": {"kind": "%s", %s}}}, "table", Path(), {})
    print([card.kind for card in own.cards()], getattr(own.workers["w"], "times", ""))
except ConfigError as error:
    print(error)
print("imported:", sorted(name for name in sys.modules if name.startswith("plug_")))
"""


def test_a_kind_is_imported_when_it_is_named_and_its_keys_are_checked(tmp_path: Path) -> None:
    plug(tmp_path, "plug-echo", GOOD, "workers echo")
    plug(tmp_path, "plug-other", "raise RuntimeError('imported')", "workers other", "guards other")
    assert said(tmp_path, READ % ("echo", '"times": 3')) == "['echo'] 3\nimported: ['plug_echo']\n"
    assert "workers.w.time: unknown key; did you mean 'times'?" in said(tmp_path, READ % ("echo", '"time": 3'))
    assert "imported: []" in said(tmp_path, READ % ("scripted", ""))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "import nothing_of_this_name",
            "cannot be loaded: ModuleNotFoundError: No module named 'nothing_of_this_name'",
        ),
        ("raise SystemExit(3)", "cannot be loaded: SystemExit: 3"),
        ("", "cannot be loaded: AttributeError"),
        ("KIND = 7", "cannot be used: expected a WorkerKind there"),
        (GOOD.replace(", double=Echo", ""), "cannot be used: expected its Kind to have `build` and `double`"),
    ],
)
def test_a_plug_in_that_cannot_be_used_is_an_error_that_names_it(tmp_path: Path, text: str, why: str) -> None:
    plug(tmp_path, "plug-echo", text, "workers echo")
    found = said(tmp_path, READ % ("echo", ""))
    assert "table: workers.w.kind: plug-in plug-echo 1.0 (shikisha.workers: echo = plug_echo)" in found
    assert why in found


def test_two_plug_ins_of_one_name_are_an_error(tmp_path: Path) -> None:
    plug(tmp_path, "plug-echo", GOOD, "workers echo")
    plug(tmp_path, "plug-also", GOOD, "workers echo")
    found = said(tmp_path, READ % ("echo", ""))
    assert "plug-in plug-also 1.0" in found
    assert "the name is that of plug-echo 1.0" in found


def test_a_kind_whose_plug_in_is_not_installed_says_what_to_install() -> None:
    known = Registry("workers", "kind of worker", WorkerKind, {}, {"far": "shikisha-far"}, ("near",))
    with pytest.raises(MissingPlugin, match=r"kind of worker 'far' comes with .*: pip install shikisha-far"):
        known["far"]
    with pytest.raises(UnknownName, match=r"unknown kind of worker 'fare': known are .*far, near"):
        known["fare"]
    with pytest.raises(ConfigError, match="unknown kind of context source 'wiki': known are files, git"):
        build_container({"context": {"sources": {"s": {"kind": "wiki"}}}}, "table", Path(), {})


def test_our_registries_name_the_distributions_of_this_repository_and_nothing_imports_these() -> None:
    known: Mapping[str, Registry[Any]] = {
        adapters.WORKER_KINDS.group: adapters.WORKER_KINDS,
        adapters.CONDUCTOR_KINDS.group: adapters.CONDUCTOR_KINDS,
        adapters.ADMISSIONS.group: adapters.ADMISSIONS,
        PLUGGED.group: PLUGGED,
        GRADERS.group: GRADERS,
        LAYOUTS.group: LAYOUTS,
        SOURCE_KINDS.group: SOURCE_KINDS,
    }
    for place in (ROOT / "plugins").glob("*/pyproject.toml"):
        project = tomllib.loads(place.read_text())["project"]
        for group, points in project["entry-points"].items():
            for kind in points:
                assert known[group].elsewhere[kind] == project["name"]
                assert known[group][kind] is not None
    assert not [path for path in (ROOT / "src").rglob("*.py") if "import shikisha_" in path.read_text()]
    assert not [path for path in (ROOT / "src").rglob("*.py") if "from shikisha_" in path.read_text()]


def test_doctor_lists_what_is_plugged_in_and_what_of_it_cannot_be_used(tmp_path: Path) -> None:
    plug(tmp_path, "plug-echo", GOOD, "workers echo", version="2.5")
    plug(tmp_path, "plug-chat", GOOD, "workers chat")
    plug(tmp_path, "plug-broken", "1 / 0", "graders broken")
    plug(tmp_path, "plug-set", "KIND = None", "tasksets mine")
    found = said(tmp_path, "import sys; sys.argv = ['shikisha', 'doctor']; from shikisha.cli import main; main()")
    site = tmp_path / "site"
    assert f"ok    plug-in workers echo: plug-echo 2.5 (shikisha.workers: echo = plug_echo), at {site}" in found
    assert "FAIL  plug-in workers chat: plug-in plug-chat 1.0" in found
    assert "the name is that of this package's own; uninstall one of them" in found
    assert "FAIL  plug-in graders broken: plug-in plug-broken 1.0" in found
    assert "ZeroDivisionError" in found
    assert "FAIL  plug-in tasksets mine: plug-in plug-set 1.0" in found


@pytest.mark.parametrize(
    ("group", "text", "program", "expected"),
    [
        (
            "guards",
            """
            class G:
                name = "g"
                async def before(self, call, situation): ...
                async def after(self, call, outcome, situation): ...
            KIND = Kind(settings=S, build=lambda settings, name: G(), double=G)
            """,
            """
            from shikisha.config.adapters import build_guards
            from shikisha.core.tools import ToolEffect
            print(type(build_guards([{"kind": "mine", "word": "x"}], ToolEffect.READ, "t", "w")[0]).__module__)
            """,
            "plug_mine",
        ),
        (
            "checks",
            """
            from shikisha.checks.text_checks import FixedCheck
            KIND = Kind(settings=S, build=lambda settings, name: (name, settings.word), double=FixedCheck)
            """,
            """
            from pathlib import Path
            from shikisha.config import adapters
            table = adapters.read_check("c", {"kind": "mine", "word": "x"}, "t")
            print(adapters.CHECK_KINDS["mine"].make(table, Path(), "c"))
            """,
            "('c', 'x')",
        ),
        (
            "gatherers",
            """
            KIND = Kind(settings=S, build=lambda settings, name, labels: (name, settings.word, labels), double=list)
            """,
            """
            from pathlib import Path
            from shikisha.config.container import build_container
            from shikisha.config.context_source import context_source
            sources = {"s": {"kind": "mine", "word": "x", "labels": ["l"]}}
            own = build_container({"context": {"sources": sources}}, "t", Path(), {})
            print(context_source(own).sources[0].gatherer)
            """,
            "('s', 'x', ('l',))",
        ),
        (
            "graders",
            """
            from shikisha.evals.graders import ScriptedGrader
            def build(settings, tools):
                return ScriptedGrader({settings.word: 1.0})
            KIND = Kind(settings=S, build=build, double=ScriptedGrader)
            """,
            """
            import asyncio
            from shikisha.evals.graders import GraderTools
            from shikisha.evals.graders.grader_registry import build_grader
            print(asyncio.run(build_grader("mine", {"word": "x"}, GraderTools(), "row").grade("x")).score)
            """,
            "1.0",
        ),
        (
            "tasksets",
            """
            from shikisha.core.task import Task
            from shikisha.evals.taskset import TaskItem
            from shikisha.evals.tasksets.taskset_loader import TaskLayout
            from shikisha.evals.tasksets.task_rows import HubDataset
            def item(row, tools):
                grader = row.grader("a", "text", {"answer": row.text("a")}, tools)
                return TaskItem(Task(row.text("q"), id=f"m/{row.place}"), grader)
            KIND = TaskLayout(HubDataset("me/mine"), item)
            """,
            """
            from pathlib import Path
            from shikisha.evals.tasksets.taskset_loader import load_taskset
            Path("rows.jsonl").write_text('{"q": "Capital of Peru?", "a": "Lima"}\\n')
            print([item.task.prompt for item in load_taskset("mine:rows.jsonl")])
            """,
            "['Capital of Peru?']",
        ),
        (
            "importers",
            """
            from shikisha.outcomes.importers.importer_registry import SourceKind
            def read(given, log):
                raise ValueError("it reads")
            KIND = SourceKind(read)
            """,
            """
            from pathlib import Path
            from shikisha.outcomes.importers.importer_registry import import_outcomes
            from shikisha.outcomes.importers.source_files import Sources
            try:
                import_outcomes("mine", Sources(("x",)), Path("out"))
            except ValueError as error:
                print(error)
            """,
            "it reads",
        ),
        (
            "conductors",
            """
            from shikisha.conductors.fixed_conductors import ScriptedConductor
            from shikisha.engine.conductor import ConductorKind
            KIND = ConductorKind(
                settings=S,
                build=lambda settings, parts: ScriptedConductor((), f"{parts.name} {settings.word}"),
                double=lambda: ScriptedConductor(()),
                read=lambda target, options: {"word": target},
            )
            """,
            """
            from pathlib import Path
            from shikisha.config.container import build_container
            own = build_container({"conductors": {"c": {"kind": "mine", "word": "x"}}}, "t", Path(), {})
            print([own.conductor(name).name for name in ("c", "mine:y")])
            """,
            "['c x', 'mine:y y']",
        ),
    ],
)
def test_each_group_takes_a_kind(tmp_path: Path, group: str, text: str, program: str, expected: str) -> None:
    settings = """
    from pydantic import BaseModel, ConfigDict
    from shikisha.core.kinds import Kind
    class S(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)
        word: str
    """
    plug(tmp_path, "plug-mine", textwrap.dedent(settings) + textwrap.dedent(text), f"{group} mine")
    assert said(tmp_path, program).strip() == expected


def test_the_schema_has_the_keys_of_plug_ins(tmp_path: Path) -> None:
    plug(tmp_path, "plug-echo", GOOD, "workers echo")
    program = "import json; from shikisha.config.template import config_schema as s; print(json.dumps(s()['$defs']))"
    assert '"times": {"default": 1' in said(tmp_path, program)
