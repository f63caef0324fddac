"""Agents over a catalogue in real runs, and what is learned of its tools from their journal."""

import json
import random
from itertools import product
from pathlib import Path

import pytest
from test_catalogue import call, pinned

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.config.container import Container
from shikisha.core.call import Card, Reply, Request
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.core.messages import ToolCall
from shikisha.core.plan import Plan, Step
from shikisha.core.task import Task
from shikisha.core.tools import FIND_TOOLS
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Agent, Member, Pool
from shikisha.journal import Journal, open_journal
from shikisha.testing.chat_server import HttpExchange, HttpRequest, serve_http
from shikisha.tools.catalogue import ToolSearch
from shikisha.tools.tool_judgments import gather_judgments, select_ranker

NOUNS = ["invoice", "ticket", "order", "contact", "meeting", "payment", "shipment", "note"]
VERBS = ["list", "create", "delete", "update", "archive", "export"]


RIGHT = {f"{verb} {noun}": f"op_{place}" for place, (verb, noun) in enumerate(product(VERBS, NOUNS))}


def rows() -> str:
    """Tools whose descriptions name another noun: words alone mislead, and outcomes can teach that arguments count."""
    made = []
    for subtask, name in RIGHT.items():
        verb, noun = subtask.split()
        other = NOUNS[(NOUNS.index(noun) + 1) % len(NOUNS)]
        schema = {"type": "object", "properties": {f"{verb}_{noun}": {"type": "string"}}}
        made.append({"name": name, "description": f"{other} {other} {' '.join(VERBS)}", "parameters": schema})
    return "\n".join(map(json.dumps, made))


class ModelThatKnows:
    """A simulated model that knows the right tool by the subtask, and searches for it where it is not offered."""

    async def perform(self, request: Request) -> Reply:
        """Call the tool, or find it first."""
        wanted = RIGHT[" ".join(request.subtask.split()[:3:2])]
        offered = {tool["function"]["name"] for tool in request.client_options.tools}  # type: ignore[call-overload, index]
        made = [call for each in request.exchanges for call in each.calls]
        if wanted in offered and wanted not in [call.name for call in made]:
            return Reply("", calls=(ToolCall(f"c{len(made)}", wanted, "{}"),))
        if not made and FIND_TOOLS in offered:
            return Reply("", calls=(ToolCall("c0", FIND_TOOLS, json.dumps({"query": f"op {wanted[3:]}"})),))
        return Reply("done")


async def container_of(folder: Path, url: str) -> Container:
    (folder / "own.jsonl").write_text(rows())
    return await pinned(folder, f'[catalogues.own]\nkind = "jsonl"\nsource = "own.jsonl"\nbase_url = "{url}"\n')


async def perform(journal: Journal, container: Container, subtask: str) -> str:
    clerk = Member(
        Card("clerk", kind="agent", tools=True), ModelThatKnows(), agent=Agent((container.catalogue("own"),), offer=5)
    )
    plan = ScriptedConductor([Plan((Step(subtask, 0),))])
    run = await Engine(journal).run(Task(subtask), Pool([clerk]), plan)
    assert run.answer == "done"
    return run.id


async def answer(request: HttpRequest, exchange: HttpExchange) -> bool:
    await exchange.send(200, json.dumps({"called": request.path}).encode())
    return True


@pytest.mark.full
async def test_runs_teach_which_tools_are_right(tmp_path: Path) -> None:
    drawn = random.Random(1)
    async with serve_http(answer) as url, open_journal(str(tmp_path / "runs.db")) as journal:
        container = await container_of(tmp_path, url)
        entries = container.catalogue("own").read().entries
        for number in range(110):
            await perform(journal, container, f"{drawn.choice(VERBS)} the {drawn.choice(NOUNS)} of customer {number}")
        gathered = await gather_judgments(journal, "own", entries)
        await container.aclose()
    asked = [each for each in gathered.judgments if each.unused]
    assert len(asked) >= 100
    names = [entry.tool.name for entry in entries]
    for each in gathered.judgments:
        first, _, third = f"{each.query} x".split()[:3]
        assert [names[place] for place in each.right] == [RIGHT.get(f"{first} {third}", f"op_{each.query[3:]}")]
    search = ToolSearch(entries).search
    _, gain = select_ranker(search, gathered.judgments, None, "runs")
    assert gain.excludes_harm
    assert gain.after > gain.before + 0.1


async def test_a_step_that_was_wrong_says_nothing_and_what_is_right_is_weighed(tmp_path: Path) -> None:
    async with serve_http(answer) as url, open_journal(str(tmp_path / "runs.db")) as journal:
        container = await container_of(tmp_path, url)
        entries = container.catalogue("own").read().entries
        runs = [await perform(journal, container, f"{verb} the invoice now") for verb in ("list", "create", "export")]
        for run, score in zip(runs, (0.0, 1.0), strict=False):
            mark = GradeMark.RIGHT if score else GradeMark.WRONG
            journal.add(AnswerGraded(run=run, at=0.0, checker="person", mark=mark, score=score, actor="ann"))
        await journal.flush()
        gathered = await gather_judgments(journal, "own", entries)
        assert gathered.skipped == {"steps that a check or a grade says were wrong": 1}
        assert {each.weight for each in gathered.judgments} == {1.0, 0.5}
        # A tool that has changed since is not the one that was offered.
        (tmp_path / "own.jsonl").write_text(rows().replace("ticket ticket", "entirely other"))
        changed = await container_of(tmp_path, url)
        assert await call(changed.catalogue("own"), "op_2") == '{"called":"/op_2"}'
        await changed.aclose()
        await container.aclose()
