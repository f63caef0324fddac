"""The environment for `verifiers`, by its own command in an environment of its own: `scripts/clients verifiers`.

Skipped where it is not installed (some 700 MB). The model's endpoint is a double, everything else is what users run.
"""

import asyncio
import json
import os
from pathlib import Path

import pytest
from paths import ROOT
from test_train_cli import ROWS, WORKERS

from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server

VERIFIERS = ROOT / ".venv" / "clients" / "verifiers"
TRAINING = '[model]\nstart = "any"\nbrief = false\n[tasks]\nset = "turns.jsonl"\njudged = 3\nleast = 3\n'
KEEP = "model_id = []\nsubtasks = []\naccess_list = []"

pytestmark = [
    pytest.mark.clients,
    pytest.mark.full,
    pytest.mark.skipif(not VERIFIERS.exists(), reason="verifiers is not here: scripts/clients verifiers"),
]


def policy(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """Ask the first worker; where that was wrong another one, else keep the answer."""
    first, told = asked.messages[1][1], asked.messages[-1][1]
    descriptions = [line for line in first.splitlines() if line.startswith("Model ")]
    assert len(descriptions) == 3
    if len(asked.messages) == 2:
        return ScriptedAnswer(text=_plan(0))
    answered = "right" if "\n| right" in told else "left" if "\n| left" in told else "neither"
    gold = "left" if "turn left" in first else "right"
    return ScriptedAnswer(text=KEEP if answered == gold else _plan(1) if len(asked.messages) == 4 else "I give up.")


def _plan(worker: int) -> str:
    return render_plan_lists(Plan((Step("say it", worker),)))


@pytest.mark.parametrize("rounds", [1, 3])
async def test_its_own_command_evaluates_a_policy(tmp_path: Path, rounds: int) -> None:
    (tmp_path / "turns.toml").write_text(TRAINING)
    (tmp_path / "turns.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "shikisha.toml").write_text(WORKERS)
    async with chat_server(policy) as server:
        process = await asyncio.create_subprocess_exec(
            *(str(VERIFIERS / "bin" / "vf-eval"), "shikisha-conductor", "-m", "policy", "-n", "6", "--no-push"),
            *("--no-rich", "--output-dir", "out", "--run.dir", "here", "--client.base-url", server),
            *("--env.taskset.task.file", "turns.toml", "--env.taskset.task.replies", "rewards"),
            *("--env.rounds", str(rounds)),
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(
                    str(ROOT / each) for each in ("integrations/verifiers", "src", "plugins/train/src")
                ),
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, complained = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, (said[-2000:], complained[-3000:])
    episodes = [json.loads(line) for line in (tmp_path / "out" / "here" / "traces.jsonl").read_text().splitlines()]
    assert len(episodes) == 6
    turns = set()
    for episode in episodes:
        (trace,) = episode["traces"]
        data = episode["task"]["data"]
        gold = next(each["answer"] for each in ROWS if each["id"] == data["id"])
        place = data["pool"].index(gold)
        asked = sum(node["message"]["role"] == "assistant" for node in trace["nodes"])
        assert not trace.get("errors"), trace["errors"]
        assert asked == (1 if rounds == 1 else 2 if place == 0 else 3)
        right = place == 0 if rounds == 1 else place < 2
        worth = trace["rewards"]["plan"]["score"]
        assert worth == (1.0 if right else 0.5)
        assert (trace["metrics"]["acc"], trace["metrics"]["valid"]) == (right, rounds == 1 or place < 2)
        turns.add(asked)
    assert turns == ({1} if rounds == 1 else {2, 3})
    paid = [json.loads(line)["key"] for line in (tmp_path / "rewards" / "0" / "calls-0.jsonl").read_text().splitlines()]
    assert len(set(paid)) == len(paid)  # what the model was shown and what was scored is one performance
