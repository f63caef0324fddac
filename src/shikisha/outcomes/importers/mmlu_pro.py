"""MMLU-Pro (TIGER-AI-Lab/MMLU-Pro) `eval_results`: a JSON file a model, as it is or zipped.

An entry has `question_id`, `question`, `options`, `answer` (the right letter), `category`, `pred` (the letter that was
extracted; null: none was, though some files have a random letter there) and the model's text as `model_outputs`
or `generated_text`. A model's name comes from the file's: `model_outputs_NAME_5shots.json`; `CATEGORY_result.json`, as
the evaluation script leaves them, are named for their folder. An answer is right when `pred` is `answer`; where nothing
was extracted the score is 0. Some questions were corrected between the published files: then there are two tasks.
Deliberately absent: the five examples that were shown before each question.
"""

import re
from pathlib import Path

from shikisha.outcomes.importers.source_files import SourceRow, Sources, format_options, read_source_rows
from shikisha.outcomes.log_reader import ReferenceAnswer
from shikisha.outcomes.log_writer import LogBuilder, LoggedAnswer

_TEXTS = ("model_outputs", "generated_text", "response")
_SHOTS = re.compile(r"_\d+-?shots?(?=_|$)")


def import_mmlu_pro(given: Sources, log: LogBuilder) -> None:
    """Read the models' files."""
    for file in given.files(".json", ".zip", ".jsonl"):
        worker = _worker(file)
        for row in read_source_rows(file):
            _take(row, worker, log)


def _worker(file: Path) -> str:
    name = file.name.split(".json")[0].removesuffix(".zip")
    if name.endswith("_result"):
        return file.absolute().parent.name
    return _SHOTS.sub("", name.removeprefix("model_outputs_"))


def _take(row: SourceRow, worker: str, log: LogBuilder) -> None:
    options = row.items("options")
    if not all(isinstance(option, str) for option in options):
        raise row.type_error("a list of texts", "options")
    shown = [str(option) for option in options if option != "N/A"]  # padding, which models were not shown
    right, answer = row.label("answer"), row.maybe_text("pred")
    name = (f"mmlu-pro/{row.label('question_id')}", row.text("category"))
    asked = row.logged_task(
        format_options(row.text("question"), shown), ReferenceAnswer(right, "choice"), name, "question"
    )
    log.add(asked, LoggedAnswer(worker, row.where, float(answer == right), answer, row.maybe_text(*_TEXTS)))
