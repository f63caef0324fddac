"""Published benchmark answers of many models: the results of MMLU-Pro and of ZeroEval.

MMLU-Pro (TIGER-AI-Lab/MMLU-Pro) `eval_results`: a JSON file a model, as it is or zipped. An entry has `question_id`,
`question`, `options`, `answer` (the right letter), `category`, `pred` (the extracted letter; null: none, though some
files have a random letter there) and the model's text as `model_outputs` or `generated_text`. The file's name gives the
model's: `model_outputs_NAME_5shots.json`; `CATEGORY_result.json`, as the evaluation script leaves them, are named for
their folder. An answer is right when `pred` is `answer`; where nothing was extracted the score is 0. Some questions
were corrected between the published files: then there are two tasks. The five examples of each prompt are not imported.

ZeroEval (WildEval/ZeroEval) `result_dirs`: a JSON file for each data set and model, `DATASET/MODEL.json`. An entry has
`id` (or `session_id`), `dataset`, `question` (or `problem`), the right `answer` (or `choices` and `correct_answer`) and
`output`: one text, or a list of samples, each of which counts. Models were instructed to write {"reasoning": ...,
"answer": ...}. Scores follow the leaderboard's rules: `gsm` and `math-l5` compare the first number, `crux` the text
without quotes, `mmlu-redux` the letter; other sets have no score (the solutions of `zebra-grid` are not public). A
source is a model's file, a data set's folder, the folder of all data sets, or the repository; of the last two the
graded sets are taken, and the others are named. Import sampling folders under another name (`sampling/MODEL.json` is
the same model again) into a log of their own.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import ascii_uppercase

from shikisha.outcomes.importers.importer_registry import SourceKind
from shikisha.outcomes.importers.source_files import SourceRow, Sources, format_options, read_source_rows
from shikisha.outcomes.log_reader import ReferenceAnswer
from shikisha.outcomes.log_writer import LogBuilder, LoggedAnswer

_MMLU_PRO_TEXTS = ("model_outputs", "generated_text", "response")
_SHOTS = re.compile(r"_\d+-?shots?(?=_|$)")


def import_mmlu_pro(given: Sources, log: LogBuilder) -> None:
    """Read the models' files."""
    for file in given.files(".json", ".zip", ".jsonl"):
        worker = _mmlu_pro_worker(file)
        for row in read_source_rows(file):
            options = row.items("options")
            if not all(isinstance(option, str) for option in options):
                raise row.type_error("a list of texts", "options")
            shown = [str(option) for option in options if option != "N/A"]  # padding, which models were not shown
            right, answer = row.label("answer"), row.maybe_text("pred")
            name = (f"mmlu-pro/{row.label('question_id')}", row.text("category"))
            asked = row.logged_task(
                format_options(row.text("question"), shown), ReferenceAnswer(right, "choice"), name, "question"
            )
            log.add(
                asked, LoggedAnswer(worker, row.where, float(answer == right), answer, row.maybe_text(*_MMLU_PRO_TEXTS))
            )


def _mmlu_pro_worker(file: Path) -> str:
    name = file.name.split(".json")[0].removesuffix(".zip")
    if name.endswith("_result"):
        return file.absolute().parent.name
    return _SHOTS.sub("", name.removeprefix("model_outputs_"))


_GRADED = {"gsm": "number", "math-l5": "number", "crux": "text", "mmlu-redux": "choice"}
_RESULTS = "result_dirs"
_QUESTIONS = ("question", "problem", "puzzle", "instruction")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_FRACTION = re.compile(r"(-?\d+(?:\.\d+)?)\s*/\s*(-?\d+(?:\.\d+)?)")
_ANSWERS = (  # where there is no whole JSON object, in this order
    re.compile(r'"answer"\s*:\s*"(.*?)"', re.DOTALL),
    re.compile(r'"answer"\s*:\s*([^,\s]*)'),
    re.compile(r"answer\s*:\s*([^,\s]*)"),
)
_BOXED = re.compile(r"\\boxed{(\w+)}")
_BOXERS = "Llama-3.1"  # models of this name often box their answer; for them, and only for them, that is taken too
_BOX_NEAR_END = 30  # characters


def import_zeroeval(given: Sources, log: LogBuilder) -> None:
    """Read the models' files."""
    for file in _zeroeval_files(given, log):
        for row in read_source_rows(file):
            _take_zeroeval(row, file, log)


def _zeroeval_files(given: Sources, log: LogBuilder) -> Iterator[Path]:
    """Yield the models' files; of a folder of data sets, those of the graded ones."""
    for name in given.names:
        path = Path(name)
        path = path / _RESULTS if (path / _RESULTS).is_dir() else path
        sets = sorted(folder for folder in path.iterdir() if folder.is_dir()) if path.is_dir() else []
        if not any(folder.name in _GRADED for folder in sets):
            yield from Sources([str(path)]).files(".json")
            continue
        for folder in sets:
            if folder.name in _GRADED:
                yield from Sources([str(folder)]).files(".json")
            else:
                log.skip(f"data sets that have no public solutions or another layout: {folder.name}")


def _take_zeroeval(row: SourceRow, file: Path, log: LogBuilder) -> None:
    dataset = row.text("dataset")
    kind = _GRADED.get(dataset)
    name = (f"zeroeval/{dataset}/{row.label('id', 'session_id')}", dataset)
    gold = _gold(row, kind)
    asked = row.logged_task(_prompt(row, kind), gold, name, row.first_known(*_QUESTIONS))
    log.add(asked, *(_logged_output(output, gold, file.stem, row.where) for output in _outputs(row)))


def _logged_output(output: str, gold: ReferenceAnswer, worker: str, where: str) -> LoggedAnswer:
    answer = _answer(output)
    if answer is None and _BOXERS in worker and "boxed" in output[-_BOX_NEAR_END:]:
        boxed = _BOXED.search(output)
        answer = None if boxed is None else boxed[1]
    if gold.kind is None:
        return LoggedAnswer(worker, where, None, answer, output)
    right = answer is not None and _RIGHT[gold.kind](answer, gold.answer or "")
    return LoggedAnswer(worker, where, float(right), answer, output)


def _gold(row: SourceRow, kind: str | None) -> ReferenceAnswer:
    if kind == "choice":
        right = row.text("correct_answer")
        if right not in row.items("choices"):
            raise row.error_at("correct_answer", f"expected one of the choices, found {right[:40]!r}")
        return ReferenceAnswer(ascii_uppercase[row.items("choices").index(right)], kind)
    return ReferenceAnswer(row.label("answer") if kind else row.maybe_text("answer"), kind)


def _prompt(row: SourceRow, kind: str | None) -> str:
    question = row.text(*_QUESTIONS)
    return format_options(question, map(str, row.items("choices"))) if kind == "choice" else question


def _outputs(row: SourceRow) -> Sequence[str]:
    output = row.get("output")
    samples = [output] if isinstance(output, str) else output
    if not isinstance(samples, list) or not samples or not all(isinstance(sample, str) for sample in samples):
        raise row.type_error("a text or a list of texts", "output")
    return samples


def _answer(output: str) -> str | None:
    """Return what the model gave as its answer: in the first whole JSON object, else after the word."""
    whole = _first_object(output)
    if whole is not None and "answer" in whole:
        return str(whole["answer"])
    for pattern in _ANSWERS:
        if (found := pattern.search(output)) is not None:
            return found[1]
    return None


def _first_object(text: str) -> dict[str, object] | None:
    start, depth = text.find("{"), 0
    for place in range(start, len(text)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            try:
                whole = json.loads(text[start : place + 1].replace("\n", ""))
            except (ValueError, RecursionError):
                return None
            return whole if isinstance(whole, dict) else None
    return None


def _same_number(answer: str, right: str) -> bool:
    found, wanted = _first_number(answer), _first_number(right)
    return found is not None and found == wanted


def _first_number(text: str) -> float | None:
    plain = text.replace("#", "").replace("$", "").replace(",", "").strip()
    if (fraction := _FRACTION.fullmatch(plain)) is not None and float(fraction[2]):
        return float(fraction[1]) / float(fraction[2])
    found = _NUMBER.search(plain)
    return None if found is None else float(found[0])


def _same_text(answer: str, right: str) -> bool:
    return answer.strip("'\"").replace("\n", "\\n") == right.strip("'\"")


def _same_letter(answer: str, right: str) -> bool:
    return answer == right or f"{right})" in answer


_RIGHT = {"number": _same_number, "text": _same_text, "choice": _same_letter}


MMLU_PRO = SourceKind(import_mmlu_pro)
ZEROEVAL = SourceKind(import_zeroeval)
