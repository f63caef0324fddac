"""Turns of agents: calls of functions, held out; simulated sessions with caches; what a decision takes.

    python benchmarks/turns.py calls --clones FOLDER --cache FOLDER [--peers SCORES]    # BFCL-Result, 2024-08-11
    python benchmarks/turns.py logs --cache FOLDER --recorded FOLDER [--splits 3] [--sets A,B]
    python benchmarks/turns.py sessions [--sessions 200] [--json]
    python benchmarks/turns.py latency

`calls`: five settings of the public results, with measured tokens and list prices: four cheap ones and the best single
one. Answers are their calls in canonical form, and nothing else of task or category is shown. Tasks are split by
SHA-256; the policy of `learn` and its two settings are chosen on one half and looked at on the other. Controls: always
the best single, a table per category, two cheap ones that agree or else the best single.

`logs`: the logs that `strangers.py FOLDER` wrote, and those of recorded answers. Learned on a half, done on the other.

`sessions`: simulated sessions, and named so, with list prices of three vendors, prefixes of 5 to 200 thousand tokens. A
turn that its worker cannot do is made again; every session is finished, so quality is equal. The router of the package
decides from what it sees. An exact planner (dynamic programming over who holds which cache), which knows how sessions
are simulated, plays as well: that is the floor. It also prices each switch of the router: what it brings is the least
expected cost after one more turn here, less that after the switch.
"""

import argparse
import ast
import json
import random
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from io import BytesIO
from math import exp
from pathlib import Path
from shutil import which
from subprocess import run
from time import process_time

import numpy as np

from recorded_pools import MP13, NOT_ZE21
from shikisha.core.budget import Price
from shikisha.core.call import Card
from shikisha.core.messages import ChatMessage, Json, Speaker, ToolCall
from shikisha.core.task import Task
from shikisha.engine.conductor import Turn
from shikisha.evals.statistics import difference_interval
from shikisha.outcomes.log_reader import OutcomeLog, ReferenceAnswer
from shikisha.outcomes.log_writer import CostKind, LogBuilder, LoggedAnswer, LoggedTask
from shikisha.routing.fit.model_selection import select_policy
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix
from shikisha.routing.policy_data import VerdictKind
from shikisha.routing.trade_off import OperatingMix, parse_target
from shikisha.routing.turn_router import (
    AFTER,
    FINE,
    LATER,
    STUCK,
    CacheTerms,
    Option,
    PastTurn,
    Session,
    SessionRouter,
    TurnEvidence,
    TurnQuality,
    decide,
)
from shikisha.routing.turn_state import canonical_calls
from strangers import MOST_TASKS, Clone, bfcl, played

# Dollars for a million tokens of input and output, list prices of August 2024.
SETTINGS = {
    "gpt-4o-mini-2024-07-18": (0.15, 0.6),
    "gpt-4o-mini-2024-07-18-FC": (0.15, 0.6),
    "gemini-1.5-flash-preview-0514": (0.35, 1.05),
    "claude-3-haiku-20240307": (0.25, 1.25),
    "claude-3-5-sonnet-20240620": (3.0, 15.0),
}
FOLDER, START = "2024-08-11", "gorilla_openfunctions_v1_test_"


# Calls of functions


def calls_of(result: object) -> tuple[ToolCall, ...]:
    """Return the calls in a published result: FC settings have objects, others write Python."""
    if isinstance(result, list):
        made = [(name, given) for one in result if isinstance(one, dict) for name, given in one.items()]
    else:
        made = _python_calls(str(result))
    written = [(name, given if isinstance(given, str) else json.dumps(given, default=str)) for name, given in made]
    return tuple(ToolCall(str(place), name.replace(".", "_"), text) for place, (name, text) in enumerate(written))


def _python_calls(text: str) -> list[tuple[str, object]]:
    text = text.strip().strip("`").removeprefix("json").removeprefix("python").strip()
    try:
        tree = ast.parse(text if text.startswith("[") else f"[{text}]", mode="eval").body
    except (SyntaxError, ValueError):
        return []
    found = tree.elts if isinstance(tree, ast.List) else []
    if not all(isinstance(one, ast.Call) for one in found):
        return []

    def value(node: ast.expr) -> object:
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError):
            return ast.unparse(node)

    calls = [one for one in found if isinstance(one, ast.Call)]
    return [
        (ast.unparse(one.func), {each.arg or "": value(each.value) for each in one.keywords}
         | {str(place): value(each) for place, each in enumerate(one.args)})
        for one in calls
    ]  # fmt: skip


def _total(value: object) -> float:
    return sum(map(_total, value)) if isinstance(value, list) else float(value or 0)  # type: ignore[arg-type]


def read_calls(clones: Path, store: Path) -> tuple[OutcomeMatrix, list[str]]:
    """Return the log of the five settings, and each task's category, which no policy sees."""
    log, folder = LogBuilder("calls"), store / "calls"
    if not folder.exists():
        clone = clones / "HuanzhiMao+BFCL-Result" / "repo"
        wanted = [f"{FOLDER}/{what}/{name}" for what in ("score", "result") for name in SETTINGS]
        command = [which("git") or "git", "-C", str(clone), "archive", "HEAD", *wanted]
        packed = run(command, capture_output=True, check=True).stdout  # noqa: S603 - a fixed command
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            texts = {
                one.name: held.read().decode() for one in archive if (held := archive.extractfile(one)) is not None
            }
        for path in sorted(name for name in texts if "/score/gpt-4o-mini-2024-07-18/" in name):
            kind = Path(path).name.removesuffix("_score.json")
            for worker, (price_in, price_out) in SETTINGS.items():
                scores = texts[f"{FOLDER}/score/{worker}/{kind}_score.json"].splitlines()[1:]
                wrong = {json.loads(line)["id"] - 1 for line in scores}
                rows = texts[f"{FOLDER}/result/{worker}/{START}{kind}_result.json"].splitlines()
                for place, row in enumerate(map(json.loads, rows)):
                    tokens = [_total(row.get(f"{end}_token_count")) for end in ("input", "output")]
                    name = f"{kind}/{place}"
                    prompt = f"call {sha256(name.encode()).hexdigest()[:8]}"  # nothing of the task
                    answer = canonical_calls(calls_of(row["result"])) or "words"
                    dollars = (tokens[0] * price_in + tokens[1] * price_out) / 1e6
                    asked = LoggedTask(Task(prompt, id=name), ReferenceAnswer(None, "text"))
                    right = float(place not in wrong)
                    log.add(
                        asked, LoggedAnswer(worker, name, right, answer=answer, dollars=dollars, cost=CostKind.DERIVED)
                    )
        log.write(folder)
    matrix = build_outcome_matrix(OutcomeLog.read(folder))
    return matrix, [name.partition("/")[0] for name in matrix.ids]


@dataclass(frozen=True)
class Held:
    """What a way of routing came to on tasks that it was not chosen on, by task."""

    name: str
    won: np.ndarray
    paid: np.ndarray

    def row(self, best: "Held") -> str:
        """Return a row of the table."""
        low, high = difference_interval(list(self.won - best.won))
        share = self.paid.sum() / best.paid.sum()
        return (
            f"| {self.name} | {self.won.mean():.4f} | {self.paid.mean() * 1e3:.3f} | {share:.3f} "
            f"| {self.won.mean() - best.won.mean():+.4f} ({low:+.4f} to {high:+.4f}) |"
        )


def hold_out(
    train: OutcomeMatrix, test: OutcomeMatrix, kinds: tuple[Sequence[str], Sequence[str]]
) -> tuple[list[Held], list[Held]]:
    """Learn and choose settings on one half; return what they and the controls do on the other, and the whole dial."""
    dear = int(train.won.mean(axis=0).argmax())
    policy = select_policy(train).policy
    dial = policy.rung().dial  # cost and accuracy as cross-fitted on the first half
    found = [Held("always the best single", test.won[:, dear], test.paid[:, dear])]
    wanted = min(float(train.won[:, dear].mean()), dial.points[-1].accuracy)
    found += [
        Held(name, *played(policy, mix, test))
        for name, mix in (
            ("policy, cheapest as accurate", dial.for_accuracy(wanted)),
            ("policy, most accurate", OperatingMix(dial.points[-1], dial.points[-1], 0.0)),
        )
    ]
    cheap = sorted(range(len(train.workers)), key=lambda worker: train.paid[:, worker].mean())
    agree = test.codes[:, cheap[0]] == test.codes[:, cheap[1]]
    won = np.where(agree, test.won[:, cheap[0]], test.won[:, dear])
    paid = test.paid[:, cheap[0]] + test.paid[:, cheap[1]] + np.where(agree, 0.0, test.paid[:, dear])
    found.append(Held("two cheapest agree, else the best", won, paid))
    table = {
        kind: int(
            np.where(
                rows.any(),
                train.won[rows].mean(axis=0) - 0.2 * train.paid[rows].mean(axis=0) / train.paid[:, dear].mean(),
                0,
            ).argmax()
        )
        for kind in set(kinds[0])
        for rows in [np.array([one == kind for one in kinds[0]])]
    }
    chosen = np.array([table.get(kind, dear) for kind in kinds[1]])
    places = np.arange(len(test))
    found.append(Held("a table per category", test.won[places, chosen], test.paid[places, chosen]))
    whole = [OperatingMix(point, point, 0.0) for point in dial.points]
    return found, [Held("dial", *played(policy, mix, test)) for mix in whole]


def by_score(train: OutcomeMatrix, test: OutcomeMatrix, scores: np.ndarray) -> list[Held]:
    """Return what a router does that sends the hardest tasks to the best worker and the rest to the best cheap one.

    Its thresholds are read off the tasks themselves, so each budget is met, as no user can. Ties go by chance.
    """
    best = train.best_worker()
    cheap = max(set(range(len(train.workers))) - {best}, key=lambda one: float(train.won[:, one].mean()))
    order = np.lexsort((np.random.default_rng(0).random(len(test)), -scores))
    found = []
    for share in np.linspace(0, 1, 21):
        chosen = np.full(len(test), cheap)
        chosen[order[: round(share * len(test))]] = best
        places = np.arange(len(test))
        found.append(Held("score", test.won[places, chosen], test.paid[places, chosen]))
    return found


def areas(curve: Sequence[Held], unit: float) -> np.ndarray:
    """Return each task's mean score over budgets from .05 to 1 of the best single's dollars, as really spent."""
    known = sorted(curve, key=lambda each: float(each.paid.mean()))
    costs = [float(each.paid.mean()) / unit for each in known]
    total = np.zeros(len(known[0].won))
    budgets = np.linspace(0.05, 1, 20)
    for budget in budgets:
        place = int(np.searchsorted(costs, budget, side="right")) - 1
        low, high = known[max(0, place)], known[min(place + 1, len(known) - 1)]
        step = costs[min(place + 1, len(known) - 1)] - costs[max(0, place)]
        share = (budget - costs[max(0, place)]) / step if step > 0 else 0.0
        total += (1 - share) * low.won + share * high.won
    return total / len(budgets)


def print_prompts(clones: Path) -> None:
    """Print what a user asks in each task, as JSON lines: from the results, where they have it, else from BFCL v4."""
    rows = {row[0]: row[2] for row in bfcl(Clone.of("HuanzhiMao/BFCL-Result", clones, clones))}
    newer = Clone.of("ShishirPatil/gorilla", clones, clones)
    names = {"simple": "simple_python", "relevance": "irrelevance"}
    folder = "berkeley-function-call-leaderboard/bfcl_eval/data"
    texts: dict[str, list[str]] = {}
    for task, text in rows.items():
        kind, _, place = task.partition("/")
        if text == f"{kind} {place}":
            name = names.get(kind, kind.removesuffix("_function").replace("executable", "exec"))
            path = f"{folder}/{'unused_datasets/question/' * name.startswith('exec')}BFCL_v4_{name}.json"
            if path not in texts:
                lines = newer.read(path.replace("_function", "")).splitlines()
                texts[path] = [json.loads(line)["question"][0][-1]["content"] for line in lines]
            text = texts[path][int(place)]
        print(json.dumps({"id": task, "text": text}))


def print_calls(clones: Path, folder: Path, peers: Path | None) -> None:
    """Print both halves, each held out once; `peers` has what `peers/first_turns.py` printed."""
    matrix, kinds = read_calls(clones, folder)
    first = np.array([sha256(name.encode()).digest()[0] < 128 for name in matrix.ids])
    said = [json.loads(line) for line in peers.read_text().splitlines()] if peers else []
    scores = {row.pop("id"): row for row in said}
    halves, dials = [], []
    for name, mask in (("held-out half", first), ("the other half, learned on the first one's complement", ~first)):
        named = [[kind for kind, there in zip(kinds, side, strict=True) if there] for side in (mask, ~mask)]
        train, test = matrix.at(mask), matrix.at(~mask)
        rows, dial = hold_out(train, test, (named[0], named[1]))
        halves.append(rows)
        _print_table(f"{name}: {int((~mask).sum())} tasks", rows)
        unit = float(test.paid[:, train.best_worker()].mean())
        chance = by_score(train, test, np.zeros(len(test)))
        agree = [chance[0], *(row for row in rows if "agree" in row.name), chance[-1]]
        curves = {"policy": dial, "by chance": chance, "two agree, and its ends": agree}
        for peer in next(iter(scores.values()), ()):
            curves[peer] = by_score(train, test, np.array([float(scores[task][peer]) for task in test.ids]))
        dials.append({way: areas(curve, unit) for way, curve in curves.items()})
    both = [
        Held(one.name, np.concatenate([one.won, two.won]), np.concatenate([one.paid, two.paid]))
        for one, two in zip(*halves, strict=True)
    ]
    _print_table("all tasks, each by what the other half taught", both)
    print(
        "\n| way | area, held-out half | policy less it (95 %) | all tasks | policy less it (95 %) |"
        "\n|---|---|---|---|---|"
    )
    for way in dials[0]:
        cells = []
        for own, other in (
            (dials[0]["policy"], dials[0][way]),
            tuple(np.concatenate([half[one] for half in dials]) for one in ("policy", way)),
        ):
            low, high = difference_interval(list(own - other))
            cells += [f"{other.mean():.4f}", f"{(own - other).mean():+.4f} ({low:+.4f} to {high:+.4f})"]
        print(f"| {way} | {' | '.join(cells)} |")


def _print_table(title: str, rows: Sequence[Held]) -> None:
    print(
        f"\n{title}\n\n| way | right | $ per 1,000 | of its dollars | against the best single (95 %) |\n"
        "|---|---|---|---|---|"
    )
    for each in rows:
        print(each.row(rows[0]))


# No log worse


def at_equal_dollars(train: OutcomeMatrix, test: OutcomeMatrix) -> tuple[np.ndarray, np.ndarray, str]:
    """Learn on one half; return gain and dollars saved by task on the other, for at most the best single's dollars.

    Where the verdict does not advise a policy, the best single one does all.
    """
    best, policy = train.best_worker(), select_policy(train).policy
    verdict = policy.about.verdict
    if verdict is None or verdict.kind is not VerdictKind.POLICY:
        return np.zeros(len(test)), np.zeros(len(test)), "single"
    name, equals, value = verdict.option.partition("=")
    mix = policy.mix(parse_target([(name, value)] if equals else []))
    won, paid = played(policy, policy.rung().dial.for_cost(1.0) if mix.cost > 1 else mix, test)
    return won - test.won[:, best], test.paid[:, best] - paid, "policy"


def print_logs(store: Path, recorded: Path | None, splits: int, only: Sequence[str]) -> None:
    """Print, for each log of others, what the advised way gains over the best single one, by tasks that taught nothing.

    Each task's gain is its mean over the splits: a paired interval over tasks, none of them counted twice.
    """
    logs: dict[str, tuple[Path, Sequence[str]]] = {path.name: (path, ()) for path in sorted((store / "logs").iterdir())}
    if recorded is not None:
        zeroeval = OutcomeLog.read(recorded / "zeroeval").workers
        logs |= {
            "MP13": (recorded / "mmlu-pro", MP13),
            "ZE21": (recorded / "zeroeval", tuple(name for name in zeroeval if name not in NOT_ZE21)),
        }
    print("| log | tasks | advised | gain (95 %) | dollars of the best's |\n|---|---|---|---|---|")
    for name, (folder, workers) in logs.items():
        if only and name not in only:
            continue
        matrix = build_outcome_matrix(OutcomeLog.read(folder, workers))
        if len(matrix) > MOST_TASKS:
            order = sorted(range(len(matrix)), key=lambda row: sha256(matrix.hashes[row].encode()).digest())
            matrix = matrix.at(np.sort(order[:MOST_TASKS]))
        gain, saved, ways = np.zeros(len(matrix)), np.zeros(len(matrix)), list[str]()
        for split in range(splits):
            first = np.array([sha256(f"{split}\0{content}".encode()).digest()[0] < 128 for content in matrix.hashes])
            for side in (first, ~first):
                won, kept, way = at_equal_dollars(matrix.at(~side), matrix.at(side))
                gain[side] += won / splits
                saved[side] += kept / splits
                ways.append(way)
        low, high = difference_interval(list(gain))
        share = 1 - saved.mean() / matrix.paid[:, matrix.best_worker()].mean()
        print(
            f"| {name} | {len(matrix)} | {ways.count('policy')} of {len(ways)} "
            f"| {gain.mean():+.4f} ({low:+.4f} to {high:+.4f}) | {share:.3f} |",
            flush=True,
        )


# Sessions with caches


@dataclass(frozen=True)
class Vendor:
    """A vendor's large and small model, list prices of November 2025, and how long its cache lasts."""

    name: str
    large: Card
    small: Card


def _card(name: str, seconds: float, *price: float) -> Card:
    prices = Price(price[0], price[1], price[2], cache_write=price[3] if len(price) > 3 else None)
    return Card(name, price=prices, cache_seconds=seconds, context_tokens=400_000, tools=True, passthrough=True)


VENDORS = (
    Vendor("Anthropic", _card("large", 300, 5.0, 25.0, 0.5, 6.25), _card("small", 300, 1.0, 5.0, 0.1, 1.25)),
    Vendor("OpenAI", _card("large", 300, 1.25, 10.0, 0.125), _card("small", 300, 0.25, 2.0, 0.025)),
    # Of spring 2025: since then both of its models have one price.
    Vendor("DeepSeek", _card("large", 3600, 0.55, 2.19, 0.14), _card("small", 3600, 0.27, 1.1, 0.07)),
)


@dataclass(frozen=True)
class SimulatedSession:
    """A session: tokens of its first prefix, and for each turn what it adds, writes, waits, and whether it is hard."""

    prefix: int
    grown: tuple[int, ...]
    written: tuple[int, ...]
    gaps: tuple[float, ...]
    hard: tuple[bool, ...]


def simulate(seed: int, hardness: float) -> SimulatedSession:
    """Return a simulated session."""
    draw = random.Random(seed)
    length = 1 + min(200, int(draw.expovariate(1 / 14)))
    prefix = int(5_000 * (40 ** draw.random()))  # 5 to 200 thousand
    hard, stretch = [], False
    for _ in range(length):
        stretch = draw.random() < (0.7 if stretch else hardness)  # hard turns come in stretches
        hard.append(stretch)
    gaps = [draw.expovariate(1 / 25) if draw.random() < 0.9 else draw.uniform(200, 2_000) for _ in range(length)]
    grown = [int(draw.lognormvariate(6.5, 0.9)) for _ in range(length)]
    return SimulatedSession(
        prefix, tuple(grown), tuple(int(draw.lognormvariate(5.6, 0.6)) for _ in range(length)), tuple(gaps), tuple(hard)
    )


@dataclass
class Meter:
    """Who holds how much of the prefix, until when, and what was paid."""

    cards: dict[str, Card]
    held: dict[str, tuple[float, float]]
    paid: float = 0.0
    now: float = 0.0

    def cached(self, name: str) -> float:
        """Return the tokens that a worker's provider has now."""
        tokens, at = self.held.get(name, (0.0, -1e12))
        return tokens if self.now - at <= (self.cards[name].cache_seconds or 0.0) else 0.0

    def call(self, name: str, prefix: float, written: float) -> None:
        """Pay for a call."""
        terms = CacheTerms.of(self.cards[name])
        assert terms is not None
        kept = min(prefix, self.cached(name))
        self.paid += kept * terms.read + (prefix - kept) * terms.write + written * terms.output + terms.call
        self.held[name] = (prefix, self.now)


REACH = {"large": 0.97, "small": 0.25}  # how often a hard turn succeeds; an easy one always does
GOES_ON, ENDS = 0.7, 1 - exp(-1 / 14)  # how often a hard turn is followed by another, and a session ends
BELIEFS = np.linspace(0, 1, 41)  # that a turn is hard
LAGS, TURNS = 30, 120  # since a cache's last use; that the planner looks ahead
FIRST_SEED = 700_000  # sessions of lower ones were looked at while the router was made
RETRY = 10.0  # seconds until a turn that failed is made again
GROWTH, WRITTEN = 1_320.0, 324.0  # tokens, the means of what is simulated


@cache
def gaps_survived(seconds: float) -> np.ndarray:
    """Return how often a cache that has outlasted 0, 1, 2, ... pauses outlasts one more."""
    draw = np.random.default_rng(0)
    size = (100_000, LAGS + 1)
    gaps = np.where(draw.random(size) < 0.9, draw.exponential(25, size), draw.uniform(200, 2_000, size))
    alive = (gaps.cumsum(1) <= seconds).mean(0)
    shares: np.ndarray = alive / np.maximum(1e-9, np.concatenate([[1.0], alive[:-1]]))
    return shares


class ExactPlanner:
    """What a session costs at least, by who knows how it was simulated, but not which turns are hard.

    Dynamic programming over turns, how likely the turn is hard, who made the last one, and how many turns ago the other
    worker's cache was used. `dollars` is [turns, worker, beliefs, caches]. Caches are numbered by the last worker and
    the other's lag, `LAGS + 1` where it has none; the last number is none at all.
    """

    def __init__(self, vendor: Vendor, prefix: float, hardness: float) -> None:
        self.hardness, none = hardness, 2 * (LAGS + 1)
        terms = [CacheTerms.of(card) for card in (vendor.large, vendor.small)]
        last, lag = np.repeat([0, 1], LAGS + 1), np.tile(np.arange(1, LAGS + 2), 2)
        alive = gaps_survived(vendor.large.cache_seconds or 0.0)
        both = np.where(lag <= LAGS, np.minimum(alive[0], alive[np.minimum(lag, LAGS)]), 0.0)
        pause = np.zeros((none + 1, none + 1))  # from caches to caches
        pause[np.arange(none), np.arange(none)] = both
        pause[np.arange(none), last * (LAGS + 1) + LAGS] += alive[0] - both
        pause[:none, none], pause[none, none] = 1 - alive[0], 1.0
        moves = []
        for worker, reach in enumerate(REACH.values()):
            own = last == worker
            then = np.where(own, last * (LAGS + 1) + np.minimum(lag + 1, LAGS + 1) - 1, worker * (LAGS + 1))
            behind = np.where(own, 1.0, np.where(lag <= LAGS, lag + 1.0, np.inf))
            right = 1 - BELIEFS + BELIEFS * reach
            after = [self.believe(float(belief), reach) for belief in BELIEFS]
            places = np.stack([np.interp(after, BELIEFS, one) for one in np.eye(len(BELIEFS))], 1)
            then, behind = np.append(then, worker * (LAGS + 1) + LAGS), np.append(behind, np.inf)
            moves.append((then, behind, right[:, None], places))
        self.dollars = np.zeros((TURNS, 2, len(BELIEFS), none + 1), np.float32)
        worth = np.zeros((len(BELIEFS), none + 1))
        for turn in reversed(range(TURNS)):
            read = prefix + turn * GROWTH
            for worker, (then, behind, right, places) in enumerate(moves):
                term = terms[worker]
                assert term is not None
                held = np.maximum(0.0, read - behind * GROWTH) if turn else np.zeros(none + 1)
                paid = held * term.read + (read - held) * term.write + WRITTEN * term.output
                rest = right * (1 - ENDS) * (places @ (worth @ pause.T))[:, then] + (1 - right) * worth[-1, then]
                self.dollars[turn, worker] = paid + rest
            worth = self.dollars[turn].min(0)

    def believe(self, belief: float, reach: float) -> float:
        """Return how likely the next turn is hard, after one that succeeded."""
        hard = belief * reach / (1 - belief + belief * reach)
        return GOES_ON * hard + self.hardness * (1 - hard)

    def price(self, tries: int, grown: float, belief: float, caches: Sequence[str], lag: int) -> dict[str, float]:
        """Return the dollars by who makes the turn; `caches` are the workers that have one, the last one first."""
        place = list(REACH).index(caches[0]) * (LAGS + 1) if caches else 2 * (LAGS + 1)
        place += (min(lag, LAGS + 1) if len(caches) > 1 else LAGS + 1) - 1 if caches else 0
        turn = min(TURNS - 1, max(1, round(grown / GROWTH))) if tries else 0
        return {
            name: float(np.interp(belief, BELIEFS, self.dollars[turn, one, :, place])) for one, name in enumerate(REACH)
        }


def stands_at(failed: int, calm: int) -> int:
    """Return how a session stands, after so many failures in a row and so many turns since the last ones."""
    return min(failed, STUCK) or {0: AFTER, 1: LATER}.get(calm, FINE)


def play(
    session: SimulatedSession, vendor: Vendor, way: str, quality: TurnQuality, seed: int, hardness: float
) -> tuple[float, list[float]]:
    """Return the dollars of a session played in a way, and what each switch brings by the exact planner."""
    draw, left = random.Random(seed), 1 / ENDS
    cards = {"large": vendor.large, "small": vendor.small}
    meter, here, prefix, brings = Meter(cards, {}), "large", float(session.prefix), list[float]()
    planner = ExactPlanner(vendor, prefix, hardness) if way in ("router", "planner") else None
    belief, used, made = hardness, dict[str, int](), 0
    failed, calm, known = 0, 2, Session()
    for turn in range(len(session.hard)):
        while True:
            priced = dict[str, float]()
            if planner is not None:
                warm = sorted((name for name in cards if meter.cached(name)), key=lambda name: -used[name])
                lag = used[warm[0]] - used[warm[1]] if len(warm) > 1 else 0
                priced = planner.price(made, prefix - session.prefix, belief, warm, lag)
            if way == "stay":
                chosen = "large"
            elif way == "stay small":
                chosen = "small"
            elif way == "cheapest call":
                chosen = "large" if failed else min(cards, key=lambda name: _one_call(meter, name, prefix))
            elif way == "planner":
                chosen = min(priced, key=priced.__getitem__)
            else:
                names = [here, *(name for name in cards if name != here)]
                options = [Option(name, CacheTerms.of(cards[name]), meter.cached(name), None) for name in names]
                stands = stands_at(failed, calm)
                outlook = known.outlook(prefix, left)
                chosen = decide(options, outlook, quality, stands, "stuck" if stands == STUCK else "").worker
                if chosen != here:
                    brings.append(priced[here] - priced[chosen])
            known.past.append(PastTurn(chosen, meter.now, meter.now, int(prefix), 0, session.written[turn]))
            meter.call(chosen, prefix, session.written[turn])
            here, made = chosen, made + 1
            used[here] = made
            prefix += session.written[turn]
            works = not session.hard[turn] or draw.random() < REACH[chosen]
            meter.now += session.gaps[turn] if works else RETRY
            calm, failed = (0 if failed else calm + 1), 0 if works else failed + 1
            belief = 1.0 if not works else planner.believe(belief, REACH[chosen]) if planner else 0.0
            prefix += session.grown[turn]
            if works:
                break
    return meter.paid, brings


def _one_call(meter: Meter, name: str, prefix: float) -> float:
    terms, kept = CacheTerms.of(meter.cards[name]), min(prefix, meter.cached(name))
    assert terms is not None
    return kept * terms.read + (prefix - kept) * terms.write + WRITTEN * terms.output


def print_sessions(count: int, *, as_json: bool) -> None:
    """Print dollars of the ways by vendor, and what switches brought."""
    rows = []
    for vendor in VENDORS:
        for hardness in (0.03, 0.1, 0.25):
            sessions = [simulate(FIRST_SEED + seed, hardness) for seed in range(2 * count)]
            learned, held = sessions[:count], sessions[count:]
            quality = TurnQuality()
            for name in REACH:  # what outcomes of the first sessions teach, counted turn by turn
                draw = random.Random(1)
                for session in learned:
                    calm = 2
                    for hard in session.hard:
                        failed, works = 0, False
                        while not works:
                            works = not hard or draw.random() < REACH[name]
                            quality.add(name, stands_at(failed, calm), float(works))
                            failed += not works
                        calm = 0 if failed else calm + 1
            cost = {}
            gains: list[float] = []
            for way in ("stay", "stay small", "cheapest call", "planner", "router"):
                played = [play(session, vendor, way, quality, seed, hardness) for seed, session in enumerate(held)]
                cost[way] = sum(paid for paid, _ in played)
                gains += [each for _, brought in played for each in brought]
            better = min(cost["stay"], cost["cheapest call"])
            rows.append(
                {
                    "vendor": vendor.name, "hard": hardness, **{way: round(paid, 2) for way, paid in cost.items()},
                    "of the better": round(cost["router"] / better, 3), "planner's": round(cost["planner"] / better, 3),
                    "switches": len(gains), "that lose": sum(each < 0 for each in gains),
                    "they bring": round(sum(gains), 2), "lost": round(-sum(each for each in gains if each < 0), 4),
                }
            )  # fmt: skip
    for row in rows:
        print(json.dumps(row) if as_json else "  ".join(f"{key} {value}" for key, value in row.items()))


# What a decision takes


def print_latency() -> None:
    """Print the CPU of a decision in a conversation of 200 thousand tokens."""
    tool: dict[str, Json] = {"type": "function", "function": {"name": "bash", "parameters": {}}}
    history = [ChatMessage(Speaker.USER, "Fix it. " * 100)]
    for place in range(200):
        call = ToolCall(f"c{place}", "bash", json.dumps({"command": f"pytest -q {place}"}))
        history += [ChatMessage(Speaker.ASSISTANT, "", (call,))]
        history += [ChatMessage(Speaker.TOOL, "a line of output\n" * 230, answers=call.id)]
    task = Task("Go on.", history=tuple(history), tools=(tool,))
    cards = (VENDORS[0].large, VENDORS[0].small, *(replace(VENDORS[0].small, name=f"w{place}") for place in range(6)))
    router = SessionRouter("on")
    router.evidence = {task.scope: TurnEvidence(verdicts={"small": [0.0] * 200})}
    taken = []
    for place in range(200):
        begun = process_time()
        choice = router.choose(Turn(f"r{place}", 0, task, (), "large", cards))
        taken.append((process_time() - begun) * 1e3)
    taken.sort()
    print(
        f"prefix {choice.facts['prefix']} tokens, {len(cards)} workers: "
        f"median {taken[100]:.2f} ms, 99th {taken[198]:.2f} ms"
    )


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("calls", "prompts", "logs", "sessions", "latency"))
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--recorded", type=Path)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--sets", default="")
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.what == "calls":
        if arguments.clones is None or arguments.cache is None:
            parser.error("calls needs --clones and --cache")
        print_calls(arguments.clones, arguments.cache, arguments.peers)
    elif arguments.what == "prompts":
        print_prompts(arguments.clones)
    elif arguments.what == "logs":
        print_logs(
            arguments.cache, arguments.recorded, arguments.splits, arguments.sets.split(",") * bool(arguments.sets)
        )
    elif arguments.what == "sessions":
        print_sessions(arguments.sessions, as_json=arguments.json)
    else:
        print_latency()


if __name__ == "__main__":
    main()
