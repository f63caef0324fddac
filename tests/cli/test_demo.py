"""The demo: real tools and a real model over public questions, the best single worker next to the conducted pool."""

import json
from importlib.resources import files
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shikisha.cli import app, demo
from shikisha.cli.demo import DemoConductor, read_questions
from shikisha.config.facade import Shikisha
from shikisha.workers.local_model import has_runtime
from shikisha.workers.model_files import known_models, models_folder

HERE = has_runtime() and (models_folder() / known_models()[demo.MODEL].file).is_file()
EXACT = ("arithmetic", "booleans", "sorting", "capitals")


class Silent:
    """A worker in the place of the model, which no exact question may need."""

    name = "SmolLM2"

    async def perform(self, request: object) -> object:
        raise AssertionError(request)


def test_real_tools_answer_every_exact_question_by_the_rule() -> None:
    tables = [each for each in demo._WORKERS if each["name"] != "SmolLM2"]
    pool = Shikisha([Silent(), *tables], conductor=DemoConductor())  # type: ignore[list-item]
    with pool:
        for question in read_questions():
            if question.family in EXACT:
                answer = pool.run(question.prompt)
                assert question.graded(str(answer.answer)), question
                assert answer.workers != ("SmolLM2",)


def test_questions_are_graded_by_whole_words_of_every_part() -> None:
    questions = list(read_questions())
    two = next(each for each in questions if each.family == "two parts")
    assert two.prompt.startswith("Answer both. First: ")
    assert two.graded("It is 123, and 27 amendments.")
    assert not two.graded("It is 123.")
    assert not two.graded("It is -123 and 27")
    assert not two.graded("It is 1234 and 27")
    (false,) = [each for each in questions if "Cazorla" in each.prompt]
    assert not false.graded("Nothing is known.")


def test_without_the_model_the_demo_says_how_to_get_it(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["demo"], env={"XDG_CACHE_HOME": str(tmp_path)})
    assert refused.exit_code == 3
    assert "models pull smollm2-135m" in refused.stderr or "shikisha[local]" in refused.stderr


@pytest.mark.skipif(not HERE, reason="extra local, or shikisha models pull smollm2-135m, is missing")
@pytest.mark.full
def test_every_row_answers_the_same_questions_and_the_pool_has_more_right_than_its_best_worker() -> None:
    shown = CliRunner().invoke(app, ["demo", "--tasks", "5", "--json"])
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.stdout)
    assert [row["worker"] for row in told["rows"]] == ["conducted", *demo._NAMES]
    assert all(sum(of for _, of in row["families"].values()) == told["questions"] == 5 for row in told["rows"])
    conducted, *alone = [row["right"] for row in told["rows"]]
    assert conducted > max(alone)


def test_the_questions_ship_with_their_licenses() -> None:
    text = (files("shikisha.cli") / "demo_data" / "questions.toml").read_text()
    assert "MIT License" in text
    assert "public domain" in text
