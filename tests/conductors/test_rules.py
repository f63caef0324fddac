"""Rules: the first that fits decides, and a wrong file says where it is wrong."""

from pathlib import Path

import pytest

from shikisha.conductors.rules import guess_language, load_rules
from shikisha.core.errors import ConfigError, Fault, FaultKind, PlanError, UnknownName
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Result, RoundResult
from shikisha.core.task import Task
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.worker import Card

CARDS = (Card("cheap", kind="chat"), Card("calculator", kind="python"), Card("writer", kind="chat"))
NAMES = [card.name for card in CARDS]

TRIAGE = """
[[rule]]
name = "sums"
domain = ["math", "gsm"]
worker = "calculator"

[[rule]]
keyword = ["poem", "詩"]
label = "fun"
worker = "writer"

[[rule]]
language = "de"
topology = "vote?n=2"

[[rule]]
longer_than = 100
shorter_than = 200
topology = "cascade?workers=cheap,writer"
"""
CATCH_ALL = '\n[[rule]]\ntopology = "single?worker=cheap"\n'


async def propose(tmp_path: Path, text: str, task: Task, *rounds: RoundResult) -> Proposal:
    path = tmp_path / "triage.toml"
    path.write_text(text)
    return await load_rules(path, NAMES).propose(Situation(task, CARDS, rounds))


@pytest.mark.parametrize(
    ("task", "workers", "why"),
    [
        (Task("2 + 2", domain="math"), ["calculator"], "rule 0 'sums' (domain 'math')"),
        (Task("A Poem, please", labels=("fun",)), ["writer"], "rule 1 (label 'fun', keyword 'poem')"),
        (Task("春の詩を", labels=("x", "fun")), ["writer"], "rule 1 (label 'fun', keyword '詩')"),
        (Task("Welche Farbe hat der Himmel und warum?"), ["cheap", "writer", "cheap"], "rule 2 (language 'de')"),
        (Task("q", context="x" * 120), ["cheap"], "rule 3 (121 characters)"),
        (Task("A Poem, please"), ["cheap"], "rule 4 (fits everything)"),
        (Task("two poems", labels=("fun",)), ["cheap"], "rule 4"),
        (Task("q", context="x" * 199), ["cheap"], "rule 4"),
        (Task("2 + 2", domain="Math"), ["cheap"], "rule 4"),
    ],
)
async def test_the_first_rule_that_fits_decides(tmp_path: Path, task: Task, workers: list[str], why: str) -> None:
    proposal = await propose(tmp_path, TRIAGE + CATCH_ALL, task)
    assert [NAMES[step.worker] for step in proposal.plan.steps] == workers
    assert proposal.note.startswith(why)


async def test_the_same_rule_decides_in_every_round(tmp_path: Path) -> None:
    silent = RoundResult(Plan((Step("go", 0),)), (Result("cheap", None, Fault(FaultKind.TIMEOUT)),))
    proposal = await propose(tmp_path, TRIAGE, Task("q", context="x" * 120), silent)
    assert [NAMES[step.worker] for step in proposal.plan.steps] == ["writer"]


async def test_a_task_that_no_rule_fits_has_no_plan(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no rule fits this task"):
        await propose(tmp_path, TRIAGE, Task("hello"))


async def test_invariant_1_a_rule_for_a_worker_outside_the_pool_calls_nobody(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text('[[rule]]\nworker = "stranger"')
    with pytest.raises(UnknownName, match="stranger"):
        await load_rules(path).propose(Situation(Task("q"), CARDS))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[[rule]]\nkeywrod = 'a'\nworker = 'cheap'",
            r"r.toml: rule\[0\].keywrod: unknown key; .*did you mean 'keyword'",
        ),
        (
            "[[rule]]\nworker = 'cheep'",
            r"r.toml: rule\[0\].worker: unknown worker 'cheep': known are calculator, cheap",
        ),
        (
            "[[rule]]\ntopology = 'voting'",
            r"r.toml: rule\[0\].topology: unknown topology 'voting': .*did you mean 'vote'",
        ),
        ("[[rule]]\ndomain = 'x'", r"r.toml: rule\[0\]: expected either 'worker' or 'topology'"),
        ("[[rule]]\nlonger_than = 'x'\nworker = 'cheap'", r"r.toml: rule\[0\].longer_than: expected a whole number"),
        ("[[rule]]\nkeyword = ['']\nworker = 'cheap'", r"r.toml: rule\[0\].keyword\[0\]: .*at least 1 character"),
        ("rule = []", "r.toml: rule: .*at least 1 item"),
        ("", "r.toml: rule: is missing"),
        ("[[rule]\n", "r.toml: not TOML: .*line 1"),
        (CATCH_ALL + TRIAGE, "r.toml: rule 0 has no condition, so no later rule is ever reached"),
    ],
)
def test_a_wrong_file_names_file_rule_and_key(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "r.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_rules(path, NAMES)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: cannot be read: No such file"):
        load_rules(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("What is the capital of the country that borders both of these?", "en"),
        ("Welche Stadt ist die Hauptstadt und wie viele wohnen dort?", "de"),
        ("Quelle est la ville la plus grande dans ce pays ?", "fr"),
        ("¿Cuál es la ciudad más grande y por qué no está en el norte?", "es"),
        ("Qual é a maior cidade e por que não está no norte?", "pt"),
        ("Qual è la città più grande e perché non è nel nord?", "it"),
        ("Wat is de hoofdstad van het land en hoe groot is het?", "nl"),
        ("Vad är huvudstaden och hur stor är den?", "sv"),
        ("日本の首都はどこですか", "ja"),
        ("中国的首都是哪里", "zh"),
        ("한국의 수도는 어디입니까", "ko"),
        ("Какая столица у этой страны?", "ru"),
        ("Ποια είναι η πρωτεύουσα;", "el"),
        ("ما هي عاصمة هذا البلد؟", "ar"),
        ("2 + 2 = ?", ""),
        ("x = foo(bar)", ""),
        ("Berlin", ""),
        ("", ""),
    ],
)
def test_a_language_is_guessed_or_left_open(text: str, language: str) -> None:
    assert guess_language(text) == language
