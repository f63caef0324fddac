"""`policy watch` as a person uses it: who fell, told by whom, the policy that makes do, and what cannot be watched."""

import asyncio
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from panels import panel, untyped
from policies import write
from shelves import asking
from test_cli import Cli
from test_drift_detection import FOUR, GOOD, policy
from test_drift_detection import fallen as falling
from test_importers_journal import Kept, keep
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.exit_codes import ExitCode
from shikisha.conductors.learned_policy import policy_conductor
from shikisha.core.task import Task
from shikisha.journal import open_journal
from shikisha.outcomes.log_reader import log_hash
from shikisha.routing.fit.drift_detection import (
    BASELINE_OUTCOMES,
    FEW_OUTCOMES,
    ExpectationSource,
    WorkerDrift,
    WorkerStanding,
    WorkerState,
    assess_workers,
)
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import Policy
from shikisha.routing.policy_file import load_policy, save_policy
from shikisha.routing.policy_registry import read_registry
from shikisha.routing.trade_off import OperatingTarget, TargetMetric
from support import pool_of

TASKS, BEGUN = 900, 400
Change = Callable[[OutcomeMatrix], OutcomeMatrix]


@cache
def drifting() -> OutcomeMatrix:
    return falling(TASKS, BEGUN, 0.6)


@cache
def quiet() -> OutcomeMatrix:
    return panel(FOUR, TASKS, alike=0.3, seed=5)


@dataclass(frozen=True)
class Watch:
    """A folder with a policy, a log and perhaps a journal, and the command line."""

    cli: Cli
    folder: Path

    @property
    def policy(self) -> Path:
        return self.folder / "our.policy"

    @property
    def journal(self) -> str:
        return str(self.folder / "runs.db")

    def log(self, held: OutcomeMatrix, name: str = "log") -> str:
        return str(write(held, self.folder / name))

    def __call__(self, *arguments: str, code: int = 0, of: Path | None = None) -> str:
        """Watch; return what was said on either stream, on one line."""
        said = self.cli("policy", "watch", str(of or self.policy), *arguments, code=code)
        return " ".join(f"{said} {self.cli.said}".split())

    def json(self, *arguments: str, code: int = 0) -> dict[str, object]:
        return self.cli.json("policy", "watch", str(self.policy), *arguments, code=code)


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    made = Watch(Cli(tmp_path), tmp_path)
    save_policy(policy(), made.policy)
    return made


def drifted_workers(standings: Sequence[WorkerStanding]) -> tuple[WorkerDrift, ...]:
    return tuple(standing.drift for standing in standings if standing.drift is not None)


def rows(told: dict[str, object]) -> dict[str, dict[str, object]]:
    """What --json says of each worker."""
    found = told["workers"]
    assert isinstance(found, list)
    return {str(row["worker"]): row for row in found}


def test_who_fell_since_when_and_how_far_is_said(watch: Watch) -> None:
    log = watch.log(drifting())
    told = watch.json("--log", log, code=ExitCode.FAILED)
    found = rows(told)
    assert (told["fallen"], told["usual"], told["rows"]) == (["good"], "policy", TASKS)
    assert [row["state"] for row in found.values()] == ["as usual", "as usual", "fell", "as usual"]
    drift = found["good"]["drift"]
    assert isinstance(drift, dict)
    since, noticed = (int(drift[name].removeprefix("task-")) for name in ("since", "noticed"))
    assert abs(since - BEGUN) < 30
    assert since < noticed < BEGUN + 100
    said = watch("--log", log, code=ExitCode.FAILED)
    assert f"since task {since + 1} (task-{since}), noticed at task {noticed + 1}" in said
    assert "Usual is what the policy knows" in said
    assert "--out NEW writes a policy" in said


def test_where_nobody_fell_nothing_is_written_and_the_exit_code_is_0(watch: Watch) -> None:
    said = watch("--log", watch.log(quiet()), "--out", str(watch.folder / "new.policy"))
    assert "No worker has dropped" in said
    assert "new.policy is not written: no worker has dropped" in said
    assert not (watch.folder / "new.policy").exists()


@pytest.mark.parametrize("usual", ["policy", "earlier"])
def test_every_row_is_one_line_of_a_narrow_terminal_whatever_workers_are_called(watch: Watch, usual: str) -> None:
    names = tuple(f"{name}-worker-of-a-maker-with-a-long-name" for name in FOUR)
    workers = tuple(replace(one, name=name) for one, name in zip(policy().workers, names, strict=True))
    save_policy(replace(policy(), workers=workers), watch.policy)
    log = watch.log(replace(drifting(), workers=names))
    command = ["policy", "watch", str(watch.policy), "--log", log, "--usual", usual]
    shown = CliRunner().invoke(app, command, env={"COLUMNS": "80"}).stdout.splitlines()[2:]
    table = shown[: len(FOUR) + 1]
    assert 75 < max(map(len, table)) <= 80
    assert [line.split()[0][:3] for line in table] == ["wor", "che", "mid", "goo", "dea"]
    assert [line.rstrip().endswith(("as usual", "fell")) for line in table[1:]] == [True] * len(FOUR)


def test_the_policy_that_makes_do_is_another_file_to_be_tried(watch: Watch) -> None:
    shelf, new, log = watch.folder / "shelf", watch.folder / "new.policy", watch.log(drifting())
    watch.cli("policy", "canary", str(shelf), str(watch.policy))
    said = watch("--log", log, "--out", str(new), code=ExitCode.FAILED, of=shelf)
    made, version = load_policy(new)
    assert any("good fell from" in note for note in made.about.notes)
    assert f"written: {new} (version {version})" in said
    commands = re.findall(r"shikisha (policy (?:show|canary) .*?)(?= shikisha)", said)
    assert len(commands) == 2
    for command in commands:
        watch.cli(*shlex.split(command))
    assert read_registry(shelf).shares == pytest.approx({read_registry(shelf).live: 0.9, version: 0.1})
    assert load_policy(watch.policy)[0] is not made
    assert read_registry(shelf).live == load_policy(watch.policy)[1]


def test_no_file_is_written_over(watch: Watch) -> None:
    log, before = watch.log(drifting()), watch.policy.read_bytes()
    said = watch("--log", log, "--out", str(watch.policy), code=ExitCode.CONFIG)
    assert "expected a new file: a policy is never written over another" in said
    assert watch.policy.read_bytes() == before


def test_the_dial_is_measured_again_where_the_log_it_was_learned_from_is_there(watch: Watch) -> None:
    trained, log = Path(watch.log(panel(FOUR, 600, alike=0.3), "trained")), watch.log(drifting())
    said = watch("--log", log, "--out", str(watch.folder / "stale"), code=ExitCode.FAILED)
    assert "the operating points of the new policy date from before the drop" in said
    about = replace(policy().about, log=str(trained), log_hash=log_hash(trained))
    save_policy(replace(policy(), about=about), watch.policy)
    said = watch("--log", log, "--out", str(watch.folder / "fresh"), code=ExitCode.FAILED)
    assert "measuring the operating points again" in said
    notes = load_policy(watch.folder / "fresh")[0].about.notes
    assert any("the trade-off was measured again" in note for note in notes)
    stale, fresh = (
        load_policy(watch.folder / name)[0].mix(OperatingTarget(TargetMetric.COST, 1.0)).accuracy
        for name in ("stale", "fresh")
    )
    assert fresh < stale


def ungraded(held: OutcomeMatrix) -> OutcomeMatrix:
    return replace(held, scores=np.full(held.scores.shape, np.nan))


def renamed(held: OutcomeMatrix) -> OutcomeMatrix:
    return replace(held, workers=tuple(f"{name}-2" for name in held.workers))


def same(held: OutcomeMatrix) -> OutcomeMatrix:
    return held


@pytest.mark.parametrize(
    ("change", "arguments", "code", "why"),
    [
        (ungraded, (), ExitCode.CONFIG, "none of the 240 outcomes of the policy's workers has a score: grade some"),
        (
            renamed,
            (),
            ExitCode.CONFIG,
            "none of the policy's workers has an outcome there: it knows cheap, middle, good",
        ),
        (same, ("--since", "task-99"), ExitCode.INPUT, "no task 'task-99' that counts in"),
        (same, ("--since", "task"), ExitCode.INPUT, "60 ids begin like that"),
        (same, ("--since", "task-0"), ExitCode.INPUT, "no outcome comes before it to say what is usual"),
        (same, ("--usual", "always"), ExitCode.INPUT, "--usual: expected policy or earlier, not 'always'"),
        (same, ("--journal", "runs.db"), ExitCode.INPUT, "expected --log or --journal, not both"),
        (same, ("--out", "log"), ExitCode.CONFIG, "expected a new file"),
    ],
)
def test_what_cannot_be_watched_is_said(
    watch: Watch, change: Change, arguments: tuple[str, ...], code: ExitCode, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(watch.folder)
    log = watch.log(change(panel(FOUR, 60)))
    assert why in watch("--log", log, *arguments, code=code)


def test_an_empty_log_a_missing_one_and_a_missing_journal_are_said(watch: Watch) -> None:
    log = Path(watch.log(quiet()))
    (log / "outcomes.jsonl").write_text("")
    assert "the outcomes are of no worker" in watch("--log", str(log), code=ExitCode.CONFIG)
    assert "expected tasks.parquet or tasks.jsonl there" in watch(
        "--log", str(watch.folder / "no"), code=ExitCode.CONFIG
    )
    assert "there is no journal at" in watch("--journal", watch.journal, code=ExitCode.INPUT)


def test_workers_that_the_policy_does_not_know_are_named_and_not_watched(watch: Watch) -> None:
    held = quiet()
    other = replace(held, workers=("cheap", "middle", "other", "dear"))
    told = watch.json("--log", watch.log(other))
    assert rows(told)["good"]["state"] == "none graded"
    assert "other" not in rows(told)
    assert told["notes"] == ["not watched, because they are not in the policy: other"]


def test_where_few_outcomes_are_graded_that_is_said(watch: Watch) -> None:
    said = watch("--log", watch.log(quiet().at(np.arange(60))), "--usual", "earlier")
    assert "too few" in said
    assert f"fewer than {FEW_OUTCOMES} graded outcomes" in said
    assert "too few outcomes have a score" in said
    assert len(re.findall(r"– +– too few", said)) == len(FOUR)


def test_what_was_before_a_task_tells_what_is_usual(watch: Watch) -> None:
    log = watch.log(drifting())
    told = watch.json("--log", log, "--since", "task-300", code=ExitCode.FAILED)
    assert (told["usual"], rows(told)["good"]["early"]) == ("earlier", 300)


async def perform(journal_file: str, spec: str, answers: list[str]) -> None:
    """Keep a graded run by ann for every answer of hers (42 is right), all of the same task."""
    async with open_journal(journal_file) as journal:
        for answer in answers:
            task = Task("Six times seven?", id="sums/1")
            await keep(journal, Kept(pool_of(ann=answer, bob="42"), task=task, conductor=policy_conductor(spec)))


def test_a_journals_runs_are_watched_one_by_one_though_their_task_is_the_same(watch: Watch) -> None:
    save_policy(asking("ann"), watch.policy)
    answers = ["42"] * 90 + ["41"] * 40
    asyncio.run(perform(watch.journal, str(watch.policy), answers))
    told = watch.json("--journal", watch.journal, code=ExitCode.FAILED)
    found = rows(told)["ann"]
    assert (told["rows"], told["usual"], told["fallen"], found["early"]) == (130, "earlier", ["ann"], 65)
    assert (found["found"], found["outcomes"]) == (0.0, 40)
    assert rows(told)["bob"]["state"] == "none graded"
    drift = found["drift"]
    assert isinstance(drift, dict)
    assert drift["since"] in watch.cli("runs", "--journal", watch.journal, "--limit", "60")
    again = watch.json("--journal", watch.journal, "--since", drift["since"], code=ExitCode.FAILED)
    assert rows(again)["ann"]["early"] == 90


def test_only_runs_that_the_policy_began_at_its_present_setting_count(watch: Watch) -> None:
    save_policy(asking("ann"), watch.policy)
    save_policy(asking("ann", note="another"), watch.folder / "other.policy")
    for spec, count in (("other.policy", 3), ("our.policy?rung=cascade", 4), ("our.policy", 1)):
        asyncio.run(perform(watch.journal, str(watch.folder / spec), ["42"] * count))
    told = watch.json("--journal", watch.journal)
    assert told["rows"] == 1
    assert told["notes"] == [
        "left out: 3 runs by other conductors or versions",
        f"left out: 4 runs by it, but not as policy:{watch.policy}",
        "too few outcomes have a score",
    ]
    save_policy(asking("bob", "ann"), watch.policy)
    told = watch.json("--journal", watch.journal)
    assert told["rows"] == 8
    assert "no run was started by policy" in str(told["notes"])


def asked_for_what_is_hard(held: OutcomeMatrix) -> OutcomeMatrix:
    """The same traffic as a policy leaves it: the good worker is asked where cheaper ones could not agree."""
    point = policy().rung("policy").dial.for_cost(0.4).high
    return held.without_outcomes(~replay(policy().parts[point.part], point.setting, held).asked)


def test_earlier_outcomes_tell_what_is_usual_where_a_worker_is_asked_for_what_is_hard() -> None:
    held = asked_for_what_is_hard(panel(FOUR, 4000, alike=0.3, seed=7))
    assert [drift.worker for drift in drifted_workers(assess_workers(policy(), held, ExpectationSource.POLICY))] == [
        "good"
    ]
    found = assess_workers(policy(), held, ExpectationSource.EARLIER)
    assert not drifted_workers(found)
    assert found[GOOD].early == BASELINE_OUTCOMES


def test_a_fall_is_noticed_in_what_a_policy_asks_for() -> None:
    held = asked_for_what_is_hard(falling(4000, 2000, 0.7))
    (drift,) = drifted_workers(assess_workers(policy(), held, ExpectationSource.EARLIER))
    assert drift.worker == "good"
    assert 1900 < int(drift.since.removeprefix("task-")) < 2100


def test_a_worker_that_is_not_asked_any_more_raises_no_alarm() -> None:
    shunned = replace(policy().workers[GOOD], shunned="it fell")
    workers = tuple(shunned if place == GOOD else worker for place, worker in enumerate(policy().workers))
    found = assess_workers(replace(policy(), workers=workers), drifting(), ExpectationSource.POLICY)
    assert (found[GOOD].state, drifted_workers(found)) == (WorkerState.SHUNNED, ())


@pytest.mark.parametrize("told", [ExpectationSource.POLICY, ExpectationSource.EARLIER])
def test_tasks_of_types_of_which_nothing_is_known_count_for_nothing(told: ExpectationSource) -> None:
    held = quiet()
    types = np.where(np.arange(TASKS) >= 700, -1, held.batch.types)
    hard = np.where(types[:, None] == -1, 0.0, held.scores)
    late = replace(held, scores=hard, batch=replace(held.batch, types=types))
    found = assess_workers(policy(), late, told)
    assert not drifted_workers(found)
    assert {standing.aside for standing in found} == {200}


def test_where_no_task_has_a_type_all_count() -> None:
    plain: Policy = replace(policy(), types=untyped(quiet()).types)
    found = assess_workers(plain, untyped(quiet()), ExpectationSource.EARLIER)
    assert {standing.aside for standing in found} == {0}
    assert not drifted_workers(found)
