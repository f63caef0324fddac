"""A language model as conductor: its plan, its second try, its fallback; everything recorded."""

from dataclasses import dataclass, field

import pytest

from shikisha.conductors.fixed_conductors import ScriptedConductor, fixed_conductor
from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.core.budget import Caps
from shikisha.core.errors import FaultKind, PlanError, WorkerError
from shikisha.core.events import RunStatus
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import PLAN_CHARACTERS, PlanFormat, PromptStyle, RepeatedTask, render_plan_lists
from shikisha.core.run import Result, RoundResult
from shikisha.core.task import Task
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.pool import Member
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Card, Reply, Request, Speaker
from support import TASK, engine, member, pool_of

CARDS = (Card("a", "adds"), Card("b", "writes"))
GOOD = Plan((Step("add", 0), Step("write it up", 1, (0,))))
OUTSIDER = render_plan_lists(Plan((Step("go", 7),)))
EMPTY = render_plan_lists(Plan())
CUT_OFF = "(cut off)"
FALLBACK = ScriptedConductor([Plan((Step("stand in", 0),))], "fixed:stand-in")


@dataclass
class Endpoint:
    """Answers with the texts given, in order, and keeps what it was asked; None stands for a fault."""

    texts: list[str | None]
    seen: list[Request] = field(default_factory=list)

    async def perform(self, request: Request) -> Reply:
        self.seen.append(request)
        text = self.texts[len(self.seen) - 1]
        if text is None:
            raise WorkerError(FaultKind.TIMEOUT)
        if text == CUT_OFF:
            raise WorkerError(FaultKind.TRUNCATED, "the answer ran into its output limit", partial="half a pl")
        return Reply(text, model="planner-2026")


async def propose(
    endpoint: Endpoint,
    *rounds: RoundResult,
    form: PlanFormat = PlanFormat.LISTS,
    bare: bool = False,
    repeats: RepeatedTask = RepeatedTask.TELL,
) -> Proposal:
    async def ask(member: Member, request: Request) -> Reply:
        return await member.worker.perform(request)

    member = Member(Card("planner"), endpoint)
    fallback = None if bare else FALLBACK
    conductor = LanguageModelConductor("lm:planner", member, fallback, PromptStyle(form), repeats=repeats)
    return await conductor.propose(Situation(Task("2 + 2?"), CARDS, rounds, Caps(), ask))


async def test_the_models_plan_is_proposed_with_its_text_and_version() -> None:
    text = f"Two parts.\n{render_plan_lists(GOOD)}"
    proposal = await propose(Endpoint([text]))
    assert proposal == Proposal(GOOD, text, version="planner-2026")


async def test_a_text_that_is_no_plan_gets_one_further_try_that_shows_the_error() -> None:
    endpoint = Endpoint([OUTSIDER, render_plan_lists(GOOD)])
    proposal = await propose(endpoint)
    assert proposal.plan == GOOD
    assert [(r.text, r.where) for r in proposal.rejected] == [(OUTSIDER, "model_id[0]")]
    turns = endpoint.seen[1].turns
    assert (turns[-2].speaker, turns[-2].text) == (Speaker.ASSISTANT, OUTSIDER)
    assert "| model_id[0]: no worker 7" in turns[-1].text


async def test_invariant_9_the_fallback_is_named_and_what_it_replaced_is_kept() -> None:
    proposal = await propose(Endpoint([OUTSIDER, "no lists"]))
    assert proposal.substituted == "fixed:stand-in"
    assert [step.subtask for step in proposal.plan.steps] == ["stand in"]
    assert [r.text for r in proposal.rejected] == [OUTSIDER, "no lists"]
    assert "wrote no plan in 2 tries" in proposal.note


@pytest.mark.parametrize(
    ("step", "repeats", "told"),
    [
        (Step("2 + 2", 0), RepeatedTask.TELL, True),
        (Step(" 2 + 2? ", 0), RepeatedTask.FALLBACK, True),
        (Step("2 + 2?", 1), RepeatedTask.FALLBACK, False),
        (Step("Add 2 and 2.", 0), RepeatedTask.FALLBACK, False),
    ],
)
async def test_a_plan_that_only_repeats_the_task_is_told_or_replaced(
    step: Step, repeats: RepeatedTask, told: bool
) -> None:
    proposal = await propose(Endpoint([render_plan_lists(Plan((step,)))]), repeats=repeats)
    replaced = told and repeats is RepeatedTask.FALLBACK
    assert ("only repeats the task for the first worker" in proposal.note) is told
    assert proposal.substituted == ("fixed:stand-in" if replaced else None)
    assert proposal.plan.steps[0].subtask == ("stand in" if replaced else step.subtask.strip())


async def test_invariant_1_a_plan_for_a_worker_outside_the_pool_is_never_proposed() -> None:
    with pytest.raises(PlanError, match="wrote no plan in 2 tries"):
        await propose(Endpoint([OUTSIDER, OUTSIDER]), bare=True)


async def test_a_silent_model_leads_to_the_fallback() -> None:
    endpoint = Endpoint([None])
    proposal = await propose(endpoint)
    assert (proposal.substituted, len(endpoint.seen)) == ("fixed:stand-in", 1)
    assert "gave no answer (timeout)" in proposal.note


async def test_a_plan_that_is_cut_off_is_asked_for_once_more_at_half_the_length() -> None:
    endpoint = Endpoint([CUT_OFF, GOOD.dumps()])
    proposal = await propose(endpoint, form=PlanFormat.JSON)
    assert (proposal.plan, proposal.substituted) == (GOOD, None)
    assert [each.text for each in proposal.rejected] == ["half a pl"]
    for asked, most in zip(endpoint.seen, (PLAN_CHARACTERS, PLAN_CHARACTERS // 2), strict=True):
        assert f"'maxLength': {most}" in str(asked.schema)
    whole, half = (str(asked.schema).count("'minItems'") for asked in endpoint.seen)
    assert half == whole // 2  # as many lengths of a plan
    assert "half as many words" in endpoint.seen[1].turns[-1].text
    proposal = await propose(Endpoint([CUT_OFF, CUT_OFF]))
    assert proposal.substituted == "fixed:stand-in"


async def test_without_a_fallback_the_models_fault_is_the_conductors() -> None:
    with pytest.raises(WorkerError, match="timeout"):
        await propose(Endpoint([None]), bare=True)


async def test_a_call_that_waits_for_a_person_is_waited_for() -> None:
    async def ask(_: Member, __: Request) -> Reply:
        raise WorkerError(FaultKind.WAITING, "may it be called?")

    conductor = LanguageModelConductor("lm:p", Member(Card("p"), Endpoint([])), FALLBACK)
    with pytest.raises(WorkerError, match="waiting"):
        await conductor.propose(Situation(Task("q"), CARDS, ask=ask))


async def test_keeping_the_answer_needs_an_answer() -> None:
    proposal = await propose(Endpoint([EMPTY, render_plan_lists(GOOD)]))
    assert proposal.rejected[0].what == "there is no answer to keep yet: the first plan needs a step"
    assert proposal.plan == GOOD


async def test_after_a_round_three_empty_lists_keep_the_answer() -> None:
    endpoint = Endpoint([EMPTY])
    round_0 = RoundResult(GOOD, (Result("a", "4"), Result("b", "It is 4.")))
    assert (await propose(endpoint, round_0)).plan.ships
    assert "| It is 4." in endpoint.seen[0].turns[1].text


async def test_a_fallback_after_a_round_keeps_the_answer() -> None:
    async def ask(_: Member, __: Request) -> Reply:
        raise WorkerError(FaultKind.SERVER)

    conductor = LanguageModelConductor("lm:p", Member(Card("p"), Endpoint([])), fixed_conductor("single"))
    round_0 = RoundResult(GOOD, (Result("a", "4"), Result("b", "4")))
    proposal = await conductor.propose(Situation(Task("q"), CARDS, (round_0,), ask=ask))
    assert proposal.plan.ships


async def test_an_endpoint_with_structured_output_is_held_to_the_schema() -> None:
    endpoint = Endpoint([GOOD.dumps()])
    proposal = await propose(endpoint, form=PlanFormat.JSON)
    assert proposal.plan == GOOD
    assert endpoint.seen[0].schema is not None
    assert '"worker"' in endpoint.seen[0].turns[0].text


async def test_other_endpoints_are_sent_no_schema() -> None:
    endpoint = Endpoint([render_plan_lists(GOOD)])
    await propose(endpoint)
    assert endpoint.seen[0].schema is None


async def test_the_prompt_asks_for_no_more_steps_than_are_left() -> None:
    endpoint = Endpoint([render_plan_lists(GOOD), render_plan_lists(Plan(GOOD.steps[:1]))])

    async def ask(member: Member, request: Request) -> Reply:
        return await member.worker.perform(request)

    conductor = LanguageModelConductor("lm:p", Member(Card("p"), endpoint))
    proposal = await conductor.propose(Situation(Task("q"), CARDS, (), Caps(steps=1), ask))
    assert "at most 1 step." in endpoint.seen[0].turns[0].text
    assert [len(proposal.plan), len(proposal.rejected)] == [1, 1]


async def test_without_a_way_to_ask_there_is_no_plan() -> None:
    with pytest.raises(PlanError, match="this conductor has no way to call"):
        await LanguageModelConductor("lm:p", Member(Card("p"), Endpoint([]))).propose(Situation(Task("q"), CARDS))


async def test_texts_that_were_no_plans_are_journaled_even_when_nobody_stands_in() -> None:
    model = member("model", "no plan at all")
    recorder = MemoryRecorder()
    run = await engine(recorder).run(TASK, pool_of(w="x"), LanguageModelConductor("lm:model", model))
    assert run.status is RunStatus.FAILED
    assert [rejected.text for rejected in run.rounds[0].rejected] == ["no plan at all", "no plan at all", ""]
