"""Where a turn goes: the state of a conversation, what finishing it costs, and every doubt, which keeps it in place."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

import pytest

from shikisha.core.budget import Price, Usage
from shikisha.core.call import Card, Reply
from shikisha.core.events import AnswerGraded, AttemptFinished, Event, GradeMark, RunStarted, TurnRouted
from shikisha.core.messages import ChatMessage, Json, Speaker, ToolCall, ToolExchange, ToolResult, dump_json
from shikisha.core.run import Run
from shikisha.core.task import OPERATOR, Task
from shikisha.engine.conductor import Turn, TurnChoice
from shikisha.routing.turn_router import (
    AFTER,
    FINE,
    LATER,
    SETBACK,
    SHADOW_CHECKER,
    STUCK,
    CacheTerms,
    Option,
    Outlook,
    SessionRouter,
    TurnEvidence,
    TurnQuality,
    decide,
    expected_dollars,
    learn_scopes,
)
from shikisha.routing.turn_state import canonical_calls, conversation_key, read_state

TOOL: Mapping[str, Json] = {"type": "function", "function": {"name": "bash", "parameters": {}}}
TASK = Task("Make the tests green.", tools=(TOOL,))
CHEAP, DEAR = Price(1.0, 5.0, 0.1, cache_write=1.25), Price(5.0, 25.0, 0.5, cache_write=6.25)
SMALL = Card("small", price=CHEAP, cache_seconds=300.0, context_tokens=200_000)
LARGE = Card("large", price=DEAR, cache_seconds=300.0, context_tokens=200_000)


def exchange(number: int, result: str, command: str = "pytest") -> ToolExchange:
    call = ToolCall(f"c{number}", "bash", json.dumps({"command": command}))
    return ToolExchange((call,), (ToolResult(call.id, result),))


def turn(*exchanges: ToolExchange, task: Task = TASK, cards: tuple[Card, ...] = (LARGE, SMALL), run: str = "r") -> Turn:
    return Turn(run, len(exchanges), task, exchanges, cards[0].name, cards)


# The state


@pytest.mark.parametrize(
    ("result", "fact"),
    [
        ("===== 3 failed, 9 passed in 2.1s =====", {"tests": False, "red": 1}),
        ("===== 12 passed in 2.1s =====", {"tests": True}),
        ("test result: ok. 4 passed; 0 failed", {"tests": True}),
        ("--- FAIL: TestX (0.00s)", {"tests": False, "red": 1}),
        ("OK (3 tests)", {"tests": True}),
        ("Traceback (most recent call last):\n  ...\nKeyError: 'x'", {"errors": 1}),
        ("bash: foo: command not found", {"errors": 1}),
        ("Exit code 1", {"errors": 1}),
        ("exited with code 0", {}),
        ("No matches found", {"empty": 1}),
        ("", {"empty": 1}),
        ("a line that fails to be of interest", {}),
        ("0 failed, 3 errors are documented here", {"tests": False, "red": 1}),
    ],
)
def test_what_tools_returned_is_read(result: str, fact: dict[str, object]) -> None:
    state = read_state(turn(exchange(0, result)))
    found = {name: getattr(state, name) for name in ("tests", "errors", "empty", "red") if getattr(state, name)}
    if state.tests is False:
        found["tests"] = False
    assert found == fact


def test_a_conversation_that_is_stuck_is_seen_without_reading_what_a_model_said() -> None:
    red = [exchange(number, f"{number + 1} failed", f"edit {number}") for number in range(4)]
    assert "red after 4" in read_state(turn(*red)).stall(3)
    assert not read_state(turn(*red[:2])).stall(3)
    assert "same call" in read_state(turn(exchange(0, "x"), exchange(1, "x"))).stall(3)
    assert not read_state(turn(exchange(0, "x"), exchange(1, "y"))).stall(3)  # it brought something else
    said = ChatMessage(Speaker.ASSISTANT, "I am sorry. I can not do this.")
    called = ChatMessage(Speaker.ASSISTANT, "", exchange(0, "").calls)
    failed = ChatMessage(Speaker.TOOL, "Traceback (most recent call last):", answers="c0")
    history = (ChatMessage(Speaker.USER, "Fix it."), called, failed, said)
    assert "called none" in read_state(turn(task=replace(TASK, history=history))).stall(3)
    cheerful = (*history[:3], replace(said, text="All is done and works!"))
    assert read_state(turn(task=replace(TASK, history=cheerful))).stall(3) == read_state(
        turn(task=replace(TASK, history=history))
    ).stall(3)
    again = (ChatMessage(Speaker.USER, TASK.prompt), said)
    assert "same again" in read_state(turn(task=replace(TASK, history=again))).stall(3)


def test_a_conversation_is_the_same_one_at_each_of_its_turns() -> None:
    begun = conversation_key(TASK)
    later = replace(TASK, prompt="And now?", history=(ChatMessage(Speaker.USER, TASK.prompt),))
    assert conversation_key(later) == begun
    assert conversation_key(replace(TASK, tenant="other")) != begun
    assert conversation_key(replace(TASK, labels=("secret",))) != begun


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a": 1, "b": "x"}', '{"b":"X ","a":1.0}', True),
        ('{"a": "5"}', '{"a": 5}', True),
        ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
        ('{"a": true}', '{"a": 1}', False),
        ("not json", "not json", True),
        ('{"a": {"b": [{}]}}', '{"a": {"b": []}}', False),
        ("[" * 5_000, "[" * 5_000, True),
    ],
)
def test_calls_are_compared_by_what_they_say(one: str, other: str, same: bool) -> None:
    found = [canonical_calls((ToolCall(id_, "f", text),)) for id_, text in (("1", one), ("2", other))]
    assert (found[0] == found[1]) is same


# The arithmetic


def played(options: list[Option], outlook: Outlook, known: TurnQuality, plan: str, random: Random) -> float:
    """Return the dollars of one simulated session with caches, by a plan of who acts as it stands."""
    total, prefix, stands, before = 0.0, outlook.prefix, FINE, 0
    held, used, turn = [each.cached for each in options], [0, 0], 0
    while True:
        one = int(plan[stands])
        terms, kept = options[one].priced, min(held[one], prefix)
        total += kept * terms.read + (prefix - kept) * terms.write + outlook.output * terms.output + terms.call
        held[one], used[one] = prefix, turn
        share = known.brings(options[one].name, cautious=one == 1)[stands, int(one == (before if turn else 0))]
        works = random.random() < share
        if works and random.random() < 1 / outlook.left:
            return total
        came, fell = {SETBACK: AFTER, STUCK: AFTER, AFTER: LATER}, {SETBACK: STUCK, STUCK: STUCK}
        stands = came.get(stands, FINE) if works else fell.get(stands, SETBACK)
        before, turn, prefix = one, turn + 1, prefix + outlook.growth
        if random.random() > 0.9:
            held = [0.0, 0.0]


@pytest.mark.parametrize("plan", ["00000", "11111", "10000", "10011", "01100"])
@pytest.mark.parametrize("left", [1.0, 12.0])
def test_expected_dollars_are_the_mean_of_sessions(plan: str, left: float) -> None:
    known = quality(large=0.9, small=0.7)
    for stands in (SETBACK, STUCK, AFTER, LATER):
        known.add("large", stands, 0.8, 200.0)
        known.add("small", stands, 0.4, 200.0)
    gaps = [10.0] * 9 + [9_999.0]  # nine of ten caches survive
    outlook, pair, random = Outlook(20_000, 900, 300, left, gaps), options(15_000), Random(1)
    sums = [played(pair, outlook, known, plan, random) for _ in range(4_000)]
    expected = expected_dollars(pair, outlook, known)[int(plan, 2), 0]
    assert expected == pytest.approx(sum(sums) / len(sums), rel=0.06)


def test_for_a_while_of_trouble_another_takes_over_and_a_warm_cache_is_come_back_to() -> None:
    known, outlook = quality(large=0.97, small=0.9), Outlook(20_000, 900, 300, 20.0, [20.0] * 20)
    for stands, small in ((SETBACK, 0.05), (STUCK, 0.05), (AFTER, 0.9), (LATER, 0.9)):
        known.add("large", stands, 0.97, 400.0)
        known.add("small", stands, small, 400.0)
    half = replace(LARGE, name="small", price=Price(2.5, 12.5, 0.25, cache_write=3.125))
    big, tiny = (Option(card.name, CacheTerms.of(card), 19_000) for card in (LARGE, half))
    assert decide([tiny, big], outlook, known).worker == "small"
    assert decide([tiny, big], outlook, known, SETBACK).worker == "large"
    assert decide([big, tiny], outlook, known, AFTER).worker == "small"
    cold = replace(tiny, cached=0.0)
    assert decide([big, cold], replace(outlook, left=2.0), known, AFTER).worker == "large"


def test_two_turns_after_trouble_stand_apart() -> None:
    one, clock = router()
    make(one, clock, turn(exchange(0, "1 failed")))
    said = [exchange(0, "1 failed")]
    for place, after in ((1, 1), (2, 2), (3, None)):
        said.append(exchange(place, f"{place} passed"))
        assert one.choose(turn(*said)).facts.get("after") == after
        make(one, clock, turn(*said))


def quality(**shares: float) -> TurnQuality:
    found = TurnQuality()
    for name, share in shares.items():
        found.add(name, FINE, share, 400.0)
    return found


def options(cached: float = 60_000, here: Card = LARGE, *others: Card) -> list[Option]:
    cards = (here, *(others or (SMALL,)))
    return [
        Option(card.name, CacheTerms.of(card), cached if card is here else 0.0, card.context_tokens) for card in cards
    ]


def test_a_session_stays_while_its_cache_is_worth_more_than_a_cheaper_price() -> None:
    few, many = (Outlook(60_000, 800, 300, left, [20.0] * 8) for left in (2.0, 30.0))
    alike = quality(large=0.9, small=0.9)
    near = options(60_000, replace(LARGE, price=Price(1.7, 8.5, 0.17, cache_write=2.125)))
    assert decide(near, few, alike).worker == "large"  # two turns do not pay for the prefix
    assert decide(near, many, alike).worker == "small"
    assert decide(near, many, quality(large=0.9, small=0.5)).worker == "large"  # it would need more turns


def test_who_is_not_known_is_not_switched_to() -> None:
    outlook = Outlook(5_000, 800, 300, 30.0, [20.0] * 8)
    assert decide(options(5_000), outlook, TurnQuality()).worker == "large"


def test_a_stall_steps_up_and_never_down() -> None:
    outlook = Outlook(20_000, 800, 300, 10.0, [20.0] * 8)
    known = quality(large=0.95, small=0.95)
    known.add("small", STUCK, 0.02, 200.0)
    there = options(20_000, SMALL, LARGE)
    assert decide(there, outlook, known).worker == "small"
    up = decide(there, outlook, known, STUCK, "tests are red after 4 turns")
    assert up.worker == "large"
    assert up.note.startswith("steps up: tests are red")
    assert decide(options(20_000), outlook, quality(large=0.9, small=0.99), STUCK, "stuck").worker == "large"


@pytest.mark.parametrize("blind", ["here", "there"])
def test_a_cache_that_nobody_knows_of_justifies_no_switch(blind: str) -> None:
    outlook, alike = Outlook(20_000, 800, 300, 30.0, [20.0] * 8), quality(large=0.9, small=0.9)
    assert decide(options(20_000), outlook, alike).worker == "small"
    unknown = {"price": Price(5.0, 25.0)} if blind == "here" else {"price": Price(1.0, 5.0)}
    pair = (replace(LARGE, **unknown), SMALL) if blind == "here" else (LARGE, replace(SMALL, **unknown))  # type: ignore[arg-type]
    decision = decide(options(20_000, *pair), outlook, alike)
    assert decision.worker == "large"
    lifetime = replace(LARGE, cache_seconds=None) if blind == "here" else LARGE
    other = SMALL if blind == "here" else replace(SMALL, cache_seconds=None)
    assert decide(options(20_000, lifetime, other), outlook, alike).worker == "large"
    assert decide(options(20_000, replace(LARGE, price=None), SMALL), outlook, alike).worker == "large"
    assert decide(options(20_000, LARGE, replace(SMALL, price=None)), outlook, alike).worker == "large"


def test_a_conversation_that_fits_no_cheaper_window_stays_and_says_so() -> None:
    outlook = Outlook(150_000, 800, 300, 30.0, [20.0] * 8)
    narrow = replace(SMALL, context_tokens=100_000)
    decision = decide(options(0.0, LARGE, narrow), outlook, quality(large=0.9, small=0.9))
    assert decision.worker == "large"
    assert "does not fit its window" in decision.note


# The router


@dataclass
class Clock:
    """Two clocks that go alike until one is set."""

    now: float = 1_000_000.0
    tick: float = 50.0

    def go(self, seconds: float) -> None:
        self.now, self.tick = self.now + seconds, self.tick + seconds


HARMLESS = TurnEvidence(quality(large=0.9, small=0.9), {"small": [0.0] * 300 + [0.5] * 60, "large": [0.0] * 40})


def router(mode: str = "on", evidence: TurnEvidence = HARMLESS) -> tuple[SessionRouter, Clock]:
    clock = Clock()
    made = SessionRouter(mode, lambda: clock.now, lambda: clock.tick)  # type: ignore[arg-type]
    made.evidence = {OPERATOR: evidence}
    return made, clock


def make(one: SessionRouter, clock: Clock, asked: Turn, prompt: int = 30_000, cached: int = 28_000) -> TurnChoice:
    """Choose, and make the turn."""
    choice = one.choose(asked)
    facts = dump_json(choice.facts)
    one.observe(routed(asked.run, asked.number, choice.worker, facts))
    clock.go(10.0)
    used = Usage(prompt + 900 * asked.number, 300, cached)
    place = {"run": asked.run, "at": clock.now, "attempt": asked.number}
    one.observe(AttemptFinished(**place, round=0, step=0, worker=choice.worker, text="", usage=used))  # type: ignore[arg-type]
    return choice


def routed(run: str, number: int, worker: str, facts: str) -> TurnRouted:
    return TurnRouted(run=run, at=0.0, round=0, step=0, turn=number, worker=worker, facts=facts)


def later(number: int, run: str = "r", cards: tuple[Card, ...] = (LARGE, SMALL)) -> Turn:
    return turn(*[exchange(each, f"{each}", f"ls {each}") for each in range(number)], cards=cards, run=run)


def test_a_turn_goes_where_finishing_is_cheapest_and_the_session_is_pinned_there() -> None:
    one, clock = router()
    found = [make(one, clock, later(number)).worker for number in range(6)]
    assert found[-1] == "small"
    assert found == sorted(found)  # large, then small: it does not go back and forth
    note = one.choose(later(6)).note
    assert note.startswith("stays")


def test_in_the_shadow_every_turn_stays_and_what_would_be_is_written_down() -> None:
    one, clock = router("shadow")
    choices = [make(one, clock, later(number)) for number in range(6)]
    assert {choice.worker for choice in choices} == {"large"}
    assert choices[-1].facts["would"] == "small"
    assert "only watched" in choices[-1].note


def test_nobody_is_switched_to_whose_shadow_turns_do_not_exclude_harm() -> None:
    for verdicts in ([], [0.0] * 20, [-0.5] * 20 + [0.5] * 20, [-0.5] * 200):
        one, clock = router(evidence=replace(HARMLESS, verdicts={"small": verdicts}))
        assert [make(one, clock, later(number)).worker for number in range(6)] == ["large"] * 6
        assert "no harm" in one.choose(later(6)).note


def test_evidence_is_of_one_tenant_and_its_labels() -> None:
    one, clock = router()
    other = replace(TASK, tenant="other")
    for number in range(6):
        assert make(one, clock, replace(later(number), task=other)).worker == "large"


def test_a_session_that_two_clients_use_stays() -> None:
    one, clock = router()
    for number in range(2):
        make(one, clock, later(number))
    facts = dump_json(one.choose(later(2)).facts)
    one.observe(routed("other", 2, "large", facts))  # its reply has not come yet
    stays = one.choose(later(2))
    assert "another client" in stays.note
    clock.go(2_000.0)  # it is lost
    assert "another client" not in one.choose(later(2)).note


@pytest.mark.parametrize("seconds", [-3_600.0, 3_600.0, 90_000.0])
def test_a_clock_that_jumps_keeps_the_turn_in_place(seconds: float) -> None:
    one, clock = router()
    make(one, clock, later(0))
    clock.now += seconds
    assert "clock has jumped" in one.choose(later(1)).note


def test_a_provider_that_reports_no_cached_tokens_justifies_no_switch() -> None:
    one, clock = router("shadow")
    for number in range(3):
        make(one, clock, later(number), cached=0)
    choice = one.choose(later(3))
    assert choice.facts["would"] == "large"
    assert "caches is not known" in choice.note


def test_a_session_begins_with_two_cheap_ones_where_they_may_agree() -> None:
    tiny = replace(SMALL, name="tiny", price=Price(0.5, 2.0, 0.05))
    known = quality(large=0.97, small=0.05, tiny=0.03)
    shown = {name: [0.0] * 300 + [0.5] * 60 for name in ("small", "tiny")}
    one, _ = router(evidence=TurnEvidence(known, shown))
    choice = one.choose(turn(cards=(LARGE, SMALL, tiny)))
    assert (choice.worker, choice.second) == ("tiny", "small")
    same, other = (Reply("", calls=(ToolCall("x", "bash", text),)) for text in ('{"a":1}', '{"a":2}'))
    asked = turn(cards=(LARGE, SMALL, tiny))
    assert one.settle(asked, {"tiny": same, "small": same}).worker == "tiny"
    assert one.settle(asked, {"tiny": same, "small": other}).worker == "large"
    assert one.settle(asked, {"tiny": Reply("yes"), "small": Reply("yes")}).worker == "large"  # words do not decide


def test_what_is_recalled_counts_once() -> None:
    one, clock = router()
    make(one, clock, later(0))
    facts = dump_json(one.choose(later(1)).facts)
    past: list[Event] = [routed("r", 0, "large", facts)]
    past += [AttemptFinished(run="r", at=clock.now, round=0, step=0, attempt=0, worker="large", text="")]
    before = one.choose(later(1)).facts
    one.recall(past)
    assert one.choose(later(1)).facts == before


def run_of(*rows: TurnRouted, grade: AnswerGraded | None = None, tenant: str = "") -> Run:
    begun = RunStarted(run="r", at=0.0, conductor="c", pool=("large", "small"), caps=None, prompt="x", tenant=tenant)  # type: ignore[arg-type]
    return Run.fold([begun, *rows, *([grade] if grade else [])])


def test_turns_are_credited_with_what_came_after_them_and_a_share_of_the_grade() -> None:
    rows = [
        routed("r", 0, "small", '{"session":"s"}'),
        routed("r", 1, "small", '{"session":"s","tests":true}'),
        routed("r", 2, "small", '{"session":"s","repeated":true}'),
    ]
    right = AnswerGraded(run="r", at=1.0, checker="tests", mark=GradeMark.RIGHT, score=1.0)
    learned = learn_scopes([run_of(*rows, grade=right)])[OPERATOR].quality
    assert learned.counts["small", FINE] == pytest.approx([0.5 + 1.0, 0.5])
    assert learn_scopes([run_of()])[OPERATOR].quality.counts == {}  # no turn was routed
    assert learn_scopes([run_of(*rows, tenant="t")]).keys() == {replace(OPERATOR, tenant="t")}


def test_a_shadow_verdict_is_evidence_for_its_worker() -> None:
    told = dump_json({"worker": "small", "live": "large"})
    grades = [
        AnswerGraded(
            run="r", at=1.0, checker=SHADOW_CHECKER, mark=GradeMark.PARTIAL, score=score, evidence=told, judged=True
        )
        for score in (1.0, 0.5, 0.0)
    ]
    found = learn_scopes([run_of(grade=grade) for grade in grades])[OPERATOR]
    assert found.verdicts == {"small": [0.5, 0.0, -0.5]}
    assert not found.harmless("small")
