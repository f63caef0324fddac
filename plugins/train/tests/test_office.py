"""The office: its questions are solvable, its workers err as computed, and nothing that teaches can read the truth."""

import ast
import os
import random
import re
import subprocess
import sys
from collections import Counter, defaultdict
from difflib import SequenceMatcher
from pathlib import Path

import pytest

import shikisha_train
from shikisha import Caps, Engine
from shikisha.engine.recorder import MemoryRecorder
from shikisha_train.office import office_conductors as play
from shikisha_train.office.best_plan import (
    best_plan,
    best_single,
    check_success,
    part_treatments,
)
from shikisha_train.office.cards import card_authors, card_texts
from shikisha_train.office.company import OFFICE_OPERATIONS, WorkKind, read_value, write_value, wrong_value
from shikisha_train.office.office_tasks import (
    OFFICE,
    QUIET_OFFICE,
    OfficeDistribution,
    OfficeTask,
    draw_evidence,
    office_task,
    office_tasks,
)
from shikisha_train.office.part_plans import WORDINGS, PartPolicy, TreatmentKind, write_subtask
from shikisha_train.office.questions import (
    AuthorSplit,
    OfficeNoise,
    all_sentences,
    draw_question,
    office_authors,
    office_wordings,
    parts_in,
)
from shikisha_train.office.simulated_staff import features_of
from shikisha_train.office.staff import CardHonesty

LOUD = OfficeNoise(1, 1, 1, 1)
CAPS = Caps(steps=40, rounds=12)


async def answers(items: list[OfficeTask], policy: PartPolicy | None = None) -> list[bool]:
    engine, right = Engine(MemoryRecorder()), []
    for item in items:
        conductor = play.office_conductor(item, policy or play.truth_policy(item))
        run = await engine.run(item.task, item.pool, conductor, CAPS, run_id=item.task.id)
        right.append(item.grade(run.answer))
    return right


def test_a_task_is_a_function_of_its_place() -> None:
    one, two = (office_task(AuthorSplit.TRAIN, 3, 7) for _ in range(2))
    assert (one.task, one.question, one.crew.cards, one.value) == (two.task, two.question, two.crew.cards, two.value)
    assert one.task != office_task(AuthorSplit.TRAIN, 4, 7).task


@pytest.mark.parametrize("count", range(1, 7))
def test_a_question_has_so_many_parts_on_its_path_and_quotes_each(count: int) -> None:
    rng = random.Random(count)
    for _ in range(20):
        question = draw_question(count, rng, office_authors(AuthorSplit.TRAIN), LOUD)
        assert len(question.path) == count
        assert question.answer == write_value(question.solve()[question.path[-1]])
        assert all(sentence in question.text for sentence in question.sentences)
        assert [
            parts_in(write_subtask(play.office_parts(question), (part,)), question) for part in range(len(question))
        ] == [(part,) for part in range(len(question))] or len(set(question.sentences)) < len(question)


def test_noise_changes_no_entity_number_or_date() -> None:
    for seed in range(60):
        question = draw_question(3, random.Random(seed), office_authors(AuthorSplit.HELDOUT), LOUD, conditional=0)
        for part in question.parts:
            named = [write_value(given) for given in part.inputs if not hasattr(given, "part")]
            assert all(text in question.text for text in [*named, *map(str, part.constants)])


def test_authors_are_disjoint_and_every_operation_has_its_own_sentences() -> None:
    for authors in (office_authors, card_authors):
        assert max(Counter(author for split in AuthorSplit for author in authors(split)).values()) == 1
    found = [text for split in AuthorSplit for _, text in all_sentences(split)]
    assert [text for text, times in Counter(found).items() if times > 1] == []
    for name, operation in OFFICE_OPERATIONS.items():
        for author, texts in office_wordings()[name].items():
            for text in texts:
                assert ("{x}" in text) != operation.joins, (name, author, text)
                assert ("{c}" in text) == bool(operation.constants), (name, author, text)
    cards = [text for by in card_texts().values() for texts in by.values() for text in texts]
    assert len(cards) == len(set(cards))


def test_every_kind_has_enough_wordings_in_each_split() -> None:
    of_kind = Counter[tuple[WorkKind, AuthorSplit]]()
    for split in AuthorSplit:
        of_kind.update((OFFICE_OPERATIONS[name].kind, split) for name, _ in all_sentences(split))
    for kind in WorkKind:
        assert of_kind[kind, AuthorSplit.TRAIN] >= 150
        assert of_kind[kind, AuthorSplit.HELDOUT] >= 75
        assert of_kind[kind, AuthorSplit.FRESH] >= 30
        assert sum(map(len, card_texts()[kind].values())) >= 150


@pytest.mark.parametrize("what", ["questions", "cards"])
def test_no_wording_is_another_one_with_a_word_changed(what: str) -> None:
    """What a held-out author wrote must not be what a training author wrote, or held-out words would be known words."""
    tables = {"questions": {name: office_wordings()[name] for name in OFFICE_OPERATIONS}, "cards": card_texts()}
    authors = office_authors if what == "questions" else card_authors
    split = {author: each for each in AuthorSplit for author in authors(each)}
    by_author = [(author, text) for by in tables[what].values() for author, texts in by.items() for text in texts]
    said = [text for _, text in by_author]
    words = [re.findall(r"[a-z']+", re.sub(r"\{.\}", " ", text.lower())) for text in said]
    by_word = defaultdict[str, list[int]](list)
    for place, found in enumerate(words):
        for word in set(found):
            by_word[word].append(place)
    alike = []
    for place, found in enumerate(words):
        shared = Counter(other for word in set(found) for other in by_word[word] if other < place)
        alike += [
            (said[place], said[other])
            for other, count in shared.items()
            if split[by_author[place][0]] is not split[by_author[other][0]]
            and min(len(found), len(words[other])) >= 4
            and count >= 0.75 * max(len(set(found)), len(set(words[other])))
            and SequenceMatcher(None, found, words[other], autojunk=False).ratio() >= 0.84
        ]
    assert alike == []


def test_a_wrong_value_is_another_of_its_kind() -> None:
    for seed in range(200):
        question = draw_question(1 + seed % 5, random.Random(seed), office_authors(AuthorSplit.TRAIN))
        for value in question.solve():
            wrong = wrong_value(value, seed)
            assert wrong != value
            assert type(wrong) is type(value)
            assert read_value(write_value(wrong)) == wrong


def test_anybodys_words_for_a_feature_count_and_the_question_s_own_do_not() -> None:
    question = draw_question(1, random.Random(5), ("hurried",))
    assert features_of(write_subtask(play.office_parts(question), (0,)), question) == frozenset()
    assert features_of(write_subtask(play.office_parts(question), (0,), frozenset(WORDINGS)), question) == frozenset(
        WORDINGS
    )
    said = f"{question.sentences[0]} Just the number, please, e.g. 12, and double-check it."
    assert {feature.value for feature in features_of(said, question)} == {"format", "example", "check"}


def test_cards_lie_as_often_as_they_should() -> None:
    items = list(office_tasks(AuthorSplit.TRAIN, 1, count=300))
    honesty = Counter(how for item in items for how in item.crew.honesty)
    total = sum(honesty.values())
    for how, share in OFFICE.crew.honesty.items():
        assert abs(honesty[how] / total - share) < 0.05
    for item in items[:50]:
        for member, card, how in zip(item.crew.members, item.crew.cards, item.crew.honesty, strict=True):
            assert member.name not in card
            assert (card == "") == (how is CardHonesty.BLANK)


def test_the_chance_of_a_vote_is_that_of_its_draws() -> None:
    crew = office_task(AuthorSplit.TRAIN, 2, 3).crew
    for treatment in part_treatments(crew, WorkKind.POLICIES):
        if treatment.kind is not TreatmentKind.VOTE:
            continue
        rng, right, tries = random.Random(1), 0, 6_000
        members = [crew.members[at] for at in treatment.workers]
        for _ in range(tries):
            luck = {member.family: rng.random() for member in members}
            said = []
            for member in members:
                knows = luck[member.family] < member.knows(WorkKind.POLICIES)
                steady = rng.random() < member.steady(WorkKind.POLICIES)
                said.append("right" if knows and steady else str(rng.random()) if knows else member.family)
            top = max(map(said.count, said))
            right += next(one for one in said if said.count(one) == top) == "right"
        assert abs(right / tries - treatment.success) < 4 * 0.5 / tries**0.5


def test_a_check_by_the_same_ignorant_family_finds_nothing_it_can_mend() -> None:
    crew = office_task(AuthorSplit.TRAIN, 2, 4).crew
    first = crew.members[0]
    alone = first.levels[WorkKind.POLICIES]
    assert check_success(first, first, WorkKind.POLICIES) < alone + (1 - alone) * 0.3


@pytest.mark.parametrize(
    "distribution",
    [
        OfficeDistribution(parts=(1.0,)),
        OfficeDistribution(parts=(0.0, 1.0), conditional=1.0),
        OfficeDistribution(parts=(0.0, 0.0, 1.0), conditional=0.0, noise=LOUD),
    ],
)
async def test_the_engine_reaches_the_computed_optimum(distribution: OfficeDistribution) -> None:
    items = list(office_tasks(AuthorSplit.TRAIN, 11, distribution, count=80))
    chances = [best_plan(item).success for item in items]
    spread = sum(chance * (1 - chance) for chance in chances) ** 0.5
    assert abs(sum(await answers(items)) - sum(chances)) < 4 * spread


def test_the_optimum_is_no_worse_than_any_simpler_class() -> None:
    for item in office_tasks(AuthorSplit.HELDOUT, 5, count=12):
        best = best_plan(item).value(item.value)
        assert best >= best_single(item).value(item.value) - 1e-9
        for kind in TreatmentKind:
            kinds = frozenset({TreatmentKind.CALL, kind})
            assert best >= best_plan(item, kinds=kinds).value(item.value) - 1e-9


def test_evidence_tells_levels_and_wants_in_the_long_run() -> None:
    item = office_task(AuthorSplit.TRAIN, 1, 1, QUIET_OFFICE)
    evidence = draw_evidence(item.crew, 6_000, random.Random(0))
    for at, member in enumerate(item.crew.members):
        strong = max(member.levels, key=lambda kind: member.levels[kind])
        assert max(member.levels, key=lambda kind: evidence.mean(at, kind)) is strong
        if member.levels[strong] > 0.9:
            assert play.learned_features(evidence, at) >= member.wants


def test_nothing_that_teaches_can_read_what_workers_can_really_do() -> None:
    """Only the office itself may import its truth; lessons, encoders and conductors live elsewhere."""
    source = Path(shikisha_train.__file__).parent
    truth = {"staff", "best_plan", "simulated_staff", "office_tasks", "office_conductors"}
    for path in source.rglob("*.py"):
        text = path.read_text("utf-8")
        if path.parent.name == "office" or "shikisha_train.office" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shikisha_train.office"):
                names = {(node.module or "").rpartition(".")[2], *(alias.name for alias in node.names)}
                assert not names & truth, f"{path}: {sorted(names & truth)}"


def test_a_task_is_the_same_in_every_process() -> None:
    program = (
        "from shikisha_train.office.office_tasks import office_tasks\n"
        "from shikisha_train.office.questions import AuthorSplit\n"
        "print([(item.task.prompt, item.crew.cards) for item in office_tasks(AuthorSplit.TRAIN, 1, count=12)])"
    )
    said = {
        subprocess.run(  # noqa: S603 - our own
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in "12"
    }
    assert len(said) == 1
