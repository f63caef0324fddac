"""The demo: a learned conductor beside every control, its thought, and what is said where it is missing."""

import io
import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.conductors.pointer_conductor import shipped_pointer
from shikisha.core.plan import Plan
from shikisha.core.prompts import render_plan_lists
from shikisha.engine.conductor import Proposal, Situation
from shikisha.simulation.baseline_conductors import RULES
from shikisha.simulation.demo_run import BASELINE_CONTENDERS, Contender, run_demo

LEARNED = "shipped conductor (learned)"
HERE = (files("shikisha") / "shipped" / "model.onnx").is_file()
if HERE:
    pytest.importorskip("onnxruntime")


class Thinking:
    """A conductor that plans as the rules do, thinks before that, and keeps its answer in a second round."""

    name = "test:thinking"

    async def propose(self, situation: Situation) -> Proposal:
        plan = Plan() if situation.rounds else (await RULES.propose(situation)).plan
        thought = "came ok\n" if situation.rounds else "0=fact\nwork fact=0 then text=1\n"
        return Proposal(plan, thought + render_plan_lists(plan), final=bool(situation.rounds))


async def shown(*more: Contender, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    rows = await run_demo(console, tasks=12, seed=3, pace=0.0, more=more)
    assert [row.contender for row in rows] == [*BASELINE_CONTENDERS, *more]
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def test_the_run_shown_is_the_learned_conductors_with_what_it_thought() -> None:
    text = (await shown(Contender("a learned one", Thinking()))).replace("\N{NO-BREAK SPACE}", " ")
    assert "The learned conductor sees only the question" in text
    assert "Supervised examples taught it to read" in " ".join(text.split())
    assert "One run, conducted by: a learned one" in text
    assert "thinks 0=fact · work fact=0 then text=1" in text
    assert "thinks again came ok" in text
    assert "and keeps the answer" in text
    assert "├── workers" in text


async def test_without_a_learned_conductor_the_rules_are_shown_and_nothing_is_thought() -> None:
    text = await shown()
    assert "One run, conducted by: hand-written rules" in text
    assert "thinks" not in text
    assert "learned" not in text


@pytest.mark.parametrize("width", [60, 80, 120])
async def test_no_line_is_wider_than_the_screen(width: int) -> None:
    text = await shown(Contender("a learned one", Thinking()), width=width)
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.skipif(not HERE, reason="no conductor is shipped with this build")
def test_the_table_has_the_shipped_conductor() -> None:
    told = CliRunner().invoke(app, ["demo", "--tasks", "6", "--pace", "0", "--json"])
    rows = json.loads(told.stdout)["rows"]
    assert [row["conductor"] for row in rows] == [*(one.label for one in BASELINE_CONTENDERS), LEARNED]
    assert "no learned conductor" not in told.stderr
    assert "At the learned conductor's dollars the best mix of controls (" in " ".join(told.stderr.split())


def test_without_the_extra_the_demo_runs_and_says_in_a_line_what_is_missing() -> None:
    code = "import sys; sys.modules['onnxruntime'] = None; from shikisha.cli import main; main()"
    command = [sys.executable, "-c", code, "demo", "--tasks", "4", "--pace", "0", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own command
    assert [row["conductor"] for row in json.loads(done.stdout)["rows"]] == [one.label for one in BASELINE_CONTENDERS]
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("no learned conductor in the table: ")]
    assert ("pip install 'shikisha[edge]'" if HERE else "this build of shikisha has no shipped/model.onnx") in line


@pytest.mark.skipif(not HERE, reason="no conductor is shipped with this build")
def test_what_ships_is_small_says_what_it_is_and_holds_no_weights_twice() -> None:
    sizes = {one.name: len(one.read_bytes()) for one in (files("shikisha") / "shipped").iterdir()}
    assert sum(sizes.values()) <= 4_000_000
    assert set(sizes) <= {"model.onnx", "tokenizer.json", "config.json", "card.json", "README.md"}


UNTORCHED = """
import sys
for name in ("torch", "transformers", "safetensors", "shikisha.training"):
    sys.modules[name] = None  # an import of it is an ImportError
from shikisha.cli import main
main()
"""


@pytest.mark.skipif(not HERE, reason="no conductor is shipped with this build")
def test_the_shipped_conductor_needs_no_torch_and_no_training() -> None:
    command = [sys.executable, "-W", "error", "-c", UNTORCHED, "demo", "--tasks", "4", "--pace", "0", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own command
    assert json.loads(done.stdout)["rows"][-1]["conductor"] == LEARNED


def test_the_office_shows_every_amount_of_notes_next_to_the_controls(tmp_path: Path) -> None:
    own = tmp_path / "own.safetensors"
    own.write_bytes(shipped_pointer().read_bytes())
    found = CliRunner().invoke(app, ["demo", "--office", "--tasks", "4", "--json", "--pointer", str(own)])
    assert found.exit_code == 0, found.output
    rows = json.loads(found.stdout)["rows"]
    assert [row["notes"] for row in rows if row["conductor"] == "learned conductor"] == [0, 10, 30, 100, 300]
    assert rows[-1]["conductor"] == "optimum (knows everything)"
    assert all(row["tasks"] == 4 for row in rows)
    text = CliRunner().invoke(app, ["demo", "--office", "--tasks", "4"]).stdout
    assert "simulated" in text
    assert "Mistakes of the learned conductor" in text


def test_a_pointer_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for arguments, said in ((["--office"], "cannot be read"), ([], "add --office")):
        refused = CliRunner().invoke(app, ["demo", *arguments, "--pointer", str(tmp_path / "none")])
        assert refused.exit_code == 3
        assert said in refused.stderr
