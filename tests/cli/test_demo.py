"""The demo: a learned conductor beside every control, its thought, and what is said where it is missing."""

import io
import json
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
