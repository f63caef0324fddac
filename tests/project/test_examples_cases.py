"""The examples that learn: each runs offline, reaches what its page says in small, and draws its money curve."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from example_scripts import example
from paths import ROOT

EXAMPLES = ROOT / "examples"


def test_the_n8n_flow_leads_from_the_task_to_its_outcome_and_asks_what_the_server_has() -> None:
    flow = json.loads((EXAMPLES / "n8n" / "n8n-flow.json").read_text())
    nodes = {node["name"]: node for node in flow["nodes"]}
    order = ["Start"]
    while order[-1] in flow["connections"]:
        ((step,),) = flow["connections"][order[-1]]["main"]
        order.append(step["node"])
    assert order == list(nodes)
    assert nodes["Who is to answer"]["parameters"]["url"].endswith("/v1/route")
    assert "$json.endpoint_model" in nodes["Ask that model"]["parameters"]["jsonBody"]
    for node in flow["nodes"]:  # what a node quotes is a node before it
        named = [name for name in nodes if f"$('{name}')" in json.dumps(node)]
        assert all(order.index(name) < order.index(node["name"]) for name in named)


def test_tasks_of_the_n8n_example_are_different_and_their_models_as_good_as_said() -> None:
    n8n = example("n8n/n8n.py")
    tasks = n8n.simulated_log(1000, 1, 0.9)
    assert len({task.prompt for task in tasks}) == 1000
    easy = [task for task in tasks if task.easy]
    assert 0.87 < len(easy) / len(tasks) < 0.93
    for worker, skill in n8n.SKILL.items():
        assert sum(task.outcomes[worker][1] for task in easy) / len(easy) == pytest.approx(skill[0], abs=0.02)


@pytest.mark.slow
def test_easy_tasks_of_a_flow_go_to_the_cheap_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(example("n8n/n8n.py").main(["--folder", str(tmp_path), "--tasks", "1600"]))
    found = json.loads((tmp_path / "n8n.json").read_text())
    ours, mix = found["ways"]["the policy, through /v1/route"], found["ways"]["a random mix of the same share"]
    assert found["cheap share"] > 0.8
    assert ours["quality"] > mix["quality"]
    assert ours["cost"] < 0.3
    assert "<svg" in (tmp_path / "money.svg").read_text()
    assert "tasks went to the cheap model" in capsys.readouterr().out


def test_the_search_of_the_triage_finds_most_articles_and_says_how_sure_it_is() -> None:
    triage = example("triage/learn.py")
    made = triage.tickets(triage.own_articles(), 200, 1)
    assert sum(ticket.place < 2 for ticket in made) > 140
    by_sureness = {name: [one.place == 0 for one in made if one.sureness == name] for name in ("sure-0", "sure-5")}
    shares = {name: sum(first) / len(first) for name, first in by_sureness.items() if first}
    assert shares.get("sure-5", 1.0) > shares.get("sure-0", 0.0)
    right = {worker: sum(triage.is_right(worker, one) for one in made) for worker in triage.SKILL}
    assert right["large"] > right["small"]


def test_documents_are_read_from_a_clone_and_their_absence_is_named(tmp_path: Path) -> None:
    triage = example("triage/learn.py")
    folder = tmp_path / triage.BANKING
    folder.mkdir(parents=True)
    (folder / "doc (1).json").write_text(json.dumps({"id": "d", "title": "Fees é", "content": "The fee."}))
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)  # noqa: S603 - git in a folder of ours
    assert triage.banking_articles(tmp_path) == [triage.Article("d", "Fees é", "The fee.")]
    with pytest.raises(SystemExit, match="expected a local clone of tau2-bench"):
        triage.banking_articles(tmp_path / "nothing")


@pytest.mark.slow
def test_a_triage_that_learns_saves_money_at_about_the_same_quality(tmp_path: Path) -> None:
    asyncio.run(example("triage/learn.py").main(["--folder", str(tmp_path), "--tickets", "900", "--first", "200"]))
    found = json.loads((tmp_path / "triage.json").read_text())
    ours = found["the policy that learns"]
    assert ours["saved"] > 0.2
    assert ours["right"] > found["always the small model"]["right"]
    assert "learned" in (tmp_path / "money.svg").read_text()


@pytest.mark.slow
def test_a_margin_is_kept_when_the_best_model_becomes_three_times_as_expensive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(example("margin/margin.py").main(["--folder", str(tmp_path), "--requests", "600"]))
    found = json.loads((tmp_path / "margin.json").read_text())
    assert found["the rate plan"]["chat after"] == pytest.approx(0.6, abs=0.03)
    assert found["the mix that was right before"]["chat after"] < 0.3
    assert "60.0%" in capsys.readouterr().out
    assert "the price triples" in (tmp_path / "money.svg").read_text()


def test_requests_of_the_margin_example_cost_three_times_as_much_in_the_second_half() -> None:
    margin = example("margin/margin.py")
    made = margin.requests(400, 1)
    costs = [asked.dollars("best") / (2 if asked.domain == "code" else 1) for asked in made]
    assert sum(costs[200:]) / sum(costs[:200]) == pytest.approx(3.0, rel=0.15)
    assert margin.requests(400, 1) == made
