"""Fixed topologies: shapes, casts, and options that name what is there."""

import pytest

from shikisha.conductors.fixed_conductors import FIXED_TOPOLOGIES, CascadeConductor, ScriptedConductor, fixed_conductor
from shikisha.conductors.topologies import TOPOLOGIES, RoleAssignment, TopologyOptions
from shikisha.core.budget import Price
from shikisha.core.errors import ConfigError, Fault, FaultKind, PlanError, UnknownName
from shikisha.core.events import CheckStatus
from shikisha.core.plan import ANSWER, MAX_STEPS, Plan, Step
from shikisha.core.run import CheckVerdict, Result, RoundResult
from shikisha.core.task import Task
from shikisha.engine.conductor import Situation
from shikisha.engine.worker import Card

CHEAP = Card("cheap", kind="chat", price=Price(0.1, 0.4))
MIDDLE = Card("middle", kind="chat", price=Price(1, 3))
DEAR = Card("dear", kind="chat", price=Price(5, 20))
TOOL = Card("calculator", kind="python")
VOTE = Card("ballot", kind="vote")
POOL = (MIDDLE, CHEAP, DEAR, TOOL)


def situation(cards: tuple[Card, ...] = POOL, *rounds: RoundResult) -> Situation:
    return Situation(Task("2 + 2?"), cards, rounds)


async def plan_of(spec: str, cards: tuple[Card, ...] = POOL) -> Plan:
    return (await fixed_conductor(spec).propose(situation(cards))).plan


async def players(spec: str, cards: tuple[Card, ...] = POOL) -> list[str]:
    return [cards[step.worker].name for step in (await plan_of(spec, cards)).steps]


def tried(result: Result) -> RoundResult:
    return RoundResult(Plan((Step(ANSWER, 0),)), (result,))


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("cards", [POOL, (CHEAP,), (TOOL,), (CHEAP, DEAR), (*POOL, VOTE)])
async def test_every_topology_works_bare_on_any_pool(name: str, cards: tuple[Card, ...]) -> None:
    plan = await plan_of(name, cards)
    plan.check_pool(len(cards))
    assert 1 <= len(plan) <= MAX_STEPS


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("single", "one-shot"),
        ("chain", "chain"),
        ("fan-out-join", "fan-out+join"),
        ("planner-executor-verifier", "chain"),
        ("vote", "fan-out+join"),
        ("mixture-of-agents", "mixed"),
        ("debate", "mixed"),
        ("best-of-n", "fan-out+join"),
        ("role-team", "chain"),
        ("map", "map"),
    ],
)
async def test_a_topology_has_its_shape(name: str, shape: str) -> None:
    assert (await plan_of(name)).topology() == shape


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("single", ["dear"]),
        ("single?worker=calculator", ["calculator"]),
        ("chain", ["middle", "cheap", "dear"]),
        ("chain?workers=dear&n=2", ["dear", "dear"]),
        ("vote", ["middle", "cheap", "dear", "dear"]),
        ("vote?workers=cheap&n=3&join=middle", ["cheap", "cheap", "cheap", "middle"]),
        ("planner-executor-verifier?verifier=middle", ["dear", "cheap", "middle"]),
        ("best-of-n", ["cheap", "cheap", "cheap", "dear"]),
        ("debate?workers=cheap,middle", ["cheap", "middle", "cheap", "middle", "dear"]),
        ("mixture-of-agents?workers=cheap", ["cheap", "cheap", "cheap", "cheap", "dear"]),
        ("role-team?critic=middle", ["dear", "cheap", "middle", "cheap"]),
    ],
)
async def test_options_and_defaults_cast_the_parts(spec: str, names: list[str]) -> None:
    assert await players(spec) == names


@pytest.mark.parametrize("name", ["vote", "fan-out-join"])
async def test_a_vote_worker_is_the_default_join(name: str) -> None:
    assert (await players(name, (*POOL, VOTE)))[-1] == "ballot"


async def test_one_worker_votes_with_itself() -> None:
    assert await players("vote", (CHEAP, VOTE)) == ["cheap", "cheap", "cheap", "ballot"]


def test_a_worker_without_a_known_price_counts_as_dearest() -> None:
    assert RoleAssignment((Card("mystery", price=None), DEAR)).by_price == (1, 0)


@pytest.mark.parametrize(
    "spec", ["voting", "vote?judge=dear", "single?n=2", "debate?n=4", "single?workers=a", "cascade?n=2"]
)
def test_what_nobody_registered_is_refused_by_name(spec: str) -> None:
    with pytest.raises(UnknownName, match="known are"):
        fixed_conductor(spec)


@pytest.mark.parametrize("spec", ["vote?n=0", "vote?n=x", "vote?n=100", "vote?n", "vote?n=2&n=3", "chain?n=²"])
def test_options_that_cannot_be_read_are_refused(spec: str) -> None:
    with pytest.raises(ConfigError):
        fixed_conductor(spec)


@pytest.mark.parametrize("spec", ["single?worker=che", "cascade?workers=cheap,nobody", "vote?join=Dear"])
async def test_invariant_1_a_name_outside_the_pool_is_never_matched(spec: str) -> None:
    with pytest.raises(UnknownName, match="known are calculator, cheap, dear, middle"):
        await fixed_conductor(spec).propose(situation())


async def test_three_debaters_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match="two workers play here, not 3"):
        await plan_of("debate?workers=cheap,middle,dear")


@pytest.mark.parametrize("name", FIXED_TOPOLOGIES)
async def test_an_empty_pool_is_a_plan_error(name: str) -> None:
    with pytest.raises(PlanError, match="the pool is empty"):
        await fixed_conductor(name).propose(situation(()))


async def test_a_topology_has_one_round_and_its_whole_name() -> None:
    conductor = fixed_conductor("vote?n=2")
    first = await conductor.propose(situation())
    assert (conductor.name, first.final) == ("fixed:vote?n=2", True)
    assert (await conductor.propose(situation(POOL, RoundResult(first.plan, ())))).plan.ships


async def test_options_can_be_given_as_a_record() -> None:
    conductor = fixed_conductor("vote", TopologyOptions(("cheap",), 2, {"join": "dear"}))
    assert len((await conductor.propose(situation())).plan) == 3


class TestCascade:
    async def test_begins_with_the_cheapest(self) -> None:
        first = await CascadeConductor().propose(situation())
        assert [POOL[step.worker].name for step in first.plan.steps] == ["cheap"]
        assert not first.final

    async def test_keeps_an_answer_that_passed(self) -> None:
        passed = tried(Result("cheap", "4", None, (CheckVerdict("length", CheckStatus.PASS),)))
        assert (await CascadeConductor().propose(situation(POOL, passed))).plan.ships

    async def test_says_so_where_no_check_looked_at_the_answer(self) -> None:
        passed = tried(Result("cheap", "4", None, (CheckVerdict("length", CheckStatus.PASS),)))
        assert (await CascadeConductor().propose(situation(POOL, passed))).note == "the answer passed"
        kept = await CascadeConductor().propose(situation(POOL, tried(Result("cheap", "4", None))))
        assert kept.plan.ships
        assert "no check looked at the answer" in kept.note

    @pytest.mark.parametrize("status", [CheckStatus.FAIL, CheckStatus.NO_ANSWER])
    async def test_asks_the_dearest_after_a_failed_check(self, status: CheckStatus) -> None:
        failed = tried(Result("cheap", "5", None, (CheckVerdict("sum", status),)))
        then = await CascadeConductor().propose(situation(POOL, failed))
        assert [POOL[step.worker].name for step in then.plan.steps] == ["dear"]
        assert "did not pass the check 'sum'" in then.note
        assert then.final

    async def test_asks_the_dearest_after_a_fault(self) -> None:
        silent = tried(Result("cheap", None, Fault(FaultKind.TIMEOUT)))
        then = await CascadeConductor().propose(situation(POOL, silent))
        assert "'cheap' gave no answer (timeout), so 'dear' is asked" in then.note

    async def test_ends_with_its_ladder(self) -> None:
        silent = tried(Result("cheap", None, Fault(FaultKind.TIMEOUT)))
        end = await CascadeConductor(options=TopologyOptions(("cheap",))).propose(situation(POOL, silent))
        assert end.plan.ships
        assert "the cascade ends here" in end.note


async def test_scripted_proposes_its_plans_in_turn() -> None:
    plans = [Plan((Step("one", 0),)), Plan((Step("two", 1),))]
    conductor, rounds = ScriptedConductor(plans), [RoundResult(plan, ()) for plan in plans]
    proposed = [await conductor.propose(situation(POOL, *rounds[:n])) for n in range(3)]
    assert [proposal.plan for proposal in proposed] == [*plans, Plan()]
    assert [proposal.final for proposal in proposed] == [False, True, True]
