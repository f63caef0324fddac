"""The examples that learn: each runs offline, reaches what its page says in small, and draws its money curve."""

import asyncio
import json
from pathlib import Path

import pytest
from example_scripts import example
from paths import ROOT

from shikisha.testing import InjectedFault, ReceivedChatRequest, ScriptedAnswer, chat_server

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


def test_what_resolves_a_ticket_of_the_triage_is_known_and_search_finds_its_article() -> None:
    triage = example("triage/learn.py")
    articles, made = triage.articles_and_tickets(200, 1)
    knowledge = triage.Knowledge(
        articles, triage.TextIndex([triage.IndexedText("", (each,)) for each in articles], (1.0,))
    )
    for ticket in made:
        best = knowledge.best(ticket.text)
        if len(ticket.needed) > 1:  # to read up on: the article, not one of its facts
            assert ticket.is_resolved("knowledge", best)
            assert not ticket.is_resolved("draft", "It costs 5 dollars.")
        elif ticket.needed:  # one fact: a draft that names it, not five facts
            assert ticket.is_resolved("draft", f"It is {next(iter(ticket.needed))}.")
            assert not ticket.is_resolved("knowledge", best)
        else:
            assert [ticket.is_resolved(each, best) for each in triage.CHANNELS] == [False, False, True]


@pytest.mark.full
def test_a_triage_learns_which_channel_resolves_which_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of it, with a draft of ours in the place of the model: right in nine of ten, in the model's words."""
    triage = example("triage/learn.py")
    _, made = triage.articles_and_tickets(200, 1)

    def drafted(asked: ReceivedChatRequest) -> ScriptedAnswer:
        ticket = next(each for each in made if each.text in asked.messages[-1][1])
        known = len(ticket.needed) == 1 and int(ticket.name.rpartition("-")[2]) % 10 > 0
        return ScriptedAnswer(text=f"It is {next(iter(ticket.needed))}." if known else "It is not said.")

    async def perform() -> None:
        async with chat_server(drafted) as url:
            text = (EXAMPLES / "triage" / "learning.toml").read_text().replace('"local:"', f'"{url}"')
            (tmp_path / "learning.toml").write_text(text)
            monkeypatch.setattr(triage, "HERE", tmp_path)
            await triage.main(["--folder", str(tmp_path / "made"), "--tickets", "200", "--first", "120"])

    asyncio.run(perform())
    found = json.loads((tmp_path / "made" / "triage.json").read_text())
    ours, person = found["the policy that was learned"], found["always person"]
    assert ours["dollars"] < 0.7 * person["dollars"]
    assert ours["right"] > max(found["always knowledge"]["right"], found["always draft"]["right"])
    assert "resolved" in (tmp_path / "made" / "money.svg").read_text()


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


@pytest.mark.full
def test_a_margin_of_real_endpoints_is_compared_and_a_failed_answer_counts_as_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The endpoints of real.toml are doubles: the better one knows all answers, and both refuse one request."""
    margin = example("margin/margin.py")
    known = {asked.text: asked.truth for asked in margin.real_requests(32, 1)}
    refused = next(iter(known))

    def answer(asked: ReceivedChatRequest) -> ScriptedAnswer:
        if refused in asked.last:
            return ScriptedAnswer(mishap=InjectedFault.HTML)
        best = asked.model == "qwen2.5-coder-0.5b"
        return ScriptedAnswer(text=f"It is {known[asked.last]}{', surely' * 15}." if best else "It is 0.")

    async def perform() -> None:
        async with chat_server(answer) as url:
            text = (EXAMPLES / "margin" / "real.toml").read_text().replace('"local:"', f'"{url}"')
            (tmp_path / "real.toml").write_text(text)
            monkeypatch.setattr(margin, "HERE", tmp_path)
            await margin.main(["--folder", str(tmp_path / "made"), "--requests", "32", "--real"])

    asyncio.run(perform())
    found = json.loads((tmp_path / "made" / "margin.json").read_text())
    plan, best, cheap = (found[name] for name in ("the rate plan", "always the best", "always the cheap one"))
    assert best["right"] == 31 / 32
    assert cheap["right"] == 0.0
    assert plan["chat after"] > best["chat after"] < best["chat before"]  # the price rose, and the plan noticed
    assert "1 without an answer" in capsys.readouterr().out
    assert "two models of this machine" in (tmp_path / "made" / "money.svg").read_text()
