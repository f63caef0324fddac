"""What an evaluation is said to have shown: honest words, and figures written so that nothing unknown looks known."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports import around, conductor, difference, report

from shikisha.core.budget import format_dollars
from shikisha.evals.entrant_metrics import (
    ConfidenceInterval,
    EntrantFigures,
    EqualDollars,
    EvaluationReport,
    TaskGroup,
)
from shikisha.evals.html_report import accuracy_matrix, failure_matrix, share_matrix
from shikisha.evals.report_text import (
    abbreviate_names,
    best_single_entry,
    caveat_sentences,
    headline_sentences,
    leading_entries,
    reading_order,
    short_names,
    span,
    total_dollars,
    verdict,
)
from shikisha.evals.samples import EntrantRole
from shikisha.plots.charts import OTHERS
from shikisha.plots.format import compact, count, percent, plural, points, seconds

EMPTY = EvaluationReport("t", "v", "", (), (), None, (), (), {}, {})


def entry(name: str, part: EntrantRole = EntrantRole.ASKED) -> EntrantFigures:
    return EntrantFigures(name, part, 100, 0.5, around(0.5, 0.1))


@pytest.mark.parametrize(
    ("amount", "written"),
    [
        (None, "$?"),
        (0.0, "$0"),
        (1234.5, "$1,234"),
        (100.0, "$100"),
        (12.345, "$12.35"),
        (1.0, "$1.00"),
        (0.5, "$0.50"),
        (0.9996, "$1.00"),
        (0.42, "$0.42"),
        (0.00278, "$0.00278"),
        (0.0000441, "$0.0000441"),
        (0.00005, "$0.00005"),
        (0.01, "$0.01"),
        (3e-12, "$3.0e-12"),
    ],
)
def test_dollars(amount: float | None, written: str) -> None:
    assert format_dollars(amount) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0 ms"),
        (0.34, "340 ms"),
        (0.9996, "1.0 s"),
        (1.24, "1.2 s"),
        (99.96, "1 min 40 s"),
        (245.0, "4 min 05 s"),
        (12_000.0, "3 h 20 min"),
    ],
)
def test_seconds(value: float, written: str) -> None:
    assert seconds(value) == written


@pytest.mark.parametrize(
    ("interval", "written"),
    [
        (ConfidenceInterval(0.0151, 0.027), "+1.5 to +2.7"),
        (ConfidenceInterval(-0.008, 0.0), "−0.8 to +0.0"),
        (ConfidenceInterval(0.0003, 0.011), "+0.03 to +1.10"),
        (ConfidenceInterval(-0.02, -0.00002), "−2.000 to −0.002"),
        (ConfidenceInterval(1e-17, 0.02), "+0.0 to +2.0"),
    ],
)
def test_an_end_near_0_shows_on_which_side_it_is(interval: ConfidenceInterval, written: str) -> None:
    assert span(interval, signed=True) == written


def test_shares_counts_and_points() -> None:
    assert (percent(0.7236), percent(None), percent(-0.031)) == ("72.4 %", "–", "−3.1 %")
    assert (points(0.0213), points(-0.1), points(0.0)) == ("+2.1", "−10.0", "+0.0")
    assert (count(8398), count(3.25), count(3.0), count(0)) == ("8,398", "3.2", "3", "0")
    assert [compact(n) for n in (7, 950, 1000, 1249, 9990, 23_456, 3_000_000)] == [
        *("7", "950", "1k", "1.2k", "10k", "23k", "3M")
    ]
    assert (plural(1, "task"), plural(2, "task"), plural(0, "entry", "entries")) == ("1 task", "2 tasks", "0 entries")
    assert span(ConfidenceInterval(0.714, 0.733)) == "71.4 to 73.3"


def test_a_total_that_lacks_costs_says_so() -> None:
    made = replace(entry("a"), dollars=2.0)
    assert total_dollars(made) == "$2.00"
    assert total_dollars(replace(made, unpriced=3)) == "≥ $2.00"
    assert total_dollars(replace(made, dollars=0.0, unpriced=100)) == "$?"


def test_nothing_is_claimed_when_the_interval_includes_0() -> None:
    assert verdict(difference("a", 0.01, 0.011)) == "the interval includes 0: no difference can be claimed"
    assert verdict(difference("a", 0.02, 0.011)).startswith("better")
    assert verdict(difference("a", -0.02, 0.011)).startswith("worse")


def test_entries_are_read_in_order_of_part_and_accuracy() -> None:
    shown = reading_order(report())
    assert [entry.part for entry in shown] == sorted((e.part for e in shown), key=[*PARTS_IN_ORDER].index)
    for part in PARTS_IN_ORDER:
        accuracies = [entry.accuracy for entry in shown if entry.part is part]
        assert accuracies == sorted(accuracies, reverse=True)


PARTS_IN_ORDER = (
    EntrantRole.ASKED,
    EntrantRole.FIXED,
    EntrantRole.CONSISTENCY,
    EntrantRole.RANDOM,
    EntrantRole.SINGLE,
    EntrantRole.ORACLE,
)


def test_the_headline_names_difference_interval_cost_and_the_choice() -> None:
    first, cost, other = headline_sentences(report())
    assert first == (
        "“cascade: agree 2, then gpt4o@hist” reached 74.1 % (95 % interval 73.1 to 75.1) on 8,398 tasks. "
        "The best single worker, “gpt4o@hist”, reached 72.5 %. Difference over the 8,398 tasks that both did: "
        "+1.6 points (95 % paired interval +0.5 to +2.7); better: the interval excludes 0. "
        "It is the best of 2, picked by these same figures, which flatters it."
    )
    assert cost.endswith("times the best single worker's $0.0049.")
    assert (
        other == "“weighted vote”: +0.3 points (−0.8 to +1.4); the interval includes 0: no difference can be claimed."
    )


def test_the_oracle_and_single_workers_are_no_contenders() -> None:
    made = report()
    assert [entry.name for entry in leading_entries(made)] == ["cascade: agree 2, then gpt4o@hist", "weighted vote"]
    told = replace(entry("optimum", EntrantRole.REFERENCE), accuracy=0.99, against=difference("gpt4o@hist", 0.2, 0.01))
    made = replace(made, entries=(*made.entries, told))
    assert "optimum" not in [entry.name for entry in leading_entries(made)]
    assert headline_sentences(made)[-1].startswith("“optimum”: +20.0 points")
    unasked = replace(made, entries=tuple(entry for entry in made.entries if entry.part is not EntrantRole.ASKED))
    assert [e.part for e in leading_entries(unasked)] == [
        EntrantRole.CONSISTENCY,
        EntrantRole.FIXED,
        EntrantRole.RANDOM,
    ]


def test_a_worse_contender_is_called_worse() -> None:
    made = report()
    worse = conductor("mine", EntrantRole.ASKED, 0.7, ("gpt4o@hist", 0.725), Random(0))
    first, *_ = headline_sentences(
        replace(made, entries=(worse, *(e for e in made.entries if e.part is EntrantRole.SINGLE)))
    )
    assert "−2.5 points (95 % paired interval −3.6 to −1.4); worse: the interval excludes 0." in first
    assert "picked" not in first  # there was no choice


@pytest.mark.parametrize(
    ("entries", "best", "said"),
    [
        ((), None, "No sample was graded"),
        ((entry("a", EntrantRole.SINGLE),), "a", "The best single worker: “a” reached 50.0 %"),
        ((entry("a"),), None, "No single worker was graded to compare it with."),
        ((entry("a"), entry("b", EntrantRole.SINGLE)), "b", "“a” reached 50.0 %"),
    ],
)
def test_a_headline_where_there_is_nothing_to_compare(
    entries: tuple[EntrantFigures, ...], best: str | None, said: str
) -> None:
    assert said in headline_sentences(replace(EMPTY, entries=entries, best_single=best))[0]


MIXED = "the best mix of the baselines (“strong” for 25.0 % of the tasks, else “weak”) reached 40.0 %."


@pytest.mark.parametrize(
    ("mix", "said"),
    [
        (("weak", "strong", 0.25, 0.02), f"At equal dollars {MIXED}"),
        (("b", "b", 0.0, 0.01), "At equal dollars the best of the baselines, “b” for $0.01, reached 40.0 %."),
        (("b", "b", 0.0, 0.03), "No baseline is as cheap: the cheapest, “b”, reached 40.0 % for $0.03."),
    ],
)
def test_equal_dollars_in_words(mix: tuple[str, str, float, float], said: str) -> None:
    low, high, share, dollars = mix
    equal = EqualDollars(low, high, share, 0.4, dollars, 0.02, difference("the baselines", 0.1, 0.02))
    entries = (
        replace(entry("a"), dollars=2.0, at_equal_dollars=equal),
        replace(entry("c"), accuracy=0.4, against=difference("b", 0.1, 0.02), at_equal_dollars=equal),
        replace(entry("b", EntrantRole.SINGLE), dollars=1.0),
    )
    found = headline_sentences(replace(EMPTY, entries=entries, best_single="b"))
    assert found[2] == f"{said} Difference: +10.0 points (+8.0 to +12.0); better: the interval excludes 0."
    assert found[3].endswith("Against the baselines at equal dollars: +10.0 points (+8.0 to +12.0).")


def test_costs_are_left_out_of_the_headline_where_they_are_unknown() -> None:
    unknown = (replace(entry("a"), unpriced=100), replace(entry("b", EntrantRole.SINGLE), dollars=1.0))
    assert len(headline_sentences(replace(EMPTY, entries=unknown, best_single="b"))) == 1
    free = (entry("a"), replace(entry("b", EntrantRole.SINGLE), dollars=1.0))
    assert headline_sentences(replace(EMPTY, entries=free, best_single="b"))[1] == (
        "It cost $0 a task, the best single worker $0.01."
    )


def test_caveats_begin_with_what_is_missing_and_tell_of_judges_and_ungraded() -> None:
    odd = (replace(entry("a"), judged=40), replace(entry("b"), ungraded=7))
    made = replace(EMPTY, entries=odd, complete=False, why="dollars", notes=("prices are derived",))
    first, second, judged, ungraded = caveat_sentences(made)
    assert first == "This evaluation is not complete: dollars. Figures are of what was done."
    assert second == "prices are derived"
    assert judged == "40 of 200 grades were given by a language model, not by an executed check."
    assert ungraded.startswith("7 samples could not be graded")
    assert ungraded.endswith("most of “b”: 7 of 107.")


def test_a_sound_evaluation_has_no_caveats() -> None:
    assert caveat_sentences(replace(EMPTY, entries=(entry("a"),))) == ()
    assert best_single_entry(EMPTY) is None


def test_domains_are_rows_and_unknown_cells_stay_unknown() -> None:
    one = replace(entry("a"), domains={"law": TaskGroup(10, 0.4), "art": TaskGroup(3, 1.0)})
    two = replace(entry("b"), domains={"law": TaskGroup(12, 0.5)})
    matrix = accuracy_matrix([one, two])
    assert matrix.columns == ("a", "b")
    assert [(row.name, row.tasks, row.cells) for row in matrix.rows] == [
        ("law", 12, (0.4, 0.5)),
        ("art", 3, (1.0, None)),
    ]
    assert accuracy_matrix([replace(entry("a"), domains={"": TaskGroup(3, 1.0)})]).rows == ()
    assert accuracy_matrix([one], by_difficulty=True).rows == ()


def test_many_workers_are_summed_up_as_others_and_nothing_is_lost() -> None:
    workers = {f"w{n}": (n + 1) / 210 for n in range(20)}
    matrix = share_matrix(replace(entry("a"), workers=workers, domains={"law": TaskGroup(5, 1.0, {"w0": 1.0})}))
    assert matrix.columns[-1] == OTHERS
    assert len(matrix.columns) == 16
    assert "w0" in matrix.columns  # it did all of a domain
    for row in matrix.rows:
        assert sum(cell or 0.0 for cell in row.cells) == pytest.approx(1.0)


def test_few_workers_have_a_column_each_the_busiest_first() -> None:
    matrix = share_matrix(replace(entry("a"), workers={"x": 0.2, "y": 0.8, "z": 0.0}))
    assert matrix.columns == ("y", "x")
    assert [row.cells for row in matrix.rows] == [(0.8, 0.2)]


def test_failures_stand_by_kind_and_only_for_those_who_failed() -> None:
    matrix = failure_matrix(
        [replace(entry("a"), failures={"timeout": 1, "server": 5}), entry("b"), replace(entry("c"), failures={"x": 0})]
    )
    assert matrix.columns == ("server", "timeout")
    assert [(row.name, row.cells) for row in matrix.rows] == [("a", (5, 1))]


VOTE, WIDE = (
    "fixed:vote?workers=gpt4o@hist,gemini-1.5-pro-002&join=vote",
    "fixed:vote?workers=a,b,c,d,e,f,g,h&join=vote",
)
LONG = "a name that somebody gave and that goes on and on and on"


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["a", "fixed:vote?workers=a"], ["a", "fixed:vote?workers=a"]),
        ([VOTE, f"best fixed ({VOTE})"], ["fixed:vote…", "best fixed (fixed:vote…)"]),
        ([VOTE, WIDE, "fixed:vote…"], ["fixed:vote… #1", "fixed:vote… #2", "fixed:vote…"]),
        ([VOTE, WIDE, "fixed:vote… #1"], ["fixed:vote… #2", "fixed:vote… #3", "fixed:vote… #1"]),
        ([LONG], ["a name that somebody … and on and on"]),
    ],
)
def test_a_long_name_is_shortened_to_one_of_its_own(names: list[str], short: list[str]) -> None:
    assert list(short_names(names).values()) == short


@given(st.lists(st.text(max_size=60), unique=True, max_size=12))
def test_short_names_stay_different(names: list[str]) -> None:
    short = short_names(names)
    assert list(short) == names
    assert len(set(short.values())) == len(names)


def test_an_abbreviated_report_uses_short_names_everywhere_and_tells_the_whole_ones() -> None:
    whole = f"best fixed ({VOTE})"
    equal = EqualDollars(whole, "other", 0.5, 0.4, 1.0, 1.0, difference("the baselines", 0.1, 0.2))
    asked = replace(entry(VOTE), against=difference(whole, 0.1, 0.2), at_equal_dollars=equal)
    entries = (asked, entry(whole, EntrantRole.SINGLE))
    notes = (f"not all have a score from {whole} (3)",)
    made = replace(EMPTY, entries=entries, best_single=whole, notes=notes, pgr={VOTE: 0.5})
    short, wholes = abbreviate_names(made)
    assert wholes == {"fixed:vote…": VOTE, "best fixed (fixed:vote…)": whole}
    assert [each.name for each in short.entries] == list(wholes)
    assert short.entries[0].against == difference("best fixed (fixed:vote…)", 0.1, 0.2)
    assert short.entries[0].at_equal_dollars == replace(equal, low="best fixed (fixed:vote…)")
    assert (short.best_single, short.pgr) == ("best fixed (fixed:vote…)", {"fixed:vote…": 0.5})
    assert short.notes == ("not all have a score from best fixed (fixed:vote…) (3)",)
