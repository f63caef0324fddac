"""The command line in one process: what each command prints where, and what it exits with."""

import asyncio
import json
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.journal import read_findings
from shikisha.core.errors import JournalUnavailable

KEY = "sk-live-0123456789abcdef"
CONFIG = """
conductor = "fixed:single?worker=a"
[workers.a]
kind = "scripted"
description = "[bold]says[/bold] \\u001b[31mred"
answers = "42"
price = { call = 0.25 }
[workers.b]
kind = "scripted"
answers = "no"
faults = ["server", "server", "server"]
attempts = 1
[workers.me]
kind = "human"
[workers.asks]
kind = "scripted"
approval = "always"
answers = "allowed"
"""


class Cli:
    """Runs commands in a folder with a configuration of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "shikisha.toml"
        self.config.write_text(CONFIG)
        self.said = ""

    def __call__(self, *arguments: str, stdin: str | bytes = "", code: int = 0) -> str:
        """Run a command; return stdout, keep stderr in `said`."""
        environment = {"SHIKISHA_CONFIG": str(self.config), "XDG_STATE_HOME": str(self.folder), "COLUMNS": "100"}
        result = CliRunner().invoke(app, list(arguments), input=stdin, env=environment)
        assert result.exit_code == code, (result.output, result.stderr)
        self.said = result.stderr
        return str(result.stdout)

    def json(self, *arguments: str, stdin: str | bytes = "", code: int = 0) -> dict[str, object]:
        """Run a command with --json; return what it printed."""
        value = json.loads(self(*arguments, "--json", stdin=stdin, code=code))
        assert isinstance(value, dict)
        return value


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """A command line over two scripted workers, a person, and one that needs approval."""
    return Cli(tmp_path)


class TestRun:
    def test_the_answer_goes_to_stdout_and_everything_else_to_stderr(self, cli: Cli) -> None:
        assert cli("run", "six times seven?") == "42\n"
        assert "done" in cli.said

    def test_quiet_leaves_stderr_empty(self, cli: Cli) -> None:
        assert cli("run", "-q", "six times seven?") == "42\n"
        assert cli.said == ""

    def test_json_tells_the_whole_run(self, cli: Cli) -> None:
        told = cli.json("run", "six times seven?")
        assert told.items() >= {"status": "done", "answer": "42", "dollars": 0.25, "steps": 1, "cap": None}.items()

    def test_the_prompt_can_come_from_stdin(self, cli: Cli) -> None:
        cli("run", "-", stdin="from stdin\n")
        assert cli("runs", "show").splitlines()[0] == "from stdin"

    def test_a_failed_run_exits_1_and_says_why(self, cli: Cli) -> None:
        told = cli.json("run", "q", "-C", "fixed:single?worker=b", code=ExitCode.FAILED)
        assert (told["status"], told["answer"], told["fault"]) == ("failed", None, "server")
        assert "server" in cli.said

    def test_invariant_3_a_cap_ends_the_run_with_4_and_names_the_cap(self, cli: Cli) -> None:
        told = cli.json("run", "q", "--dollars", "0.2", code=ExitCode.CAPPED)
        assert told["cap"] == "dollars"

    @pytest.mark.parametrize("option", ["--domain", "--label"])
    def test_bytes_that_are_no_text_exit_2(self, cli: Cli, option: str) -> None:
        cli("run", "q", option, "\udcff", code=ExitCode.INPUT)
        assert option in cli.said

    @pytest.mark.parametrize("prompt", ["", "  ", "a\x00b", "\udcff"])
    def test_a_task_that_is_none_exits_2(self, cli: Cli, prompt: str) -> None:
        assert "prompt" in str(cli.json("run", prompt, code=ExitCode.INPUT)["error"])

    @pytest.mark.parametrize("arguments", [["-p", "a,c"], ["-C", "fixed:none"], ["-C", "x"], ["-c", "no.toml"]])
    def test_a_name_that_nobody_knows_exits_3(self, cli: Cli, arguments: list[str]) -> None:
        assert "error" in cli.json("run", "q", *arguments, code=ExitCode.CONFIG)

    def test_a_journal_that_cannot_be_used_exits_6(self, cli: Cli) -> None:
        (cli.folder / "no.db").write_text("this is no database, but it is long enough to look like something")
        assert "error" in cli.json("run", "q", "--journal", str(cli.folder / "no.db"), code=ExitCode.JOURNAL)

    def test_rules_see_domain_and_labels(self, cli: Cli) -> None:
        (cli.folder / "r.toml").write_text('[[rule]]\ndomain="x"\nlabel="y"\nworker="a"\n[[rule]]\nworker="b"')
        rules = f"rules:{cli.folder}/r.toml"
        assert cli("run", "q", "-C", rules, "--domain", "x", "--label", "z", "--label", "y") == "42\n"
        cli("run", "q", "-C", rules, code=ExitCode.FAILED)

    def test_context_comes_from_a_file(self, cli: Cli) -> None:
        (cli.folder / "notes.txt").write_text("notes\n")
        cli("run", "q", "--context", str(cli.folder / "notes.txt"))
        assert '"notes' in cli("journal", "export", "last")


class TestPeople:
    def test_a_person_answers_through_approve_and_resume(self, cli: Cli) -> None:
        told = cli.json("run", "q", "-C", "fixed:single?worker=me", code=ExitCode.WAITING)
        assert "shikisha runs approve" in cli.said
        cli("runs", "approve", "last", "yes", code=ExitCode.INPUT)
        assert "use --answer TEXT" in cli.said
        cli("runs", "approve", str(told["run"]), "--answer", "my own words")
        assert cli("runs", "resume", str(told["run"])) == "my own words\n"

    @pytest.mark.parametrize("answer", ["", " ", "a\x00b", "\udcff"])
    def test_an_answer_that_is_none_is_refused(self, cli: Cli, answer: str) -> None:
        cli("run", "q", "-C", "fixed:single?worker=me", code=ExitCode.WAITING)
        cli("runs", "approve", "last", "--answer", answer, code=ExitCode.INPUT)

    @pytest.mark.parametrize(("word", "code"), [("yes", ExitCode.OK), ("no", ExitCode.FAILED)])
    def test_a_call_is_approved_or_not(self, cli: Cli, word: str, code: int) -> None:
        cli("run", "q", "-C", "fixed:single?worker=asks", code=ExitCode.WAITING)
        cli("runs", "approve", "last", word)
        assert cli("runs", "resume", code=code) == ("allowed\n" if code == ExitCode.OK else "")

    def test_several_questions_are_told_apart_by_step(self, cli: Cli) -> None:
        cli("run", "q", "-C", "fixed:fan-out-join?workers=me,asks&join=a", code=ExitCode.WAITING)
        cli("runs", "approve", "last", "yes", code=ExitCode.INPUT)
        assert "--step 0 (me), --step 1 (asks)" in cli.said
        cli("runs", "approve", "last", "yes", "--step", "1")
        cli("runs", "approve", "last", "--answer", "x")
        assert cli("runs", "resume") == "42\n"

    def test_a_planner_may_need_approval_too(self, cli: Cli) -> None:
        with cli.config.open("a") as file:
            file.write('[workers.planner]\nkind = "scripted"\napproval = "always"\n')
            file.write('answers = """model_id = [0]\nsubtasks = ["go"]\naccess_list = [[]]"""\n[budgets]\nrounds = 1\n')
        cli("run", "q", "-C", "lm:planner", code=ExitCode.WAITING)
        assert "planning, planner: May planner be called?" in cli.said
        cli("runs", "approve", "last", "yes")
        assert cli("runs", "resume") == "42\n"
        assert "by lm:planner" in cli("runs", "show")

    def test_nothing_is_approved_twice(self, cli: Cli) -> None:
        cli("run", "q", "-C", "fixed:single?worker=asks", code=ExitCode.WAITING)
        cli("runs", "approve", "last", "no")
        cli("runs", "approve", "last", "yes", code=ExitCode.INPUT)
        assert "no question is open" in cli.said


class TestPlan:
    GOOD = 'Reasoning.\nmodel_id = [2, 0]\nsubtasks = ["a", "b"]\naccess_list = [[], ["all"]]'

    def test_a_plan_is_asked_for_and_nothing_is_performed(self, cli: Cli) -> None:
        told = cli.json("run", "--plan", "q", "-C", "fixed:vote?workers=a&n=2&join=b")
        assert [step["worker"] for step in told["steps"]] == [0, 0, 1]  # type: ignore[attr-defined]  # it is a list
        assert not (cli.folder / "shikisha.db").exists()

    def test_a_plan_text_is_parsed_to_steps(self, cli: Cli) -> None:
        told = cli.json("run", "--parse", "-", stdin=self.GOOD)
        steps = [{"worker": 2, "subtask": "a", "access": []}, {"worker": 0, "subtask": "b", "access": [0]}]
        assert told == {"steps": steps}

    def test_a_plan_text_is_read_from_a_file_for_the_configured_pool(self, cli: Cli) -> None:
        (cli.folder / "plan.txt").write_text(self.GOOD)
        assert cli("run", "--parse", str(cli.folder / "plan.txt")).startswith("model_id = [2, 0]\n")

    def test_a_text_that_is_no_plan_says_what_and_where_and_exits_2(self, cli: Cli) -> None:
        told = cli.json("run", "--parse", "-", "-p", "a,b", stdin=self.GOOD, code=ExitCode.INPUT)
        assert told == {"error": {"what": "no worker 2: the pool has ordinals 0 to 1", "where": "model_id[0]"}}

    @pytest.mark.parametrize("stdin", ["", "no lists", "x" * 2_000_000, "[" * 10_000, b"\xff"])
    def test_bad_input_is_an_error_of_the_same_shape(self, cli: Cli, stdin: str | bytes) -> None:
        told = cli.json("run", "--parse", "-", "-p", "a,b", stdin=stdin, code=ExitCode.INPUT)
        assert isinstance(told["error"], dict)
        assert set(told["error"]) == {"what", "where"}

    def test_a_missing_file_is_an_error_of_the_same_shape(self, cli: Cli) -> None:
        told = cli.json("run", "--parse", "nowhere.txt", "-p", "a,b", code=ExitCode.INPUT)
        assert "cannot be read" in str(told["error"])

    def test_where_no_fallback_is_named_one_worker_stands_in_visibly(self, cli: Cli) -> None:
        told = cli.json("run", "--plan", "q", "-C", "lm:a")
        assert told["substituted"] == "fixed:single"
        assert "wrote no plan in 2 tries" in str(told["note"])

    def test_a_fallback_is_told(self, cli: Cli) -> None:
        told = cli.json("run", "--plan", "q", "-C", "lm:a?fallback=fixed:single")
        assert told["substituted"] == "fixed:single"
        assert isinstance(told["rejected"], list)
        assert [rejection["text"] for rejection in told["rejected"]] == ["42", "42"]


class TestReading:
    def test_runs_are_listed_newest_first(self, cli: Cli) -> None:
        cli("run", "first")
        cli("run", "second", "-C", "fixed:single?worker=b", code=ExitCode.FAILED)
        listed = json.loads(cli("runs", "--json"))
        assert [run["prompt"] for run in listed] == ["second", "first"]
        assert "first" in cli("runs", "--status", "done")
        assert "second" not in cli("runs", "--status", "done")
        cli("runs", "--status", "odd", code=ExitCode.INPUT)

    def test_a_run_is_found_by_the_beginning_of_its_id(self, cli: Cli) -> None:
        name = str(cli.json("run", "q")["run"])
        assert name in cli("runs", "show", name[:-2])
        cli("runs", "show", "nobody", code=ExitCode.INPUT)

    def test_a_trace_shows_stand_ins_and_child_runs(self, cli: Cli) -> None:
        with cli.config.open("a") as file:
            file.write('[workers.c]\nkind="scripted"\nfaults=["auth"]\nfallback="a"\n')
            file.write('[workers.team]\nkind="conductor"\npool=["a", "c"]\nconductor="fixed:single?worker=c"\n')
        cli("run", "q", "-C", "fixed:single?worker=team")
        shown = cli("runs", "show", "--answers")
        assert "a for c" in shown
        assert "fallback to a after auth" in shown
        assert "→ 42" in shown
        events = cli.json("runs", "show")["events"]
        assert isinstance(events, list)
        assert len({event["run"] for event in events}) == 2

    def test_an_explanation_says_why_and_what_it_cost(self, cli: Cli) -> None:
        cli("run", "q", "-C", "fixed:chain?workers=a,a")
        shown = cli("explain")
        assert "a: the plan names it" in shown
        assert "$0.50" in shown
        told = cli.json("explain", "last")
        assert (told["answer"], told["status"]) == ("42", "done")

    def test_without_a_journal_there_is_nothing_to_read(self, cli: Cli) -> None:
        cli("runs", code=ExitCode.INPUT)
        assert "no journal" in cli.said
        assert not (cli.folder / "shikisha.db").exists()


class TestJournal:
    def test_it_is_verified_and_exported(self, cli: Cli) -> None:
        cli("run", "q")
        told = cli.json("journal", "verify")
        assert told["ok"]
        since = f"{told['rows']}:{told['hash']}"
        cli("journal", "verify")
        assert f"checkpoint: {since}" in cli.said.replace("\n", "")
        assert (
            cli.json("journal", "verify", "--processes", "2") == cli.json("journal", "verify", "--since", since) == told
        )
        assert cli.json("journal", "verify", "--expect", str(told["hash"]))["ok"]
        rows = {json.loads(line)["hash"] for line in cli("journal", "export").splitlines()}
        assert len(rows) == told["rows"]  # a row holds several events of a run
        cli("journal", "export", "last", "--out", str(cli.folder / "run.jsonl"))
        assert all(json.loads(line) for line in (cli.folder / "run.jsonl").read_text().splitlines())

    def test_a_verifying_process_that_fails_is_reported_at_once_and_ends_the_others(self, tmp_path: Path) -> None:
        told = tmp_path / "pid"
        waits = f"import os, pathlib, time; pathlib.Path({str(told)!r}).write_text(str(os.getpid())); time.sleep(60)"
        fails = f"""if True:
            import pathlib, sys, time
            told = pathlib.Path({str(told)!r})
            while not told.exists() or not told.read_text():
                time.sleep(0.01)
            sys.exit("the disk is gone")
        """
        with pytest.raises(JournalUnavailable, match="the disk is gone"):
            asyncio.run(read_findings([[sys.executable, "-c", code] for code in (waits, fails)]))
        with pytest.raises(ProcessLookupError):
            os.kill(int(told.read_text()), 0)

    def test_a_head_that_is_not_in_it_exits_6(self, cli: Cli) -> None:
        cli("run", "q")
        assert not cli.json("journal", "verify", "--expect", "0" * 63 + "1", code=ExitCode.JOURNAL)["ok"]


class TestPreparing:
    def test_init_writes_a_file_once(self, cli: Cli) -> None:
        path = cli.folder / "new.toml"
        cli("init", "--empty", str(path))
        assert tomllib.loads(path.read_text())["journal"] == {"file": "shikisha.db"}
        cli("init", "--empty", str(path), code=ExitCode.INPUT)
        cli("init", "--empty", str(path), "--force")

    def test_workers_are_listed_without_a_key_and_without_markup(self, cli: Cli) -> None:
        with cli.config.open("a") as file:
            file.write('[workers.paid]\nkind="chat"\nmodel="m"\napi_key_env="NO_SUCH_KEY"\n')
        shown = cli("doctor", "workers")
        assert "[bold]says[/bold] ␛[31mred" in shown
        told = cli.json("doctor", "workers")["workers"]
        assert isinstance(told, list)
        assert [worker["ordinal"] for worker in told] == list(range(len(told)))
        assert {worker["name"] for worker in told} >= {"paid", "a"}

    def test_the_doctor_finds_a_missing_key_and_exits_3(self, cli: Cli) -> None:
        assert "ok    conductor" in cli("doctor")
        with cli.config.open("a") as file:
            file.write('[workers.paid]\nkind="chat"\nmodel="m"\napi_key_env="NO_SUCH_KEY"\n')
        shown = cli("doctor", code=ExitCode.CONFIG)
        assert "FAIL  worker paid: " in shown
        assert "environment variable NO_SUCH_KEY is not set" in shown

    def test_the_doctor_calls_each_worker_when_told_to(self, cli: Cli) -> None:
        cli.config.write_text(CONFIG + '\n[workers.x]\nkind="scripted"\nfaults=["auth"]'.replace("pool", ""))
        shown = cli("doctor", "--call", code=ExitCode.CONFIG)
        assert "ok    call a: 0.0 s: 42" in shown
        assert "FAIL  call x: auth" in shown

    def test_the_doctor_calls_whom_it_can_whatever_is_wrong_with_others_and_in_words_they_know(self, cli: Cli) -> None:
        with cli.config.open("a") as file:
            file.write('[workers.paid]\nkind="chat"\nmodel="m"\napi_key_env="NO_SUCH_KEY"\n')
            file.write('[workers.calc]\nkind="python"\n')
            file.write('[workers.tool]\nkind="http"\nurl="http://127.0.0.1:9/"\n')
        cli.config.write_text(cli.config.read_text().replace("pool = ", "#pool = "))
        shown = cli("doctor", "--call", code=ExitCode.CONFIG)
        assert "FAIL  worker paid: " in shown
        assert "call paid" not in shown
        assert "ok    call a: " in shown
        assert "FAIL  call b: " in shown
        assert re.search(r"^ok    call calc: \d+\.\d s: ready$", shown, re.MULTILINE)
        for name in ("me", "asks", "tool"):
            assert f"note  call {name}: not called: " in shown

    def test_where_nothing_is_found_init_writes_nothing_and_the_doctor_is_not_content(self, cli: Cli) -> None:
        cli("init", str(cli.folder / "none.toml"), code=ExitCode.CONFIG)
        assert "no model is configured or found" in cli.said
        assert not (cli.folder / "none.toml").exists()
        cli.config.write_text("[budgets]\nsteps = 9\n")
        assert f"FAIL  configuration: {cli.config} names no workers" in cli("doctor", code=ExitCode.CONFIG)
        cli.config.write_text('pool = ["simulated"]\n')
        assert "note  configuration: " in cli("doctor")

    def test_invariant_8_a_key_in_the_configuration_is_never_printed(self, cli: Cli) -> None:
        cli.config.write_text(CONFIG + f'[workers.x]\nkind="chat"\nmodel="m"\napi_key="{KEY}"\n')
        for command in (["run", "q"], ["workers"], ["doctor"], ["plan", "q", "--json"]):
            assert KEY not in cli(*command, code=ExitCode.CONFIG) + cli.said


@pytest.mark.parametrize("option", ["--dollars", "--seconds"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("command", [["run", "q"], ["eval", "--taskset", "x.jsonl"]])
def test_a_cap_that_is_no_number_is_refused(cli: Cli, command: list[str], option: str, value: str) -> None:
    cli(*command, f"{option}={value}", code=ExitCode.INPUT)


def test_a_pipe_gets_status_and_cost_of_every_run_whatever_its_prompt(cli: Cli) -> None:
    cli("run", "word " * 60)
    head, run = cli("runs").splitlines()
    assert head.split() == ["run", "status", "cost", "task"]
    assert run.split()[1:3] == ["done", "$0.25"]
    assert len(run) > 100


def test_help_documents_the_exit_codes() -> None:
    shown = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    for code in (
        ExitCode.FAILED,
        ExitCode.INPUT,
        ExitCode.CONFIG,
        ExitCode.CAPPED,
        ExitCode.WAITING,
        ExitCode.JOURNAL,
        ExitCode.INTERRUPTED,
    ):
        assert f" {int(code)} " in shown


def test_a_wrong_option_exits_2() -> None:
    result = CliRunner().invoke(app, ["run", "--no-such-option"])
    assert result.exit_code == ExitCode.INPUT
