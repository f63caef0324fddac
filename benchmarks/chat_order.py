"""Who speaks next in a group chat: a learned order on recorded answers against everybody in turn, and cheaper ways.

    python benchmarks/chat_order.py [--folder ../shared/recorded] [--chats 100] [--json]

MP13 and ZE21: each member's turn is the answer that it really gave to the task. Three times, half of the tasks are
drawn to learn from, and what is reported is on the other half. In turn: all members speak, and the most frequent answer
is the group's (the earliest of equals). Learned: a stopping rule over members (routing.fit, with a price of one for
each turn), at three prices that cross-validation in the learning half alone chose: with the fewest turns that are as
often right as everybody in turn; with as many turns as the control; and the best within half the turns, for which
speaking in the order of accuracy until two, three or four agree is a candidate too. Controls: members in the order of
their accuracy until two agree; and one worker that plays all parts in one conversation, the best of the learning half,
whose turns all give its own answer.

Of each set, chats are also performed by the engine, with replay workers and `SpeakerOrder.POLICY`; their answers and
turns must be those of the arithmetic.
"""

import argparse
import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
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
    FittedStopping,
    StateCache,
    StoppingConfig,
    StoppingData,
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
SEEDS, FOLDS, AGREED = (1, 2, 3), 5, (2, 3, 4)
PRICES = np.geomspace(0.0003, 0.5, 24)  # the accuracy that a turn must bring


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


def until_agreed(matrix: OutcomeMatrix, order: Sequence[int], count: int = 2) -> Played:
    """Members speak in this order until so many agree; if they do not, the most frequent answer is the group's."""
    right, turns = np.zeros(len(matrix)), np.zeros(len(matrix))
    for row, codes in enumerate(matrix.codes):
        said: dict[int, list[int]] = {}
        for member in order:
            turns[row] += 1
            if (code := int(codes[member])) >= 0:
                said.setdefault(code, []).append(member)
                if len(said[code]) == count:
                    break
        if said:
            right[row] = matrix.won[row, max(said.values(), key=len)[0]]
    return Played(right, turns)


@dataclass(frozen=True)
class Learned:
    """A rule, and the settings that were chosen in the learning half, by what they are to be.

    A setting below zero is no rule's: members speak in the order of their accuracy until so many agree.
    """

    rule: StoppingRule
    order: Sequence[int]
    settings: Mapping[str, int]

    def play(self, what: str, matrix: OutcomeMatrix) -> Played:
        """Return what comes of a setting."""
        setting = self.settings[what]
        if setting < 0:
            return until_agreed(matrix, self.order, -setting)
        result = replay(self.rule, setting, matrix)
        return Played(result.won, result.asked.sum(axis=1).astype(float))


FEWEST, MATCHED, BEST = "fewest turns", "as many turns as until two agree", "best within half the turns"


def learn(matrix: OutcomeMatrix, seed: int) -> Learned:
    """Fit the order, and choose its prices by cross-validation within these tasks."""
    folds: Ints = np.random.default_rng(seed).integers(0, FOLDS, len(matrix))
    data = StoppingData.of(matrix, folds, StoppingConfig(prices=PRICES, boosting=None))
    states = StateCache(data)
    fits = [fit_stopping(data, pool, states=states) for pool in search_pools(data)]
    everybody, agree = in_turn(matrix), until_agreed(matrix, best_of(matrix))
    won, turns = (
        np.array([table.mean(axis=0) for table in tables]) for tables in zip(*map(tables_of, fits), strict=True)
    )
    fitted = int(np.argmax(np.where(turns <= everybody.turns.mean() / 2, won, 0.0).max(axis=1)))
    right, cost = won[fitted], turns[fitted]

    def most_accurate(most: float) -> int:
        return int(np.argmax(np.where(cost <= most, right, 0.0)))

    agreed = {-count: cross_validated(matrix, folds, count) for count in AGREED}
    enough = np.flatnonzero(right >= everybody.right.mean())
    found = most_accurate(everybody.turns.mean() / 2)
    within = {setting: each for setting, each in agreed.items() if each.turns.mean() <= everybody.turns.mean() / 2}
    simple = max(within, key=lambda setting: within[setting].right.mean())
    settings = {
        FEWEST: int(enough[np.argmin(cost[enough])]) if enough.size else most_accurate(np.inf),
        MATCHED: most_accurate(agree.turns.mean()),
        BEST: simple if within[simple].right.mean() >= right[found] else found,
    }
    return Learned(fits[fitted].part, best_of(matrix), settings)


def cross_validated(matrix: OutcomeMatrix, folds: Ints, count: int) -> Played:
    """Return what speaking until so many agree comes to, each fold in the order of accuracy on the others."""
    right, turns = np.zeros(len(matrix)), np.zeros(len(matrix))
    for fold in range(FOLDS):
        rows = np.flatnonzero(folds == fold)
        played = until_agreed(matrix.at(rows), best_of(matrix.at(np.flatnonzero(folds != fold))), count)
        right[rows], turns[rows] = played.right, played.turns
    return Played(right, turns)


def tables_of(fitted: FittedStopping) -> tuple[Floats, Floats]:
    """Return a fit's results on tasks outside it."""
    return fitted.won, fitted.cost


def best_of(matrix: OutcomeMatrix) -> list[int]:
    """Return the members from the most accurate."""
    return [int(each) for each in np.argsort(-matrix.won.mean(axis=0), kind="stable")]


def compare(name: str, matrix: OutcomeMatrix) -> tuple[list[Figure], Learned, OutcomeMatrix, ReplayResult]:
    """Return the figures of a set, and the last seed's rule with its tasks and the results of one setting."""
    figures: list[Figure] = []
    for seed in SEEDS:
        places = np.random.default_rng(seed).permutation(len(matrix))
        half = len(places) // 2
        known, fresh = matrix.at(np.sort(places[:half])), matrix.at(np.sort(places[half:]))
        learned, order, head = learn(known, seed), best_of(known), f"{name} {seed}"
        everybody, agree = in_turn(fresh), until_agreed(fresh, order)
        figures += [
            Figure(f"{head}: in turn, right", everybody.right.mean(), f"in {everybody.turns.mean():.0f}"),
            Figure(f"{head}: until two agree, right", agree.right.mean(), f"in {agree.turns.mean():.2f}"),
            Figure(f"{head}: one worker, all parts, right", fresh.won[:, order[0]].mean(), "in 1"),
        ]
        for what, setting in learned.settings.items():
            ours = learned.play(what, fresh)
            chosen = f"until {-setting} agree" if setting < 0 else "a stopping rule"
            low, high = difference_interval(list(ours.right - everybody.right))
            under, over = difference_interval(list(ours.right - agree.right))
            _, most = difference_interval(list(ours.turns - everybody.turns / 2))
            figures += [
                Figure(f"{head}: {what} ({chosen}), right", ours.right.mean(), f"in {ours.turns.mean():.2f}"),
                Figure(f"{head}: ... less in turn, from (to {high:+.3f})", low, "", 0.0, at_least=True),
                Figure(f"{head}: ... less until two agree, from (to {over:+.3f})", under, ""),
                Figure(f"{head}: ... turns less half of in turn, at most", most, "", 0.0),
            ]
    return figures, learned, fresh, replay(learned.rule, learned.settings[MATCHED], fresh)


async def differs(log: OutcomeLog, learned: Learned, matrix: OutcomeMatrix, result: ReplayResult, chats: int) -> int:
    """Return how many chats that the engine performs end otherwise than the arithmetic says."""
    point = OperatingPoint(0, learned.settings[MATCHED], 1.0, 1.0)
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


async def agreed_otherwise(log: OutcomeLog, learned: Learned, matrix: OutcomeMatrix, chats: int) -> int:
    """Return how many chats that end when two agree take another number of turns than the arithmetic says."""
    names = [matrix.workers[place] for place in learned.order]
    chat = GroupChatConductor("chat:agree", options=ChatOptions(tuple(names), turns=len(names), agree=2))
    pool = Pool([Member(replay_card(log, name), ReplayWorker(log, name)) for name in names])
    engine, wrong = Engine(MemoryRecorder()), 0
    some = matrix.at(np.arange(min(chats, len(matrix))))
    played = until_agreed(some, learned.order)
    for row, task_id in enumerate(some.ids):
        run = await engine.run(log.task(task_id), pool, chat, Caps(steps=len(names), rounds=len(names) + 1))
        turns = sum(len(each.plan) for each in run.rounds if each.plan)
        wrong += turns != played.turns[row]
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
        wrong = asyncio.run(agreed_otherwise(log, learned, fresh, given.chats))
        figures.append(Figure(f"{title}: the same where chats end when two agree", wrong, ""))
    report("The learned order of a group chat", figures)


if __name__ == "__main__":
    main()
