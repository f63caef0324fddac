"""Reports: who is compared with whom on what, JSON there and back, and the recorded answers counted again by pandas."""

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pandas as pd
import pytest
from made_samples import about, report_of, sample, samples_of
from paths import ROOT

from recorded_pools import MP13, NOT_ZE21
from shikisha.core.errors import ConfigError
from shikisha.evals.entrant_metrics import EntrantFigures, EntrantInfo, EvaluationReport
from shikisha.evals.report import build_report, dump_report, load_report
from shikisha.evals.samples import EntrantRole, Sample

FOLDER = ROOT.parent / "shared" / "recorded"
Holds = Callable[[str], bool]


def named(found: EvaluationReport, name: str) -> EntrantFigures:
    """The entry of this name."""
    (entry,) = [entry for entry in found.entries if entry.name == name]
    return entry


def small() -> EvaluationReport:
    """A report of two single workers and a conductor over four tasks in two domains."""
    weak = [sample("weak", f"t{n}", float(n == 0), domain="xy"[n % 2], dollars=1.0, workers=("w",)) for n in range(4)]
    good = [sample("good", f"t{n}", float(n < 3), domain="xy"[n % 2], dollars=3.0, workers=("g",)) for n in range(4)]
    both = [sample("both", f"t{n}", 1.0, domain="xy"[n % 2], dollars=4.0, workers=("w", "g")) for n in range(4)]
    return report_of({"weak": weak, "good": good}, {"both": both})


def test_everybody_is_compared_with_the_best_single_worker() -> None:
    found = small()
    assert [entry.name for entry in found.entries] == ["both", "weak", "good", "oracle"]
    assert found.best_single == "good"
    assert named(found, "good").against is None
    against = named(found, "both").against
    assert against is not None
    assert (against.to, against.tasks, against.mean, against.better, against.worse) == ("good", 4, 0.25, 1, 0)
    assert found.pgr == {"both": 1.5, "weak": 0.0, "good": 1.0, "oracle": 1.0}
    assert found.hull == ((1.0, 0.25), (3.0, 0.75))
    assert found.aiq == pytest.approx((2 * 0.5 + 1 * 0.875) / 3)
    assert [(curve.weak, curve.strong) for curve in found.curves] == [("weak", "good")] * 3


def test_conductors_are_compared_with_a_mix_of_the_baselines_at_equal_dollars() -> None:
    weak, good = samples_of("weak", [1, 0, 0, 0], dollars=1.0), samples_of("good", [1, 1, 1, 0], dollars=3.0)
    poor = samples_of("poor", [0, 0, 0, 1], dollars=2.0)  # below the line from weak to good
    between = {"between": samples_of("between", [1, 1, 1, 1], dollars=2.5)}
    found = named(report_of({"weak": weak, "good": good, "poor": poor}, between), "between").at_equal_dollars
    assert found is not None
    assert (found.low, found.high, found.share, found.dollars, found.spent) == ("weak", "good", 0.75, 2.5, 2.5)
    assert found.accuracy == 0.25 * 0.25 + 0.75 * 0.75
    assert (found.difference.tasks, found.difference.mean) == (4, 1 - found.accuracy)
    assert (found.difference.better, found.difference.worse) == (3, 0)


@pytest.mark.parametrize(
    ("dollars", "played", "spends"),
    [(4.0, "good", 3.0), (0.5, "weak", 1.0)],
    ids=["dearer than what is best of the baselines", "cheaper than any baseline"],
)
def test_where_no_mix_spends_as_much_the_nearest_baseline_plays(dollars: float, played: str, spends: float) -> None:
    weak, good = samples_of("weak", [1, 0, 0, 0], dollars=1.0), samples_of("good", [1, 1, 1, 0], dollars=3.0)
    dear = samples_of("dear", [1, 0, 1, 0], dollars=3.5)
    mine = {"mine": samples_of("mine", [1, 0, 1, 1], dollars=dollars)}
    found = named(report_of({"weak": weak, "good": good, "dear": dear}, mine), "mine").at_equal_dollars
    assert found is not None
    assert (found.low, found.high, found.share, found.dollars, found.spent) == (played, played, 0.0, spends, dollars)


def test_equal_dollars_are_of_the_tasks_that_all_have_a_cost_for() -> None:
    one, other = samples_of("one", [1, 0, None, 1], dollars=1.0), samples_of("other", [1, 1, 1, 1], dollars=2.0)
    rare = samples_of("rare", [1.0], dollars=0.1)  # has too few tasks to take part
    unpriced = samples_of("unpriced", [1, 1, 1, 1], dollars=None)
    mine = {"mine": samples_of("mine", [1, 1, 0, 0], dollars=1.5)}
    made = report_of({"one": one, "other": other, "rare": rare, "unpriced": unpriced}, mine)
    found = named(made, "mine").at_equal_dollars
    assert found is not None
    assert (found.low, found.high, found.difference.tasks) == ("one", "other", 3)
    free = {"free": samples_of("free", [1, 0], dollars=0.0)}
    assert named(report_of({"too": samples_of("too", [1, 1], dollars=0.0)}, free), "free").at_equal_dollars is None
    assert named(report_of({"one": one}, {"mine": []}), "mine").at_equal_dollars is None


def test_the_oracle_says_that_it_was_never_run() -> None:
    oracle = named(small(), "oracle")
    assert (oracle.part, oracle.accuracy, oracle.dollars, oracle.paid) == (EntrantRole.ORACLE, 0.75, 1 + 3 + 3 + 1, 0.0)
    assert dict(oracle.workers) == {"w": 0.5, "g": 0.5}
    assert "never run" in oracle.note


def test_the_best_is_found_on_the_tasks_that_all_single_workers_have_a_score_for() -> None:
    """`a` is better on its own tasks only because it did not do the one that nobody can do."""
    found = report_of({"a": samples_of("a", [1.0, 0.0, None]), "b": samples_of("b", [1.0, 1.0, 0.0, 0.0])})
    assert named(found, "a").accuracy == named(found, "b").accuracy
    assert found.best_single == "b"
    against = named(found, "a").against
    assert against is not None
    assert against.tasks == 2
    assert "of the 4 tasks not all have a score from a (2)" in found.notes


def test_of_equally_good_ones_the_best_is_the_cheaper() -> None:
    dear, cheap = samples_of("dear", [1.0, 0.0], dollars=2.0), samples_of("cheap", [0.0, 1.0], dollars=1.0)
    unknown = samples_of("unknown", [1.0, 0.0], dollars=None)
    assert report_of({"dear": dear, "unknown": unknown, "cheap": cheap}).best_single == "cheap"
    assert report_of({"unknown": unknown, "dear": dear}).best_single == "dear"


def test_single_workers_without_a_common_task_are_ranked_by_their_own_and_a_note_says_so() -> None:
    found = report_of({"a": [sample("a", "x", 0.5)], "b": [sample("b", "y", 1.0)]})
    assert found.best_single == "b"
    assert named(found, "a").against is None
    assert any("no task has a score from every single worker" in note for note in found.notes)
    assert (found.pgr, found.curves) == ({}, ())


def test_the_curves_of_more_than_two_go_from_the_cheapest_to_the_best() -> None:
    bad = samples_of("bad", [0.0] * 4, dollars=2.0)
    cheap = samples_of("cheap", [1.0, 0.0, 0.0, 0.0], dollars=1.0)
    good = samples_of("good", [1.0] * 4, dollars=3.0)
    assert {curve.weak for curve in report_of({"bad": bad, "cheap": cheap, "good": good}).curves} == {"cheap"}
    free = report_of({"bad": [replace(each, dollars=None) for each in bad], "cheap": cheap, "good": good})
    assert {curve.weak for curve in free.curves} == {"bad"}
    assert any("not every cost is known" in note for note in free.notes)
    assert "the cost is not known for every sample of bad" in free.notes
    best = report_of({"bad": bad, "cheap": cheap, "good": [replace(each, dollars=0.5) for each in good]})
    assert best.curves == ()
    assert any("nothing for a router to weigh" in note for note in best.notes)


def test_without_single_workers_nobody_is_compared_and_there_is_no_oracle() -> None:
    found = report_of({}, {"me": samples_of("me", [1.0, 0.0])})
    assert [entry.name for entry in found.entries] == ["me"]
    assert (found.best_single, named(found, "me").against, found.pgr, found.hull) == (None, None, {}, ())


def test_scores_and_dollars_are_kept_task_by_task() -> None:
    found = report_of({"a": samples_of("a", [1.0, None, 0.5], dollars=0.25)}, {"b": [sample("b", "t2", 0.0)]})
    assert found.tasks == ("t2", "t0", "t1")
    assert found.scores == {"b": (0.0, None, None), "a": (0.5, 1.0, None), "oracle": (0.5, 1.0, None)}
    assert found.dollars["b"] == (0.0, None, None)
    assert found.dollars["a"] == (0.25, 0.25, 0.25)


def test_a_note_names_the_few_who_did_least_and_counts_the_others() -> None:
    found = report_of(
        {}, {f"e{count}": samples_of(f"e{count}", [1.0] * count, dollars=None) for count in range(8, 0, -1)}
    )
    few = "e1 (1), e2 (2), e3 (3), e4 (4), e5 (5) and 2 more"
    assert found.notes == (f"of the 8 tasks not all have a score from {few}", "no cost is known")


def test_the_order_of_all_samples_changes_nothing() -> None:
    random, who = (
        Random(3),
        [EntrantInfo("me"), EntrantInfo("a", EntrantRole.SINGLE), EntrantInfo("b", EntrantRole.SINGLE)],
    )
    samples = {each.name: samples_of(each.name, random.choices([0.0, 0.3, 1.0], k=50), dollars=0.1) for each in who}
    tasks = about(f"t{n}" for n in range(50))
    shuffled = {name: random.sample(held, len(held)) for name, held in samples.items()}
    assert dump_report(build_report(who, shuffled, tasks)) == dump_report(build_report(who, samples, tasks))


@pytest.mark.parametrize(
    ("who", "samples", "problem"),
    [
        ([EntrantInfo("a"), EntrantInfo("a")], {}, "two entrants have the name 'a'"),
        ([EntrantInfo("oracle"), EntrantInfo("a", EntrantRole.SINGLE)], {}, "two entrants have the name 'oracle'"),
        ([EntrantInfo("a")], {"b": []}, "samples of 'b', who is not among the entrants"),
        ([EntrantInfo("a")], {"a": [sample("a", "t9")]}, "a has a sample of task 't9', which is not there"),
        ([EntrantInfo("a")], {"a": [replace(sample("a", "t0"), task_hash="0")]}, "'t0', which has another content"),
        ([EntrantInfo("a")], {"a": [sample("a", "t0"), sample("a", "t0", 0.0)]}, "a has two samples of task 't0'"),
    ],
)
def test_samples_that_belong_nowhere_are_refused(
    who: list[EntrantInfo], samples: dict[str, list[Sample]], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        build_report(who, samples, about(["t0"]))


# JSON


def test_a_report_comes_back_from_json_as_it_was() -> None:
    found = small()
    text = dump_report(found)
    assert load_report(text) == found
    assert json.loads(text)["format"] == "shikisha evaluation 1"
    assert "NaN" not in dump_report(report_of({"a": []}))


def test_json_has_one_entry_a_conductor_with_its_figures() -> None:
    entry = json.loads(dump_report(small()))["entries"][0]
    wanted = "name tasks accuracy against valid accuracy_given_valid dollars tokens steps workers entropy topologies"
    assert set(wanted.split()) <= entry.keys()
    assert entry["against"]["interval"].keys() == {"low", "high"}


def broken(**changes: object) -> str:
    """The small report as JSON with these fields changed: `entries__0__tasks=1` for a nested one."""
    data = json.loads(dump_report(small()))
    for name, value in changes.items():
        *way, last = [int(part) if part.isdigit() else part for part in name.split("__")]
        place = data
        for part in way:
            place = place[part]
        place[last] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file: Invalid JSON"),
        ("[]", "the file: "),
        ("{}", "format: "),
        (broken(format="shikisha evaluation 2"), "format: expected 'shikisha evaluation 1'"),
        (broken(entries__0__tasks="many"), r"entries\[0\].tasks: expected a whole number"),
        (broken(entries__1__part="boss"), r"entries\[1\].part: expected 'asked'"),
        (broken(entries__0__accuracy="0.5"), r"entries\[0\].accuracy: expected a number"),
        (broken(entries__0__against__mean=float("nan")), r"entries\[0\].against.mean: expected a finite number"),
        (broken(entries__0__hue=1), r"entries\[0\].hue: unknown field"),
        (broken(colour=1), "colour: unknown field"),
        (broken(hashes=["x"]), "hashes: expected one for each of 4 tasks, found 1"),
        (broken(scores__both=[None]), "scores.both: expected one for each of 4 tasks"),
        (broken(dollars={}), "dollars: expected one list for each entry"),
        (broken(best_single="nobody"), "best_single: there is no entry 'nobody'"),
    ],
)
def test_what_is_no_report_is_refused_by_its_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^a.json: {problem}"):
        load_report(text, "a.json")


# the recorded answers, counted a second time

POOLS: dict[str, tuple[str, Holds]] = {
    "MP13": ("mmlu-pro", MP13.__contains__),
    "MP14": ("mmlu-pro", {*MP13, "DeepSeek-Coder-V2"}.__contains__),  # which lacks 1,168 of the tasks
    "ZE21": ("zeroeval", lambda worker: worker not in NOT_ZE21),
    "LR9": ("llmrouter", lambda _: True),
    "RouteLLM": ("routellm-mmlu", lambda _: True),
}


def outcomes(pool: str) -> pd.DataFrame:
    """A pool's recorded outcomes with their tasks' domains."""
    folder, takes = POOLS[pool]
    table = pd.read_parquet(FOLDER / folder / "outcomes.parquet")
    tasks = pd.read_parquet(FOLDER / folder / "tasks.parquet")[["task_id", "domain"]]
    table = table[table.worker.map(takes)].merge(tasks, on="task_id")
    return table if "cost_usd" in table else table.assign(cost_usd=float("nan"))


def counted(table: pd.DataFrame) -> EvaluationReport:
    """Our report on these outcomes."""
    held: dict[str, list[Sample]] = {worker: [] for worker in table.worker.unique()}
    for row in table.itertuples():
        dollars = None if pd.isna(row.cost_usd) else float(row.cost_usd)
        made = sample(row.worker, row.task_id, float(row.score), domain=row.domain, dollars=dollars)
        held[row.worker].append(made)
    return report_of(held)


@pytest.mark.full
@pytest.mark.recorded
@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded answers in {FOLDER}")
@pytest.mark.parametrize(
    ("pool", "best", "oracle"),
    [
        pytest.param("MP13", 0.7399, 0.9228, marks=pytest.mark.slow),
        ("MP14", 0.7399, 0.9249),
        ("ZE21", 0.8335, 0.9509),
        ("LR9", 0.6147, 0.7952),
        ("RouteLLM", 0.8006, 0.8565),
    ],
)
def test_pandas_counts_the_same(pool: str, best: float, oracle: float) -> None:
    table = outcomes(pool)
    found = counted(table)
    scores = table.pivot(index="task_id", columns="worker", values="score")
    leader = scores.dropna().mean().idxmax()
    assert found.best_single == leader
    for worker, alone in table.groupby("worker"):
        mine = named(found, str(worker))
        assert (mine.tasks, mine.unpriced) == (len(alone), alone.cost_usd.isna().sum())
        assert (mine.accuracy, mine.dollars) == pytest.approx((alone.score.mean(), alone.cost_usd.sum()), abs=1e-12)
        gap = (scores[worker] - scores[leader]).dropna()
        if mine.against is not None:
            assert (mine.against.tasks, mine.against.better) == (len(gap), (gap > 0).sum())
            assert mine.against.worse == (gap < 0).sum()
            assert mine.against.mean == pytest.approx(gap.mean())
        domains = alone.groupby("domain").score.mean().to_dict()
        assert {name: group.accuracy for name, group in mine.domains.items()} == pytest.approx(domains)
    top = table[table.score == table.groupby("task_id").score.transform("max")]
    reckoned = named(found, "oracle")
    assert reckoned.accuracy == pytest.approx(scores.max(axis=1).mean())
    assert reckoned.dollars == pytest.approx(top.groupby("task_id").cost_usd.min().sum())
    assert (named(found, leader).accuracy, reckoned.accuracy) == pytest.approx((best, oracle), abs=5e-5)
