"""Routing benchmarks: LLMRouter, RouteLLM and RouterBench, each with a table of models' answers.

LLMRouter (ulab-uiuc/LLMRouter): a row of routing data (JSON Lines or CSV) has `task_name`, `query`, `ground_truth`
(older: `gt`), `metric`, `choices`, `model_name`, `response`, `performance` in [0, 1], `input_tokens` and
`output_tokens` (older: `prompt_tokens`, `completion_tokens`) and `response_time` in seconds. The preprocessed form
`{"question", "scores": {MODEL: score}}` is read too. A candidates file (a JSON object of models with `input_price` and
`output_price`, dollars per million tokens), anywhere among the sources, brings prices, from which dollars are
`derived`. Options are part of the prompt where the metric is `em_mc`; elsewhere `choices` may hold the tests.

RouteLLM (lm-sys/RouteLLM): an evaluation is a CSV file a subject: `prompt`, for each model a column of True or False
under the model's name, and perhaps `MODEL_response`. A battle is a row with `prompt` (a JSON list of a user's turns),
`model_a`, `model_b`, perhaps `response_a` and `response_b`, and 1 in one of `winner_model_a`, `winner_model_b`,
`winner_tie`: the winner gets 1, the loser 0, both 0.5 for a tie. Such a score is a preference and not correctness;
battles have the domain `battles`.

RouterBench (withmartian/routerbench): one wide table with `sample_id`, `prompt`, `eval_name`, and for each model its
score under its name, `MODEL|model_response` and `MODEL|total_cost`; prompts and responses are Python lists written as
text. The published tables are pickles, which are refused: the error says how to convert one. Dollars were computed from
price lists, so they are `derived`. A model without a score, a response and a cost in a row has no outcome there.
"""

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from shikisha.core.budget import Price, Usage
from shikisha.outcomes.importers.importer_registry import SourceKind
from shikisha.outcomes.importers.source_files import (
    JSON_LINES_ENDINGS,
    SourceRow,
    Sources,
    format_options,
    read_source_rows,
)
from shikisha.outcomes.log_reader import ReferenceAnswer
from shikisha.outcomes.log_writer import CostKind, LogBuilder, LoggedAnswer, RepeatPolicy

_KINDS = {"em_mc": "choice", "GSM8K": "number"}


def import_llmrouter(given: Sources, log: LogBuilder) -> None:
    """Read candidates first, then routing data."""
    files = list(given.files(".json", ".csv", *JSON_LINES_ENDINGS))
    prices = dict(_llmrouter_prices(files))
    for file in files:
        for row in read_source_rows(file):
            if "scores" in row.values:
                _take_llmrouter_scores(row, log)
            elif not (file.suffix == ".json" and _is_candidates(row)):
                _take_llmrouter(row, prices, log)
    for worker, price in prices.items():
        log.price(worker, price)


def _is_candidates(row: SourceRow) -> bool:
    """Whether this row is a whole candidates file: an object of objects with prices."""
    return bool(row.values) and all(isinstance(one, dict) and "input_price" in one for one in row.values.values())


def _llmrouter_prices(files: Sequence[Path]) -> Iterator[tuple[str, Price]]:
    for file in files:
        first = next(read_source_rows(file), None) if file.suffix == ".json" else None
        if first is None or not _is_candidates(first):
            continue
        for worker, prices in first.values.items():
            model = SourceRow(f"{first.where}: {worker}", prices if isinstance(prices, dict) else {})
            known = [model.number(name) for name in ("input_price", "output_price")]
            if None in known:
                raise model.error_at("input_price, output_price", "expected two prices, found one")
            yield worker, Price(*(price or 0.0 for price in known))


def _take_llmrouter_scores(row: SourceRow, log: LogBuilder) -> None:
    scores = row.get("scores")
    if not isinstance(scores, dict) or not scores:
        raise row.type_error("an object of models' scores", "scores")
    asked = row.logged_task(
        row.text("question", "query"), ReferenceAnswer(None, None), ("", row.maybe_text("task_name") or "")
    )
    held = SourceRow(f"{row.where}: scores", scores)
    for worker in scores:
        score = held.score(worker)
        if score is None:
            raise held.type_error("a number from 0 to 1", worker)
        log.add(asked, LoggedAnswer(worker, row.where, score))


def _take_llmrouter(row: SourceRow, prices: Mapping[str, Price], log: LogBuilder) -> None:
    worker, score = row.label("model_name"), row.score("performance")
    if score is None:
        raise row.type_error("a number from 0 to 1", "performance")
    tokens = row.integer("input_tokens", "prompt_tokens"), row.integer("output_tokens", "completion_tokens")
    used = None if None in tokens else Usage(*(count or 0 for count in tokens))
    price = prices.get(worker)
    answered = LoggedAnswer(
        worker,
        row.where,
        score,
        response=row.maybe_text("response"),
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        dollars=None if price is None or used is None else price.of(used),
        cost=CostKind.DERIVED,
        seconds=row.number("response_time"),
    )
    metric = row.maybe_text("metric") or ""
    right = row.get("ground_truth", "gt")
    answer = right if right is None or isinstance(right, str) else json.dumps(right, ensure_ascii=False)
    if answer is not None and metric == "GSM8K":
        answer = answer.rpartition("####")[2].strip()  # a worked solution ends with the number, as its metric has it
    query = row.text("query")
    prompt = format_options(query, _llmrouter_options(row)) if metric == "em_mc" and row.get("choices") else query
    llmrouter_task = row.logged_task(
        prompt, ReferenceAnswer(answer, _KINDS.get(metric)), ("", row.text("task_name")), "query"
    )
    log.add(llmrouter_task, answered)


def _llmrouter_options(row: SourceRow) -> list[str]:
    """Return the options: a list, or an object with them as `text`, as JSON or as Python writes it."""
    choices = row.get("choices")
    if isinstance(choices, str):
        choices = _parse_literal(choices)
    if isinstance(choices, dict):
        choices = choices.get("text")
    if not isinstance(choices, list) or not choices:
        raise row.type_error("a list of options, or an object with the options as text", "choices")
    return [str(option) for option in choices]


def _parse_literal(text: str) -> object:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return found


_ROUTELLM_RESPONSE = "_response"
_WINNERS = {"winner_model_a": (1.0, 0.0), "winner_model_b": (0.0, 1.0), "winner_tie": (0.5, 0.5)}


def import_routellm(given: Sources, log: LogBuilder) -> None:
    """Read files of either layout."""
    for file in given.files(".csv", ".parquet", *JSON_LINES_ENDINGS):
        for row in read_source_rows(file):
            if "model_a" in row.values:
                _take_battle(row, log)
            else:
                subject = file.stem.removeprefix("mmlu_").removesuffix("_responses")
                asked = row.logged_task(row.text("prompt"), ReferenceAnswer(None, None), ("", subject))
                models = [name for name in row.values if name != "prompt" and not name.endswith(_ROUTELLM_RESPONSE)]
                if not models:
                    raise row.error_at("prompt", "expected columns named for models next to it")
                for model in models:
                    score, response = row.score(model), row.maybe_text(model + _ROUTELLM_RESPONSE)
                    if score is None:
                        raise row.type_error("True or False", model)
                    log.add(asked, LoggedAnswer(model, row.where, score, response=response))


def _take_battle(row: SourceRow, log: LogBuilder) -> None:
    asked = row.logged_task(_join_turns(row.text("prompt")), ReferenceAnswer(None, None), ("", "battles"))
    won = [name for name in _WINNERS if row.score(name) == 1]
    if len(won) != 1:
        raise row.error_at(", ".join(_WINNERS), f"expected 1 in one of them, found it in {len(won)}")
    for side, score in zip("ab", _WINNERS[won[0]], strict=True):
        response = row.maybe_text(f"response_{side}")
        said = None if response is None else _join_turns(response)
        log.add(asked, LoggedAnswer(row.label(f"model_{side}"), row.where, score, response=said))


def _join_turns(text: str) -> str:
    """Return the turns that are written as a JSON list (null: nothing was said) as one text, others as they are."""
    try:
        turns = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(turns, list) or not all(turn is None or isinstance(turn, str) for turn in turns):
        return text
    return "\n\n".join(turn for turn in turns if turn is not None)


_ROUTERBENCH_RESPONSE, _ROUTERBENCH_COST = "|model_response", "|total_cost"


def import_routerbench(given: Sources, log: LogBuilder) -> None:
    """Read wide tables."""
    for file in given.files(".parquet", ".csv"):
        models: list[str] = []
        for row in read_source_rows(file):
            models = models or _routerbench_models(row)
            name = (f"routerbench/{row.label('sample_id')}", row.text("eval_name"))
            asked = row.logged_task(_join_listed(row.text("prompt")), ReferenceAnswer(None, None), name)
            for model in models:
                score, response = row.score(model), row.maybe_text(model + _ROUTERBENCH_RESPONSE)
                dollars = row.number(model + _ROUTERBENCH_COST)
                if (score, response, dollars) == (None, None, None):
                    continue
                said = None if response is None else _join_listed(response)
                answered = LoggedAnswer(model, row.where, score, response=said, dollars=dollars, cost=CostKind.DERIVED)
                log.add(asked, answered)


def _routerbench_models(row: SourceRow) -> list[str]:
    names = [
        name.removesuffix(end)
        for name in row.values
        for end in (_ROUTERBENCH_RESPONSE, _ROUTERBENCH_COST)
        if name.endswith(end)
    ]
    models = list(dict.fromkeys(names))
    if not models:
        raise row.error_at(
            "the header", f"expected columns named MODEL, MODEL{_ROUTERBENCH_RESPONSE} and MODEL{_ROUTERBENCH_COST}"
        )
    for model in models:
        if model not in row.values:
            raise row.error_at(
                model, f"expected this column, as there is {model}{_ROUTERBENCH_RESPONSE} or {model}{_ROUTERBENCH_COST}"
            )
    return models


def _join_listed(text: str) -> str:
    """Return the texts of a Python list of texts as one, any other text as it is."""
    try:
        parts = ast.literal_eval(text) if text.startswith("[") else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    if not isinstance(parts, list) or not parts or not all(isinstance(part, str) for part in parts):
        return text
    return "\n\n".join(parts)


LLMROUTER = SourceKind(import_llmrouter, RepeatPolicy.MERGED)
ROUTELLM = SourceKind(import_routellm, RepeatPolicy.MERGED)
ROUTERBENCH = SourceKind(import_routerbench)
