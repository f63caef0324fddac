"""Policies in use by the command line: shelf, trial, promote; and the whole loop: run, grade, compare, promote."""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest
from importing import lines
from shelves import POOL, asking
from test_cli import Cli

from shikisha.cli.exit_codes import ExitCode
from shikisha.conductors.learned_policy import registry_conductor
from shikisha.config.policy_builder import LearnRequest, learn_policy
from shikisha.engine.pool import Member, Pool
from shikisha.evals.graders import Grade
from shikisha.evals.reward import grade_events
from shikisha.evals.tasksets.recorded import RecordedGrader
from shikisha.journal import open_journal
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.routing.policy_data import Policy
from shikisha.routing.policy_file import save_policy
from shikisha.routing.policy_registry import RegistryAction, read_registry
from shikisha.workers.replay import ReplayWorker, replay_card
from support import engine

SKILL = {"ann": 0.6, "bob": 0.9, "cyd": 0.6}


@dataclass(frozen=True)
class House:
    """A folder with recorded workers, a shelf, a journal, and the command line."""

    cli: Cli
    folder: Path

    @property
    def shelf(self) -> Path:
        return self.folder / "shelf"

    @property
    def journal(self) -> str:
        return str(self.folder / "runs.db")

    def put(self, policy: Policy, name: str) -> str:
        """Add a policy to the registry through the command line; return its version."""
        save_policy(policy, self.folder / name)
        return str(self.json("canary", str(self.folder / name))["added"])

    def __call__(self, command: str, *arguments: str, code: int = 0) -> str:
        """A command on the shelf; what it says on either stream."""
        said = self.cli("policy", command, str(self.shelf), *arguments, code=code)
        return said + self.cli.said

    def json(self, command: str, *arguments: str, code: int = 0) -> dict[str, object]:
        """The same with --json."""
        return self.cli.json("policy", command, str(self.shelf), *arguments, code=code)

    def perform(self, log: OutcomeLog, tasks: Sequence[str], *, judged: bool = False, name: str = "") -> None:
        """Perform these tasks by the shelf with recorded workers, journaled, each answer graded by the record."""
        pool = Pool([Member(replay_card(log, name), ReplayWorker(log, name)) for name in log.workers])

        async def main() -> None:
            async with open_journal(self.journal) as journal:
                runs = engine(journal)

                async def one(task_id: str) -> None:
                    run = await runs.run(log.task(task_id), pool, registry_conductor(str(self.shelf), name))
                    found = await RecordedGrader(log, task_id).grade(run.answer or "")
                    grade = Grade("judge" if judged else "choice", found.mark, found.score, found.found, judged=judged)
                    journal.add(grade_events(run.id, grade, None)[0])

                for start in range(0, len(tasks), 50):
                    await asyncio.gather(*map(one, tasks[start : start + 50]))

        asyncio.run(main())


@pytest.fixture
def service(tmp_path: Path) -> House:
    return House(Cli(tmp_path), tmp_path)


def chance(*parts: object) -> float:
    """A number in [0, 1) that hangs on these."""
    return int.from_bytes(sha256(repr(parts).encode()).digest()[:6]) / 2**48


def recorded(folder: Path, tasks: int) -> OutcomeLog:
    """A log in which every worker chose a letter for every task, and is right as often as its SKILL says."""
    folder.mkdir()
    made, found = [], []
    for number in range(tasks):
        right = "ABC"[int(3 * chance("right", number))]
        prompt = f"Question {number}: which one?\nA. this\nB. that\nC. neither"
        made.append(
            {"task_id": f"t{number}", "domain": "which", "prompt": prompt, "answer": right, "answer_kind": "choice"}
        )
        for name in POOL:
            is_right = chance(name, number) < SKILL[name]
            answer = right if is_right else "ABC"[("ABC".index(right) + 1) % 3]
            row = {
                "task_id": f"t{number}",
                "worker": name,
                "answer": answer,
                "score": float(is_right),
                "cost_usd": 0.001,
            }
            found.append(row | {"input_tokens": 10, "output_tokens": 5, "cost_kind": "recorded"})
    lines(folder / "tasks.jsonl", made)
    lines(folder / "outcomes.jsonl", found)
    return OutcomeLog.read(folder)


def test_policies_are_put_on_a_shelf_and_get_their_parts(service: House) -> None:
    first, second, third = (service.put(asking(name), name) for name in POOL)
    assert f"live    {first}  acts for all tasks (ann)" in service("show")
    service("canary", third, "--share", "0", "--why", "to look at")
    said = service("canary", second[:6], "--share", "0.1")
    assert said.splitlines() == [
        f"live    {first}  acts for 0.9 of the tasks (ann)",
        f"canary  {second}  acts for 0.1 of the tasks (bob)",
        f"shadow  {third}  decides without acting (cyd)",
    ]
    service("canary", "cyd", "--off")
    service("canary", "--off", "--why", "enough")
    assert [entry.deed for entry in read_registry(service.shelf).history][-4:] == [
        RegistryAction.SHADOWED,
        RegistryAction.TRIED,
        RegistryAction.UNSHADOWED,
        RegistryAction.STOPPED,
    ]
    history = service("show").splitlines()
    assert any(line.endswith(f"{third} shadowed: to look at") for line in history)
    assert any(line.endswith(f"{second} tried for 10% of the tasks") for line in history)
    assert history[-1].endswith("stopped: enough")
    assert service.json("show")["live"] == first


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("canary", "--share", "0.1"), ExitCode.INPUT, "expected a POLICY"),
        (("canary", "bob"), ExitCode.INPUT, "expected --share X, or --off"),
        (("canary", "bob", "--share", "1"), ExitCode.CONFIG, "between 0 and 1"),
        (("canary", "nobody", "--share", "0.1"), ExitCode.CONFIG, "unknown registered policy 'nobody'"),
        (("canary", "ann", "--share", "0"), ExitCode.CONFIG, "already acts"),
        (("promote", "--back"), ExitCode.CONFIG, "nothing to roll back to"),
        (("promote", "ann"), ExitCode.CONFIG, "is already live"),
        (("promote", "bob", "--anyway"), ExitCode.INPUT, "--anyway needs --why TEXT"),
        (("canary", "nothing"), ExitCode.INPUT, "nothing is no file that could be added"),
        (("promote",), ExitCode.INPUT, "there is no journal at"),
    ],
)
def test_what_cannot_be_done_is_said(service: House, arguments: tuple[str, ...], code: ExitCode, why: str) -> None:
    for name in ("ann", "bob"):
        service.put(asking(name), name)
    command, *rest = arguments
    journal = ["--journal", service.journal] if arguments == ("promote",) else []
    before = read_registry(service.shelf)
    assert why in service(command, *rest, *journal, code=code)
    assert read_registry(service.shelf) == before


def test_a_shelf_that_is_not_there_is_no_shelf(service: House) -> None:
    assert "no policy registry" in service("promote", "--back", code=ExitCode.CONFIG)
    assert "No such file" in service("show", code=ExitCode.CONFIG)


def test_only_a_canary_is_promoted_unless_somebody_says_why(service: House) -> None:
    first, second = (service.put(asking(name), name) for name in ("ann", "bob"))
    said = service("promote", "bob", code=ExitCode.FAILED)
    assert "it is not a canary, so there are no outcomes to judge it by" in said
    assert f"shikisha policy canary {service.shelf} {second} --share 0.1" in said
    assert f"{second} is live" in service("promote", "bob", "--anyway", "--why", "the other is broken")
    last = read_registry(service.shelf).history[-1]
    assert (last.deed, last.forced, last.by.why) == (RegistryAction.PROMOTED, True, "the other is broken")
    assert "promoted against the trial: the other is broken" in service("show")
    assert service.json("promote", "--back", "--why", "no")["live"] == first


def test_a_canary_with_few_outcomes_is_not_promoted_and_it_is_said_how_many_are_missing(service: House) -> None:
    log = recorded(service.folder / "log", 40)
    for name in ("ann", "bob"):
        service.put(asking(name), name)
    service("canary", "bob", "--share", "0.3")
    service.perform(log, log.task_ids, name="router")  # as a configuration may call it
    few = service.json("promote", "bob", "--journal", service.journal, code=ExitCode.FAILED)
    assert few["promoted"] is False
    assert any("at least 50 are needed" in str(reason) for reason in few["reasons"])  # type: ignore[attr-defined]
    assert isinstance(few["missing"], int)
    assert few["missing"] > 0
    said = service("promote", "bob", "--journal", service.journal, code=ExitCode.FAILED)
    (count,) = re.findall(r"- (\d+) tasks of the canary were graded by checks or people: at least 50 are needed", said)
    assert int(count) > 0
    assert "not to be promoted yet" in service("promote", "--journal", service.journal)
    assert service.json("canary", "--off")["canary"] is None
    assert "there is no canary" in service("promote", "--journal", service.journal)


@pytest.mark.slow
def test_a_better_canary_is_tried_promoted_rolled_back_and_learned_from(service: House) -> None:
    log = recorded(service.folder / "log", 700)
    live, canary, shadow = (service.put(asking(*names), names[-1]) for names in (("ann",), ("bob",), ("ann", "cyd")))
    service("canary", "bob", "--share", "0.3")
    service("canary", "cyd", "--share", "0")
    service.perform(log, log.task_ids)

    told = service.json("promote", "--journal", service.journal)
    trial = told["trial"]
    assert isinstance(trial, dict)
    assert trial["live"]["runs"] + trial["canary"]["runs"] == 700
    assert trial["canary"]["tasks"] == pytest.approx(210, abs=40)
    assert (trial["differing"]["mean"], trial["counts"]) == (1.0, ["executed", "person"])
    assert trial["canary"]["right"]["mean"] == pytest.approx(0.9, abs=0.08)
    assert trial["right"]["low"] < 0.3 < trial["right"]["high"]
    shown = service("promote", "--journal", service.journal)
    assert f"harm is excluded: shikisha policy promote {service.shelf} {canary}" in shown
    assert f"shadow {shadow}: does as the live one on 0.0% of" in shown

    assert f"{canary} is live" in service("promote", "bob", "--journal", service.journal)
    assert "points (" in read_registry(service.shelf).history[-1].by.why
    service.perform(log, log.task_ids[:10])
    assert (service.json("promote", "--back", "--why", "as a drill")["live"], read_registry(service.shelf).canary) == (
        live,
        None,
    )

    policy = learn_policy(LearnRequest(journal=service.journal), lambda _: None)
    scores = {worker.name: worker.score for worker in policy.workers}
    assert scores == pytest.approx({"ann": 0.6, "bob": 0.9}, abs=0.1)
    assert service.put(policy, "learned") in service("show")


@pytest.mark.slow
def test_a_judges_word_alone_promotes_nobody_and_a_policy_learned_from_it_says_so(service: House) -> None:
    log = recorded(service.folder / "log", 400)
    for name in ("ann", "bob"):
        service.put(asking(name), name)
    service("canary", "bob", "--share", "0.5")
    service.perform(log, log.task_ids, judged=True)
    said = service("promote", "bob", "--journal", service.journal, code=ExitCode.FAILED)
    assert "have a language model's word alone, which does not count" in said
    assert "a language model: +" in service("promote", "--journal", service.journal)
    assert any(
        "100% of the scores are" in note
        for note in learn_policy(LearnRequest(journal=service.journal), print).about.notes
    )
    service("promote", "bob", "--journal", service.journal, "--trust-judge")
    assert json.loads(service("show", "--json"))["live"] == read_registry(service.shelf).policies[1].version


def test_a_file_is_added_and_tried_in_one_step_or_not_at_all(service: House) -> None:
    for name in ("ann", "bob"):
        save_policy(asking(name), service.folder / name)
    assert "is live: the canary must be another" in service(
        "canary", str(service.folder / "ann"), "--share", "0.1", code=ExitCode.CONFIG
    )
    assert "No such file" in service("show", code=ExitCode.CONFIG)
    service("canary", str(service.folder / "ann"))
    service("canary", str(service.folder / "bob"), "--share", "0.1")
    held = read_registry(service.shelf)
    assert held.canary is not None
    assert (held.live, held.canary.version) == (held.resolve("ann"), held.resolve("bob"))
