"""The command line as a process of its own: start-up, signals, pipes, a terminal."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

SLOW = """
conductor = "fixed:single"
[workers.slow]
kind = "scripted"
seconds = [60, 0]
answers = "late \\u001b]0;pwned\\u0007[red]x[/red]"
[workers.quick]
kind = "scripted"
answers = "late \\u001b]0;pwned\\u0007[red]x[/red]"
[workers.asks]
kind = "scripted"
approval = "always"
answers = "allowed"
"""
COMMAND = [sys.executable, "-m", "shikisha"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a configuration whose first worker takes a minute, once."""
    (tmp_path / "shikisha.toml").write_text(SLOW)
    return tmp_path


def started(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Start a command and wait until it has begun a step."""
    process = subprocess.Popen(  # noqa: S603 - our own program
        [*COMMAND, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    while "round 0" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(0.2)
    return process


def call(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603


@pytest.mark.full
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_says_how_it_goes_on_and_does(folder: Path, sent: signal.Signals, code: int) -> None:
    process = started(folder, "run", "q", "-C", "fixed:chain?workers=slow,quick")
    process.send_signal(sent)
    _, said = process.communicate(timeout=20)
    assert process.returncode == code
    name = said.split("continue with: shikisha runs resume ")[1].strip()
    (folder / "shikisha.toml").write_text(SLOW.replace("[60, 0]", "[0]"))
    resumed = call(folder, "resume", name, "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["status"] == "done"


@pytest.mark.full
def test_invariant_4_a_killed_run_is_resumed_from_its_last_journaled_step(folder: Path) -> None:
    process = started(folder, "run", "q", "-C", "fixed:chain?workers=quick,slow")
    process.kill()
    process.communicate()
    (folder / "shikisha.toml").write_text(SLOW.replace("[60, 0]", "[0]"))
    resumed = call(folder, "resume", "--json")
    assert json.loads(resumed.stdout)["status"] == "done", resumed.stderr
    events = json.loads(call(folder, "trace", "--json").stdout)["events"]
    first = [event for event in events if event["kind"] == "attempt.started" and event["data"]["step"] == 0]
    assert len(first) == 1


def test_a_pipe_gets_the_answer_byte_for_byte(folder: Path) -> None:
    assert call(folder, "run", "q", "-p", "quick").stdout == "late \x1b]0;pwned\x07[red]x[/red]\n"


@pytest.mark.full
def test_a_reader_that_leaves_early_is_no_traceback(folder: Path) -> None:
    call(folder, "run", "q", "-p", "quick")
    shell = f"{' '.join(COMMAND)} journal export | head -1"
    done = subprocess.run(shell, shell=True, cwd=folder, capture_output=True, text=True, check=False, timeout=60)  # noqa: S602 - a pipe of our own program
    assert "Traceback" not in done.stderr


HEAVY = ("torch", "openai", "fastapi", "sqlalchemy", "pydantic", "rich", "pyarrow", "mcp", "asyncio")


@pytest.mark.parametrize("module", ["shikisha", "shikisha.cli"])
def test_importing_it_imports_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "[]\n"


def test_no_table_of_the_configuration_is_compiled_before_one_is_read() -> None:
    code = """
from shikisha.config import container, template
from shikisha.core.toml import Table

def below(model):
    return [model, *(each for heir in model.__subclasses__() for each in below(heir))]

models = below(Table)
print(len(models) > 40, [each.__name__ for each in models if each.__pydantic_complete__])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "True []\n"


def test_a_run_into_a_journal_of_this_version_imports_no_sqlalchemy_and_draws_nothing_into_a_pipe(folder: Path) -> None:
    call(folder, "run", "q", "-p", "quick")  # makes the journal
    command = [sys.executable, "-X", "importtime", *COMMAND[1:], "run", "q", "-p", "quick"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)  # noqa: S603 - our own command
    names = [line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()]
    assert "pydantic" in names
    assert not {"sqlalchemy", "alembic", "rich"} & set(names)
    assert "\u2713 0 quick" in done.stderr
    assert "intact" in call(folder, "journal", "verify").stdout


class Terminal:
    """A pseudo-terminal with a command in it."""

    def __init__(self, folder: Path, *arguments: str, columns: int = 80) -> None:
        self.shown = ""
        self.pid, self._screen = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.environ |= {"TERM": "xterm", "COLUMNS": str(columns), "LINES": "24"}
            os.execv(sys.executable, [*COMMAND, *arguments])  # noqa: S606 - our own program

    def type(self, text: str) -> None:
        """Type, as a person would."""
        os.write(self._screen, text.encode())

    def wait_for(self, text: str, seconds: float = 20.0) -> None:
        """Read the screen until a text is there."""
        deadline = time.monotonic() + seconds
        while text not in self.shown:
            ready, _, _ = select.select([self._screen], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, self.shown
            self.shown += os.read(self._screen, 65536).decode("utf-8", "replace")

    def end(self) -> int:
        """Read the rest; return the exit code."""
        try:
            while select.select([self._screen], [], [], 60.0)[0] and (piece := os.read(self._screen, 65536)):
                self.shown += piece.decode("utf-8", "replace")
        except OSError:  # how a pseudo-terminal says that its program has ended
            pass
        os.close(self._screen)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def quiet_forks(recwarn: pytest.WarningsRecorder) -> Iterator[None]:
    """Python warns of forks beside threads; the child here only executes another program."""
    yield
    recwarn.clear()


@pytest.mark.usefixtures("quiet_forks")
class TestTerminal:
    def test_the_tree_is_live_and_model_text_is_harmless(self, folder: Path) -> None:
        terminal = Terminal(folder, "run", "q", "-p", "quick")
        assert terminal.end() == 0
        assert "0 quick" in terminal.shown
        assert "late ␛]0;pwned␇[red]x[/red]" in terminal.shown
        assert "\x1b]0;" not in terminal.shown

    @pytest.mark.full
    @pytest.mark.parametrize(("columns", "task"), [(40, ""), (80, "long"), (120, "long")])
    def test_runs_keeps_status_and_cost_however_narrow_it_is(self, folder: Path, columns: int, task: str) -> None:
        call(folder, "run", "a long " + "指揮者 " * 40, "-p", "quick")
        terminal = Terminal(folder, "runs", columns=columns)
        assert terminal.end() == 0
        head, run = terminal.shown.splitlines()
        assert head.split()[:3] == ["run", "status", "cost"]
        assert run.split()[1:3] == ["done", "$0"]
        assert task in run
        assert cell_len(run) <= columns

    @pytest.mark.full
    @pytest.mark.parametrize(("typed", "code"), [("y", 0), ("n", 1), ("l", 5)])
    def test_a_person_at_the_terminal_approves_refuses_or_puts_off(self, folder: Path, typed: str, code: int) -> None:
        terminal = Terminal(folder, "run", "q", "-p", "asks")
        terminal.wait_for("[l]ater: ")
        terminal.type("what?\n")
        terminal.type(f"{typed}\n")
        assert terminal.end() == code
        assert ("allowed" in terminal.shown) == (code == 0)

    def test_a_person_answers_in_several_lines(self, folder: Path) -> None:
        with (folder / "shikisha.toml").open("a") as file:
            file.write('[workers.me]\nkind = "human"\n')
        terminal = Terminal(folder, "run", "q", "-p", "me")
        terminal.wait_for("answer later):")
        terminal.type(".\nforty\ntwo\n.\n")
        assert terminal.end() == 0
        assert terminal.shown.endswith("forty\r\ntwo\r\n")

    def test_ctrl_c_reaches_a_question(self, folder: Path) -> None:
        terminal = Terminal(folder, "run", "q", "-p", "asks")
        terminal.wait_for("[l]ater: ")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert "continue with: shikisha runs resume" in terminal.shown
