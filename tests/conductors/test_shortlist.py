"""Of a pool that is too large for a prompt, a conductor is shown the workers that fit the task."""

import pytest
from test_language_model import Endpoint

from shikisha.conductors.language_model import LanguageModelConductor, Shortlist, choose_shortlist
from shikisha.core.budget import Caps
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.core.run import Result, RoundResult
from shikisha.core.task import Task
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.pool import Member
from shikisha.engine.worker import Card, Reply, Request

WORK = ("invoices", "weather", "poems", "tax returns", "train times", "recipes", "contracts", "chess")
POOL = tuple(
    Card(f"w{number}", f"Answers questions about {WORK[number % 8]} in {number // 8}.") for number in range(800)
)
TASK = Task("Look up the contracts in 71. Then write recipes in 12.")
RIGHT = {"w574", "w101"}


def names(shortlist: Shortlist) -> set[str]:
    """Who is shown."""
    return {POOL[ordinal].name for ordinal in shortlist.ordinals}


@pytest.mark.parametrize("most", [4, 10, 40])
def test_those_that_fit_each_part_and_the_first_of_the_pool_are_shown(most: int) -> None:
    shortlist = choose_shortlist(TASK, POOL, (), most)
    assert len(shortlist.ordinals) == most
    assert RIGHT | {"w0"} <= names(shortlist)
    assert list(shortlist.ordinals) == sorted(shortlist.ordinals)
    assert shortlist == choose_shortlist(TASK, POOL, (), most)


@pytest.mark.parametrize("prompt", ["?!", "zebra", "🦓" * 5000, "in about questions " * 10_000])
def test_words_that_fit_nobody_or_everybody_leave_the_first_of_the_pool(prompt: str) -> None:
    shortlist = choose_shortlist(Task(prompt), POOL, (), 20)
    assert len(shortlist.ordinals) == 20
    assert {"w0", "w1", "w2", "w3", "w4"} <= names(shortlist)


def test_a_pool_that_fits_is_shown_whole() -> None:
    shortlist = choose_shortlist(TASK, POOL[:40], (), 40)
    assert shortlist.whole
    situation, proposal = Situation(TASK, POOL[:40]), Proposal(Plan((Step("go", 39),)))
    assert shortlist.narrow(situation) is situation
    assert shortlist.widen(proposal, POOL[:40]) is proposal


def test_the_workers_of_earlier_rounds_stay_and_their_plans_name_them_in_both_ways() -> None:
    before = RoundResult(Plan((Step("ask", 700), Step("join", 3, (0,)))), (Result("w700", "x"), Result("w3", "y")))
    shortlist = choose_shortlist(TASK, POOL, (before,), 6)
    assert {700, 3} <= set(shortlist.ordinals)
    narrow = shortlist.narrow(Situation(TASK, POOL, (before,)))
    assert [narrow.cards[step.worker].name for step in narrow.rounds[0].plan.steps] == ["w700", "w3"]
    widened = shortlist.widen(Proposal(narrow.rounds[0].plan, note="because"), POOL)
    assert (widened.plan, widened.note.partition(";")[0]) == (before.plan, "because")
    five = Plan(tuple(Step("ask", 100 + place) for place in range(5)))
    many = RoundResult(five, tuple(Result("w", "x") for _ in range(5)))
    assert set(range(100, 105)) <= set(choose_shortlist(TASK, POOL, (many,), 3).ordinals)


async def test_a_prompted_conductor_reads_the_shortlist_and_its_plan_names_the_pools_workers() -> None:
    shown = sorted(choose_shortlist(TASK, POOL, (), 10).ordinals)
    text = render_plan_lists(Plan((Step("look up", shown.index(574)), Step("write", shown.index(101), (0,)))))
    endpoint = Endpoint([render_plan_lists(Plan((Step("go", 10),))), text])

    async def ask(member: Member, request: Request) -> Reply:
        return await member.worker.perform(request)

    conductor = LanguageModelConductor("lm:planner", Member(Card("planner"), endpoint), shown=10)
    proposal = await conductor.propose(Situation(TASK, POOL, (), Caps(), ask))
    assert [POOL[step.worker].name for step in proposal.plan.steps] == ["w574", "w101"]
    assert "no worker 10" in proposal.rejected[0].what
    assert "shown 10 of 800 workers: w0, " in proposal.note
    assert len(endpoint.seen[0].turns[-1].text) < 3_000
