"""Forty weeks of traffic in which the pool changes: what `learn`, run weekly, loses against knowing each week's truth.

    python benchmarks/weeks.py [--seeds 3] [--weeks 40] [--tasks 200] [--json FILE]

Needs `../shared/recorded` and the extra `learn`. Tasks and answers are recorded ones (MMLU-Pro, eight workers). The
traffic and its three changes are simulated: in week 8 a worker joins that nobody asked before, in week 18 the price of
the best worker falls to a tenth, and from week 28 on half of that worker's right answers are wrong, silently.
In week 0 all workers present are asked for all tasks; afterwards a policy decides, and only what it asked is known, and
graded. A week's value is the mean score less RATE times what was spent, in units of the best worker's first mean cost.

    learn weekly      the table of all outcomes so far, as `learn` makes it: no exploring, no forgetting
    + exploring       a twentieth of what runs cost goes to workers with few outcomes, besides the served answer
    + present prices  and outcomes cost what they would cost now
    + falls           and `--drop-outdated`: nothing from before a fall that the drift alarm dates
    + more outcomes   the same, with a fifth of what runs cost, until a worker has 600 outcomes (100 are the default)
    + compared        and a worker that joins is evaluated on all tasks of its first week, which is paid for
    compared, 5 %     "+ falls" with that comparison
    without exploring present prices and falls alone
    window            "+ more outcomes", but the last eight weeks instead of the drift alarm
    last week's best  control: the single worker that was best last week, all of whose outcomes it is told for nothing
    epsilon-greedy    control: 25 lines; a table by domain over eight weeks, one task in twenty to a drawn worker
    truth             the table of the same form that knows each week's means over all tasks: regret is against it
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time

import numpy as np

from changing_fits import spoilt
from common import machine
from routers_sets import FOLDER, SETS, recorded
from shikisha.core.budget import Price
from shikisha.engine.worker import Card
from shikisha.evals.statistics import difference_interval
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.exploration import ENOUGH_OUTCOMES, ExplorationBudget, draw_worker
from shikisha.routing.fit.drift_detection import drop_outdated
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.fit.partial_logs import fit_partial_log
from shikisha.routing.policy_data import Policy
from shikisha.routing.table_rule import TableRule
from shikisha.routing.trade_off import OperatingTarget, TargetMetric

POOL = (
    "gpt4o@hist",
    "gemini-1.5-pro-002",
    "gemini-1.5-flash-002",
    "Meta-Llama-3_1-70B-Instruct",
    "jamba-1.5-large",
    "Meta-Llama-3_1-8B-Instruct",
    "Phi-3-mini-4k-instruct",
    "mathstral-7B",
)
NEW, BEST = 1, 0
JOINED, CHEAPER, FALLEN = 8, 18, 28
PRICE_LEFT, SHARE_LOST = 0.1, 0.5
RATE = 0.1  # of score for one unit of cost
EXPLORED, MORE, MANY, WINDOW = 0.05, 0.2, 600, 8
_PRIOR = 5.0  # outcomes by which the greedy table shrinks a domain to the worker


@dataclass(frozen=True)
class Traffic:
    """What every worker would answer to every task, week by week, at what cost; `rows` are the tasks of each week."""

    before: OutcomeMatrix
    after: OutcomeMatrix
    rows: tuple[Ints, ...]
    prices: dict[str, Price]
    unit: float

    @classmethod
    def draw(cls, panel: OutcomeMatrix, prices: dict[str, Price], seed: int, size: tuple[int, int]) -> "Traffic":
        """Draw so many weeks of so many tasks."""
        weeks, tasks = size
        order = np.random.default_rng(seed).permutation(len(panel))[: weeks * tasks]
        return cls(
            panel,
            spoilt(panel, POOL[BEST], SHARE_LOST, seed=seed),
            tuple(np.split(order, weeks)),
            prices,
            panel.cost_unit(),
        )

    def factor(self, week: int) -> Floats:
        """Return [J]: the week's prices over the first ones."""
        return np.where((np.arange(len(POOL)) == BEST) & (week >= CHEAPER), PRICE_LEFT, 1.0)

    def there(self, week: int) -> Flags:
        """Return [J]: who is in the pool."""
        present: Flags = (np.arange(len(POOL)) != NEW) | (week >= JOINED)
        return present

    def truth(self, week: int) -> OutcomeMatrix:
        """Return the outcomes of all workers on all tasks as they are this week."""
        panel = self.after if week >= FALLEN else self.before
        return replace(panel, dollars=panel.dollars * self.factor(week))

    def cards(self, week: int) -> list[Card]:
        """Return the cards of the pool with the week's prices."""
        held = []
        for place in np.flatnonzero(self.there(week)):
            price, factor = self.prices[POOL[place]], float(self.factor(week)[place])
            held.append(
                Card(POOL[place], price=replace(price, input=price.input * factor, output=price.output * factor))
            )
        return held


@dataclass
class Arm:
    """A way to go through the weeks; it holds what it asked so far: weeks' outcomes with their cells."""

    share: float = 0.0
    enough: int = ENOUGH_OUTCOMES
    present_prices: bool = False
    forgetting: bool = False
    comparing: bool = False
    window: int = 0
    asked: list[Flags] = field(default_factory=list)

    def act(self, traffic: Traffic, week: int) -> tuple[Ints, Flags]:
        """Return [T] whose answer is served, and [T, J] who is asked."""
        policy = self.fit(traffic, week)
        panel = traffic.truth(week).at(traffic.rows[week])
        target = OperatingTarget(TargetMetric.PRICE, RATE * policy.rung().dial.unit / traffic.unit)
        point = policy.rung().dial.at(target).low
        may = policy.may_ask(tuple(card.name for card in traffic.cards(week)))
        rule = policy.parts[point.part]
        if not isinstance(rule, TableRule):
            raise TypeError(f"week {week}: expected a table, found {type(rule).__name__}")
        served = rule.choose(panel.batch, point.setting, may)
        asked = np.eye(len(POOL), dtype=bool)[served]
        if self.share:
            budget = ExplorationBudget(self.share, point.cost * policy.rung().dial.unit, self.enough)
            cards = traffic.cards(week)
            for row, content in enumerate(panel.hashes):
                drawn = draw_worker(content, budget.chances(policy, cards, panel.batch.prompts[row]))
                if drawn is not None:
                    asked[row, POOL.index(drawn.worker)] = True
        if self.comparing and week == JOINED:
            asked[:, NEW] = True
        return served, asked

    def fit(self, traffic: Traffic, week: int) -> Policy:
        """Learn from all weeks before this one."""
        first = max(0, week - self.window) if self.window else 0
        rows = np.concatenate(traffic.rows[first:week])
        when = np.repeat(np.arange(first, week), [len(traffic.rows[each]) for each in range(first, week)])
        fell = (when >= FALLEN)[:, None]
        both = traffic.before.at(rows), traffic.after.at(rows)
        codes, scores = (np.where(fell, getattr(both[1], one), getattr(both[0], one)) for one in ("codes", "scores"))
        costs = np.stack([traffic.factor(week if self.present_prices else each) for each in when.tolist()])
        log = replace(both[0], codes=codes, scores=scores, dollars=both[0].dollars * costs)
        log = log.without_outcomes(~np.concatenate(self.asked[first:week]))
        if self.forgetting:
            log, _ = drop_outdated(log)
        return fit_partial_log(log).policy


class LastWeek:
    """The single worker that was best in all of last week's outcomes."""

    def act(self, traffic: Traffic, week: int) -> tuple[Ints, Flags]:
        """Return [T] whose answer is served, and [T, J] who is asked."""
        panel = traffic.truth(week - 1).at(traffic.rows[week - 1])
        worth = panel.won.mean(axis=0) - RATE * panel.paid.mean(axis=0) / traffic.unit
        served = np.full(len(traffic.rows[week]), np.where(traffic.there(week - 1), worth, -np.inf).argmax())
        return served, np.eye(len(POOL), dtype=bool)[served]


@dataclass
class Greedy:
    """A table by domain over the last weeks' outcomes, and one task in twenty to a drawn worker."""

    seed: int
    asked: list[Flags] = field(default_factory=list)

    def act(self, traffic: Traffic, week: int) -> tuple[Ints, Flags]:
        """Return [T] whose answer is served, and [T, J] who is asked."""
        random, kinds = np.random.default_rng((self.seed, week)), len(traffic.before.types.names) + 1
        counts, sums = np.zeros((kinds, len(POOL))), np.zeros((kinds, len(POOL)))
        for each in range(max(0, week - WINDOW), week):
            panel, asked = traffic.truth(each).at(traffic.rows[each]), self.asked[each]
            worth = panel.won - RATE * panel.paid / traffic.unit
            np.add.at(counts, panel.batch.types, asked)
            np.add.at(sums, panel.batch.types, np.where(asked, worth, 0.0))
        mean = sums.sum(axis=0) / np.maximum(1, counts.sum(axis=0))
        table = (sums + _PRIOR * mean) / (counts + _PRIOR)
        there = traffic.there(week)
        table = np.where(there & (counts.sum(axis=0) > 0), table, -np.inf)
        served = table.argmax(axis=1)[traffic.before.batch.types[traffic.rows[week]]]
        drawn = random.random(len(served)) < EXPLORED
        served = np.where(drawn, random.choice(np.flatnonzero(there), len(served)), served)
        return served, np.eye(len(POOL), dtype=bool)[served]


ARMS: dict[str, Callable[[int], Arm | LastWeek | Greedy]] = {
    "learn weekly": lambda _: Arm(),
    "+ exploring": lambda _: Arm(EXPLORED),
    "+ present prices": lambda _: Arm(EXPLORED, present_prices=True),
    "+ falls": lambda _: Arm(EXPLORED, present_prices=True, forgetting=True),
    "+ more outcomes": lambda _: Arm(MORE, MANY, present_prices=True, forgetting=True),
    "+ compared": lambda _: Arm(MORE, MANY, present_prices=True, forgetting=True, comparing=True),
    "compared, 5 %": lambda _: Arm(EXPLORED, present_prices=True, forgetting=True, comparing=True),
    "without exploring": lambda _: Arm(present_prices=True, forgetting=True),
    "window": lambda _: Arm(MORE, MANY, present_prices=True, window=WINDOW),
    "last week's best": lambda _: LastWeek(),
    "epsilon-greedy": Greedy,
}


def regrets(arm: Arm | LastWeek | Greedy, traffic: Traffic) -> Iterator[Floats]:
    """Yield [T] of each week from the second on: what the truth would have brought more, task by task."""
    if not isinstance(arm, LastWeek):
        arm.asked.append(np.broadcast_to(traffic.there(0), (len(traffic.rows[0]), len(POOL))))
    for week in range(1, len(traffic.rows)):
        served, asked = arm.act(traffic, week)
        if not isinstance(arm, LastWeek):
            arm.asked.append(asked)
        whole = traffic.truth(week)
        panel = whole.at(traffic.rows[week])
        best = knowing(whole, traffic, week)[panel.batch.types]
        tasks, paid = np.arange(len(panel)), panel.paid / traffic.unit
        ideal = panel.won[tasks, best] - RATE * paid[tasks, best]
        yield ideal - (panel.won[tasks, served] - RATE * (paid * asked).sum(axis=1))


def knowing(whole: OutcomeMatrix, traffic: Traffic, week: int) -> Ints:
    """Return [D + 1]: the best worker by type of task, by the week's means over all tasks."""
    worth, kinds = whole.won - RATE * whole.paid / traffic.unit, len(whole.types.names) + 1
    sums = np.zeros((kinds, len(POOL)))
    np.add.at(sums, whole.batch.types, worth)
    best: Ints = np.where(traffic.there(week), sums, -np.inf).argmax(axis=1)
    return best


def main() -> None:
    """Go through the weeks in every way and print what each loses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--weeks", type=int, default=40)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--arm", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        sys.exit(f"no recorded answers in {arguments.folder}")
    panel = replace(recorded("MP13", arguments.folder).panel.select_workers(POOL), texts=(), evidence=None)
    panel = panel.at(np.flatnonzero(panel.there.all(axis=1)))
    if arguments.weeks <= FALLEN:
        sys.exit(f"expected more than {FALLEN} weeks, not {arguments.weeks}: the last change is in week {FALLEN}")
    if len(panel) < arguments.weeks * arguments.tasks:
        sys.exit(f"{arguments.weeks} weeks of {arguments.tasks} tasks are more than the {len(panel):,} recorded ones")
    prices = dict(OutcomeLog.read(arguments.folder / SETS["MP13"]).prices)
    size = (arguments.weeks, arguments.tasks)
    print(f"{arguments.weeks} simulated weeks of {arguments.tasks} recorded tasks ({machine()}); costs are derived")
    lost: dict[str, list[Floats]] = {name: [] for name in arguments.arm}
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        traffic = Traffic.draw(panel, prices, seed, size)
        for name in arguments.arm:
            begun = process_time()
            lost[name].append(np.stack(list(regrets(ARMS[name](seed), traffic))))
            told = f"regret {lost[name][-1].mean():+.4f} a task ({process_time() - begun:.0f} s)"
            print(f"  seed {seed}  {name:<17} {told}", file=sys.stderr, flush=True)
    spans = {
        "before": (1, JOINED),
        "joined": (JOINED, CHEAPER),
        "cheaper": (CHEAPER, FALLEN),
        "fallen": (FALLEN, arguments.weeks),
    }
    first = np.stack(lost[arguments.arm[0]])
    figures = {}
    for name, each in lost.items():
        every = np.stack(each)
        stretches = {span: float(every[:, low - 1 : high - 1].mean()) for span, (low, high) in spans.items()}
        below, above = difference_interval((first - every).mean(axis=2).ravel().tolist())
        share, (least, most) = every.sum() / first.sum(), ratio_of_sums(every, first)
        told = "  ".join(f"{span} {value:+.4f}" for span, value in stretches.items())
        print(f"  {name:<17} regret {every.mean():+.4f}, {share:.2f} [{least:.2f}, {most:.2f}] of the first; {told}")
        if each is not lost[arguments.arm[0]]:
            print(f"  {'':<17} less than the first by {(first - every).mean():+.4f} [{below:+.4f}, {above:+.4f}]")
        figures[name] = {"regret": float(every.mean()), "share": float(share), "low": least, "high": most, **stretches}
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


def ratio_of_sums(part: Floats, whole: Floats) -> tuple[float, float]:
    """Return the 95 % bootstrap interval, over weeks of all seeds, of the ratio of the sums."""
    one, other = (values.mean(axis=2).ravel() for values in (part, whole))
    drawn = np.random.default_rng(0).integers(0, len(one), (2_000, len(one)))
    low, high = np.quantile(one[drawn].sum(axis=1) / other[drawn].sum(axis=1), (0.025, 0.975))
    return float(low), float(high)


if __name__ == "__main__":
    main()
