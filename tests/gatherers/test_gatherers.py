"""Gathering context: which files, commits and lessons a task is shown with, within which walls, and their worth."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from scripted_people import ScriptedGatherer
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.runs import kept_share
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.config.container import build_container
from shikisha.config.context_source import answer_steps, context_source
from shikisha.context.git_history import Commit, GitRepository
from shikisha.core.budget import Caps
from shikisha.core.call import Card
from shikisha.core.errors import ConfigError
from shikisha.core.events import AnswerGraded, ContextGathered, GradeMark, RunStarted
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.gatherer import AnswerStep, ContextPiece, GatheredContext
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.explain import explain, explain_text
from shikisha.gatherers.file_gatherer import (
    MOST_LINES,
    ContextBudget,
    FileGatherer,
    FileSearch,
    HistoryGatherer,
    WeightedGatherer,
    folder_inside,
    imported_files,
    split_file,
)
from shikisha.learned.context_audit import SourceVerdict, audit_context
from shikisha.workers.scripted import ScriptedWorker

TASK = Task("The tax of an invoice is rounded wrong")
INVOICE = "from shop.money import round_cents\n\n\ndef invoice_tax(total):\n    return round_cents(total * 0.19)\n"
FILES = {
    "shop/invoice.py": INVOICE,
    "shop/money.py": "def round_cents(value):\n    return round(value, 2)\n",
    "shop/login.py": "def check_password(user):\n    return bool(user)\n",
    "tests/test_invoice.py": "def test_tax():\n    assert True\n",
    "notes.txt": "Nothing about anything here.\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / "repo" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repo" / name).write_text(text)
    return tmp_path / "repo"


def piece(name: str, size: int = 40, *, labels: tuple[str, ...] = (), score: float = 1.0) -> ContextPiece:
    return ContextPiece(name * size, "s", name, 1, 5, score, labels)


async def gathered(*pieces: Sequence[ContextPiece], tokens: int = 100, guarded: str = "") -> GatheredContext:
    sources = [WeightedGatherer(f"s{place}", ScriptedGatherer(tuple(each))) for place, each in enumerate(pieces)]
    return await ContextBudget(tuple(sources), tokens, guarded=frozenset(filter(None, [guarded]))).gather_context(
        TASK, "r"
    )


async def test_files_are_found_by_words_imports_and_tests(folder: Path) -> None:
    found = await FileGatherer("code", folder).gather(TASK, 500)
    names = list(dict.fromkeys(one.name for one in found))
    assert names[0] == "shop/invoice.py"
    assert (found[0].first, found[0].source) == (1, "code")
    assert "shop/login.py" not in names[:2]


async def test_nothing_outside_of_the_folder_is_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "invoice_secret.py").write_text("def invoice_tax_secret(): return 'rounded wrong'\n")
    (folder / "linked.py").symlink_to(tmp_path / "invoice_secret.py")
    (folder / "up").symlink_to(tmp_path)
    os.mkfifo(folder / "invoice_pipe.py")
    found = await FileGatherer("code", folder).gather(TASK, 5_000)
    assert {one.name for one in found} <= set(FILES)
    for name in ("..", str(tmp_path), "up", "shop/../.."):
        with pytest.raises(ConfigError, match="expected a folder inside"):
            folder_inside(name, folder)
    with pytest.raises(ConfigError, match="there is no such folder"):
        folder_inside("none", folder)


async def test_a_changed_file_is_read_again(folder: Path) -> None:
    gatherer = FileGatherer("code", folder, refresh=0.0)
    await gatherer.gather(TASK, 500)
    (folder / "shop" / "rounding.py").write_text("def tax_of_invoice_rounded_wrong():\n    return 1\n")
    assert (await gatherer.gather(TASK, 500))[0].name == "shop/rounding.py"


def test_history_finds_what_words_do_not() -> None:
    files = {f"m{number}.py": f"value_{number} = {number}\n" for number in range(30)}
    history = [Commit(str(age), (), 0, "Tidy up.", (f"m{age}.py",)) for age in range(10)]
    history += [Commit("x", (), 0, "Correct the tax of invoices", ("m20.py", "m21.py"))]
    with_history, without = FileSearch(files, history).rank(TASK.prompt, 3), FileSearch(files).rank(TASK.prompt, 3)
    assert {one.name for one in with_history[:2]} == {"m20.py", "m21.py"}
    assert without == []


async def test_past_commits_are_pieces(folder: Path) -> None:
    own = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "-A"), (*own, "commit", "-qm", "Round the tax of invoices")):
        subprocess.run(["git", *words], cwd=folder, check=True)  # noqa: S603, S607, ASYNC221
    (found,) = await HistoryGatherer("past", GitRepository(folder)).gather(TASK, 500)
    assert "Round the tax" in found.text
    assert "shop/invoice.py" in found.text
    ranked = await FileGatherer("code", folder).gather(TASK, 500)
    assert ranked[0].name == "shop/invoice.py"


def test_parts_cover_a_file_and_are_never_long() -> None:
    text = "import os\n\n" + "\n\n".join(f"def f{n}():\n" + "    x = 1\n" * 30 for n in range(6)) + "y = 2\n" * 300
    parts = split_file("a.py", text)
    lines = [line for part in parts for line in range(part.first, part.last + 1)]
    assert lines == sorted(set(lines))
    assert max(part.last - part.first for part in parts) < MOST_LINES
    assert "f3" in " ".join(part.names for part in parts)
    assert split_file("broken.py", "def f(:\n")[0].text == "def f(:"
    assert list(imported_files("a/b.py", "from . import c\nfrom a.d import e\nimport x.y\n", {"a/c.py", "a/d.py"})) == [
        "a/c.py",
        "a/d.py",
    ]


async def test_the_budget_is_shared_and_what_is_left_out_says_why() -> None:
    found = await gathered([piece("a", 170), piece("b", 200)], [piece("c", 300), piece("a", 10)])
    assert sum(one.tokens for one in found.taken) <= 100
    assert [one.name for one in found.taken] == ["a"]
    assert {(one.name, one.why.split(" for")[0]) for one in found.left} >= {("b", "no room"), ("c", "no room")}
    assert ("a", "taken already") in {(one.name, one.why) for one in found.left}


async def test_a_guarded_label_comes_only_to_a_task_that_bears_it() -> None:
    found = await gathered([piece("a", labels=("secret",))], guarded="secret")
    assert found.taken == ()
    assert found.left[0].why == "it has the label secret, which the task does not bear"


class Broken:
    async def gather(self, task: Task, tokens: int) -> Sequence[ContextPiece]:  # noqa: ARG002 - the protocol's
        raise OSError("the disk is gone")


async def test_a_source_that_fails_costs_its_pieces_and_not_the_run() -> None:
    sources = (WeightedGatherer("bad", Broken()), WeightedGatherer("good", ScriptedGatherer((piece("a"),))))
    found = await ContextBudget(sources, 100).gather_context(TASK, "r")
    assert [one.name for one in found.taken] == ["a"]
    assert found.left[0].why == "failed: the disk is gone"


def engine(source: ContextBudget | None = None, steps: tuple[AnswerStep, ...] = ()) -> tuple[Engine, MemoryRecorder]:
    recorder = MemoryRecorder()
    return Engine(recorder, context_source=source, answer_steps=steps), recorder


async def perform(made: Engine, answer: str = " Done. ") -> Run:
    pool = Pool([Member(Card("a"), ScriptedWorker(answers=[answer]))])
    conductor = ScriptedConductor([Plan((Step("Do it.", 0),)), Plan()])
    return await made.run(TASK, pool, conductor, Caps())


async def test_workers_see_what_was_gathered_and_the_journal_says_what_and_why() -> None:
    source = ContextBudget((WeightedGatherer("s", ScriptedGatherer((piece("a"), piece("b", 4_000)))),), 50)
    made, _ = engine(source)
    run = await perform(made)
    assert "[s: a, lines 1-5]" in run.task.context
    assert run.context is not None
    assert [one["name"] for one in json.loads(run.context.taken)] == ["a"]
    text = explain_text(explain(run))
    assert "gathered: 1 pieces" in text
    assert "left out: s: b: no room for" in text


async def test_each_change_of_an_answer_is_a_substitution() -> None:
    made, _ = engine(
        steps=(AnswerStep("strip", str.strip), AnswerStep("nothing", str.strip), AnswerStep("empty", lambda _: ""))
    )
    run = await perform(made)
    assert run.answer == "Done."
    assert [change.by for change in run.changes] == ["strip"]
    assert explain(run).substitutions == ("answer: changed by strip (7 to 5 characters)",)


def graded_run(number: int, dropped: tuple[str, ...], score: float) -> Run:
    name = f"run{number}"
    started = RunStarted(run=name, at=0.0, conductor="c", pool=("a",), caps=Caps(), prompt="p")
    taken = json.dumps([{"source": "code", "tokens": 100}] if "code" not in dropped else [])
    context = ContextGathered(run=name, at=0.0, taken=taken, sources=("code", "past"), dropped=dropped, propensity=0.5)
    mark = GradeMark.RIGHT if score else GradeMark.WRONG
    return Run.fold([started, context, AnswerGraded(run=name, at=1.0, checker="x", mark=mark, score=score)])


def test_an_audit_says_which_source_earns_its_tokens() -> None:
    runs = [graded_run(n, (), 1.0) for n in range(60)]
    runs += [graded_run(100 + n, ("code",), float(n % 4 == 0)) for n in range(40)]
    runs += [graded_run(200 + n, ("past",), float(n % 10 > 0)) for n in range(5)]
    code, past = audit_context(runs)
    assert (code.name, code.verdict, round(code.tokens)) == ("code", SourceVerdict.EARNS, 100)
    assert past.verdict is SourceVerdict.TOO_FEW
    assert past.missing > 0


def test_a_trial_draws_by_the_run_and_says_how_likely() -> None:
    sources = tuple(WeightedGatherer(name, ScriptedGatherer(())) for name in "abcd")
    budget = ContextBudget(sources, trial=0.4)
    draws = [budget._draw(f"run{number}") for number in range(2_000)]
    assert 0.35 < sum(bool(dropped) for dropped, _ in draws) / len(draws) < 0.45
    assert {len(dropped) for dropped, _ in draws} == {0, 1, 2}
    assert draws == [budget._draw(f"run{number}") for number in range(2_000)]


CONFIG = {
    "workers": {"a": {"kind": "scripted", "answers": "```\nThe tax.\n```"}},
    "pool": ["a"],
    "context": {"tokens": 300, "sources": {"code": {"kind": "files", "folder": "."}}},
    "answer": {"steps": [{"kind": "unfence"}, {"kind": "replace", "text": "tax", "by": "VAT"}]},
}


async def test_a_configuration_gathers_and_changes_answers(folder: Path) -> None:
    container = build_container(CONFIG, "test.toml", folder, {})
    source, steps = context_source(container), answer_steps(container)
    assert source is not None
    made = Engine(MemoryRecorder(), context_source=source, answer_steps=steps)
    pool = container.pool()
    run = await made.run(TASK, pool, container.conductor("", pool), container.caps)
    assert run.answer == "The VAT."
    assert "def invoice_tax" in run.task.context
    assert [change.by for change in run.changes] == ["unfence", "replace"]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"kind": "files", "folder": "../.."}, "context.sources.x: ../..: expected a folder inside"),
        ({"kind": "git", "folder": "shop"}, "expected a git repository that can be read"),
        ({"kind": "mcp", "worker": "a"}, "'a' is no worker of kind mcp"),
        ({"kind": "memory"}, "unknown kind of context source 'memory': known are files, git, mcp"),
    ],
)
def test_a_source_that_cannot_be_is_named(folder: Path, source: dict[str, object], problem: str) -> None:
    settings = CONFIG | {"context": {"sources": {"x": source}}}
    with pytest.raises(ConfigError, match=problem.replace("..", r"\.\.").replace("[", r"\[")):
        context_source(build_container(settings, "test.toml", folder, {}))


def test_the_command_shows_what_would_be_gathered(folder: Path) -> None:
    (folder / "shikisha.toml").write_text(
        'pool = ["a"]\n[workers.a]\nkind = "scripted"\nanswers = "x"\n'
        '[context.sources.code]\nkind = "files"\ninclude = ["*.py"]\n'
    )
    line = ["context", TASK.prompt, "--config", str(folder / "shikisha.toml"), "--json"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["taken"][0]["name"] == "shop/invoice.py"


@pytest.mark.parametrize(
    ("edited", "score"),
    [("one two three\n", 1.0), ("one two 3", 2 / 3), ("all else", 0.0), ("one two three four", 0.75)],
)
def test_an_edited_answer_is_worth_what_was_kept(edited: str, score: float) -> None:
    assert kept_share("one two three", edited) == pytest.approx(score)
