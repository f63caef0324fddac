"""Who speaks next in a group chat: a learned order on recorded answers against everybody in turn, and cheaper ways.

    python benchmarks/chat_order.py [--folder ../shared/recorded] [--chats 100] [--json]

MP13 and ZE21: each member's turn is the answer that it really gave to the task. Three times, half of the tasks are
drawn to learn from, and what is reported is on the other half. In turn: all members speak, and the most frequent
answer is the group's (the earliest of equals). Learned: a stopping rule over members (routing.fit, with a price of one
for each turn), at the price at which, by cross-validation in the learning half alone, it makes the fewest turns and is
at least as often right as everybody in turn. Controls: members in the order of their accuracy until two agree; and one
worker that plays all parts in one conversation, the best of the learning half, whose turns all give its own answer.

Of each set, chats are also performed by the engine, with replay workers and `SpeakerOrder.POLICY`; their answers and
turns must be those of the arithmetic.
"""

import argparse
import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from common import Figure, report
from recorded_pools import MP13, NOT_ZE21
from shikisha.conductors.group_chat import ChatOptions, GroupChatConductor, SpeakerOrder
from shikisha.conductors.learned_policy import PolicyConductor
from shikisha.core.budget import Caps
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.evals.statistics import difference_interval
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.routing.arrays import Floats, Ints
from shikisha.routing.fit.fit_stopping_rule import (
    StateCache,
    StoppingConfig,
    StoppingData,
    area_under_frontier,
    fit_stopping,
    search_pools,
)
from shikisha.routing.fit.log_replay import ReplayResult, replay
from shikisha.routing.fit.model_selection import known_workers
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix
from shikisha.routing.policy_data import Candidate, Policy, PolicyOrigin
from shikisha.routing.stopping_rule import StoppingRule
from shikisha.routing.trade_off import OperatingMix, OperatingPoint, TradeOff
from shikisha.workers.replay import ReplayWorker, replay_card

SHARED = Path(__file__).parent.parent.parent / "shared" / "recorded"
SEEDS, FOLDS = (1, 2, 3), 5


@dataclass(frozen=True)
class Played:
    """[T]: whether the group's answer was right, and how many turns it took."""

    right: Floats
    turns: Floats


def read(name: str, log: OutcomeLog) -> OutcomeMatrix:
    """Return the tasks that every member answered, with a price of one for each turn."""
    workers = MP13 if name == "mmlu-pro" else tuple(each for each in log.workers if each not in NOT_ZE21)
    whole = build_outcome_matrix(log, workers)
    matrix = whole.at(np.flatnonzero(whole.there.all(axis=1)))
    return replace(matrix, dollars=np.ones(matrix.dollars.shape), evidence=None)


def in_turn(matrix: OutcomeMatrix) -> Played:
    """Everybody speaks, and the most frequent answer is the group's."""
    right = np.zeros(len(matrix))
    for row, codes in enumerate(matrix.codes):
        said = [code for code in codes if code >= 0]
        if said:
            counts = Counter(said)
            best = max(counts.values())
            won = next(code for code in said if counts[code] == best)
            right[row] = matrix.won[row, int(np.flatnonzero(codes == won)[0])]
    return Played(right, np.full(len(matrix), float(len(matrix.workers))))


def until_two_agree(matrix: OutcomeMatrix, order: Sequence[int]) -> Played:
    """Members speak in this order until two agree; if none do, the first one's answer is the group's."""
    right, turns = np.zeros(len(matrix)), np.zeros(len(matrix))
    for row, codes in enumerate(matrix.codes):
        said: dict[int, int] = {}
        chosen = -1
        for count, member in enumerate(order, 1):
            turns[row] = count
            code = int(codes[member])
            if code >= 0 and code in said:
                chosen = said[code]
                break
            if code >= 0:
                said[code] = member
        if chosen < 0 and said:
            chosen = next(iter(said.values()))
        right[row] = 0.0 if chosen < 0 else matrix.won[row, chosen]
    return Played(right, turns)


@dataclass(frozen=True)
class Learned:
    """A rule, and the setting that was chosen in the learning half."""

    rule: StoppingRule
    setting: int


def learn(matrix: OutcomeMatrix, seed: int) -> Learned:
    """Fit the order, and choose its price by cross-validation within these tasks."""
    folds: Ints = np.random.default_rng(seed).integers(0, FOLDS, len(matrix))
    data = StoppingData.of(matrix, folds, StoppingConfig(boosting=None))
    states = StateCache(data)
    fits = [fit_stopping(data, pool, states=states) for pool in search_pools(data)]
    fitted = max(fits, key=area_under_frontier)
    goal = in_turn(matrix).right.mean()
    won, turns = fitted.won.mean(axis=0), fitted.cost.mean(axis=0)
    enough = np.flatnonzero(won >= goal)
    setting = int(enough[np.argmin(turns[enough])]) if enough.size else int(np.argmax(won))
    return Learned(fitted.part, setting)


def best_of(matrix: OutcomeMatrix) -> list[int]:
    """Return the members from the most accurate."""
    return [int(each) for each in np.argsort(-matrix.won.mean(axis=0), kind="stable")]


def compare(name: str, matrix: OutcomeMatrix) -> tuple[list[Figure], Learned, OutcomeMatrix, ReplayResult]:
    """Return the figures of a set, and the last seed's rule with its tasks."""
    figures: list[Figure] = []
    for seed in SEEDS:
        places = np.random.default_rng(seed).permutation(len(matrix))
        half = len(places) // 2
        known, fresh = matrix.at(np.sort(places[:half])), matrix.at(np.sort(places[half:]))
        learned = learn(known, seed)
        result = replay(learned.rule, learned.setting, fresh)
        ours = Played(result.won, result.asked.sum(axis=1).astype(float))
        everybody = in_turn(fresh)
        order = best_of(known)
        agree = until_two_agree(fresh, order)
        alone = fresh.won[:, order[0]]
        low, high = difference_interval(list(ours.right - everybody.right))
        _, most = difference_interval(list(ours.turns - everybody.turns / 2))
        against, above = difference_interval(list(ours.right - agree.right))
        head = f"{name}, seed {seed}"
        figures += [
            Figure(f"{head}: in turn, right", everybody.right.mean(), f"in {everybody.turns.mean():.0f}"),
            Figure(f"{head}: learned, right", ours.right.mean(), f"in {ours.turns.mean():.2f}"),
            Figure(
                f"{head}: accuracy order, until two agree, right", agree.right.mean(), f"in {agree.turns.mean():.2f}"
            ),
            Figure(f"{head}: one worker plays all parts, right", alone.mean(), "in 1"),
            Figure(f"{head}: turns learned / in turn", ours.turns.mean() / everybody.turns.mean(), "", 0.5),
            Figure(f"{head}: learned - in turn, from ({high:+.3f} to)", low, "", 0.0, at_least=True),
            Figure(f"{head}: turns learned - half of in turn, at most", most, "", 0.0),
            Figure(f"{head}: learned - until two agree, from ({above:+.3f} to)", against, ""),
            Figure(f"{head}: turns learned - until two agree", (ours.turns - agree.turns).mean(), ""),
        ]
    return figures, learned, fresh, result


async def differs(log: OutcomeLog, learned: Learned, matrix: OutcomeMatrix, result: ReplayResult, chats: int) -> int:
    """Return how many chats that the engine performs end otherwise than the arithmetic says."""
    point = OperatingPoint(0, learned.setting, 1.0, 1.0)
    about = PolicyOrigin("recorded", "", len(matrix), "2026-11-26", "turns", 0, ())
    rungs = (Candidate("induction", TradeOff((point,), 1.0, 0.0), None),)
    policy = Policy(about, known_workers(matrix), matrix.types, (learned.rule,), rungs, "induction")
    conductor = PolicyConductor("policy:chat", policy, "1", OperatingMix(point, point, 0.0))
    turns = len(matrix.workers)
    chat = GroupChatConductor("chat:policy", SpeakerOrder.POLICY, ChatOptions(turns=turns), policy=conductor)
    pool = Pool([Member(replay_card(log, name), ReplayWorker(log, name)) for name in matrix.workers])
    engine, wrong = Engine(MemoryRecorder()), 0
    for row in range(min(chats, len(matrix))):
        run = await engine.run(log.task(matrix.ids[row]), pool, chat, Caps(steps=turns, rounds=turns + 1))
        spoke = [run.started.pool[step.worker] for each in run.rounds if each.plan for step in each.plan.steps]
        shipped = int(result.shipped[row])
        outcome = log.find(matrix.ids[row], matrix.workers[shipped]) if shipped >= 0 else None
        expected = None if outcome is None else log.answer_text(outcome)
        asked = {matrix.workers[place] for place in np.flatnonzero(result.asked[row])}
        wrong += set(spoke) != asked or len(spoke) != len(asked) or run.answer != expected
    return wrong


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=SHARED)
    parser.add_argument("--chats", type=int, default=100)
    given, _ = parser.parse_known_args()
    figures: list[Figure] = []
    for name, title in (("mmlu-pro", "MP13"), ("zeroeval", "ZE21")):
        log = OutcomeLog.read(given.folder / name)
        found, learned, fresh, result = compare(title, read(name, log))
        figures += found
        wrong = asyncio.run(differs(log, learned, fresh, result, given.chats))
        figures.append(Figure(f"{title}: chats of {given.chats} that the engine ends otherwise", wrong, "", 0))
    report("The learned order of a group chat", figures)


if __name__ == "__main__":
    main()
