"""A table of your own, as CSV, TSV, JSON, JSON Lines or parquet: a row an answer, a column a model, or a row a battle.

A row an answer has a prompt and a worker, and of score, answer, response, right answer, id, domain, tokens, cost and
seconds whatever there is. A column a model holds its scores, perhaps with `MODEL|cost` and the like beside it. A battle
has two models and who won; a model's score in it is what it won, moved by what Bradley and Terry (1952; ties: Davidson
1970) expect of its rival and of an average one, so that it does not matter whom a model met. Columns are found by the
names that people give them; where several readings fit, the error names the option that decides. Nested exports of
gateways, traces and evaluation tools become plain rows first, as `vars.question`; what stands beside a list of rows is
in each of them; depth, width and the work for a row are bounded. Invariants: scores are read on one scale for the whole
table; a bad row is counted and named, and the others are taken; a column that is not taken is named. Deliberately
absent: exchange rates, and grading.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from math import inf, sqrt
from pathlib import Path

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.outcomes.importers.chat_text import chat_text, parse_json_text, response_text
from shikisha.outcomes.importers.source_files import CSV_ENDINGS, JSON_LINES_ENDINGS, SourceRow, Sources, parse_number
from shikisha.outcomes.log_reader import ReferenceAnswer
from shikisha.outcomes.log_writer import LogBuilder, LoggedAnswer, LoggedTask

_DEPTH, _MOST_FIELDS = 4, 400
# What a list of rows has to have, after the names of prompts.
_SPLIT = ("columns", "data")
# Of an object, the value that stands for it.
_STANDS_FOR = {
    "prompt": ("raw", "text", "content", "value"),
    "worker": ("id", "name", "label"),
    "score": ("value", "score", "avg", "mean"),
}


def snake_case(name: str) -> str:
    """Return a name as most files write it: `totalCost` and `Total Cost` are `total_cost`."""
    letters: list[str] = []
    for at, letter in enumerate(name.strip()):
        if letter.isupper() and at and (name[at - 1].islower() or name[at - 1].isdigit()):
            letters.append("_")
        letters.append("_" if letter == " " else letter.casefold())
    return "".join(letters)


def plain_rows(row: SourceRow, prompts: Collection[str]) -> Iterator[SourceRow]:
    """Yield the rows of a row or document; `prompts` are names of columns that a row of answers has."""
    values = row.values
    if not any(isinstance(parse_json_text(value), Mapping | list) for value in values.values()):
        yield row
        return
    names, held = (values.get(name) for name in _SPLIT)
    if isinstance(names, list) and isinstance(held, list) and held and all(isinstance(one, list) for one in held):
        for number, cells in enumerate(held):  # a data frame, split into columns and data
            yield SourceRow(f"{row.where}: data[{number}]", dict(zip(map(str, names), cells, strict=False)))
        return
    own = any(snake_case(str(name)) in prompts for name in values)
    place = None if own else _find_rows(values, prompts)
    if place is None:
        yield SourceRow(row.where, _flatten(values))
        return
    path, found = place
    shared = {name: value for name, value in _flatten(values).items() if not isinstance(value, list | Mapping)}
    for number, entry in enumerate(found):
        if isinstance(entry, Mapping):
            yield SourceRow(f"{row.where}: {path}[{number}]", {**shared, **_flatten(entry)})


def _is_answer(values: Mapping[str, object], prompts: Collection[str]) -> bool:
    return any(snake_case(name.rpartition(".")[2]) in prompts for name in _flatten(values))


def _find_rows(values: Mapping[str, object], prompts: Collection[str]) -> tuple[str, list[object]] | None:
    """Return the list of rows nearest to the top of a document, and its place; None where there is none."""
    level: list[tuple[str, object]] = [("", values)]
    for _ in range(_DEPTH):
        below: list[tuple[str, object]] = []
        for path, held in level:
            for name, value in held.items() if isinstance(held, Mapping) else ():
                at = f"{path}.{name}" if path else str(name)
                if (
                    isinstance(value, list)
                    and value
                    and isinstance(value[0], Mapping)
                    and _is_answer(value[0], prompts)
                ):
                    return at, value
                below.append((at, value))
        level = below[:_MOST_FIELDS]
    return None


def _flatten(values: Mapping[str, object]) -> dict[str, object]:
    """Return the values with those of objects in them, by places with dots; an object stands for one of its values."""
    flat: dict[str, object] = {}
    left: list[tuple[str, object, int]] = [(str(name), value, 0) for name, value in values.items()]
    while left and len(flat) < _MOST_FIELDS:
        name, value, depth = left.pop(0)
        flat.setdefault(name, value)
        inside = parse_json_text(value)
        if isinstance(inside, Mapping) and depth < _DEPTH:
            left += [(f"{name}.{key}", held, depth + 1) for key, held in inside.items()]
    return flat


def own_value(values: Mapping[str, object], name: str, what: str) -> object:
    """Return what stands under a name; of an object that holds a prompt, worker or score (`what`), that."""
    value = values.get(name)
    if isinstance(parse_json_text(value), Mapping):
        for key in _STANDS_FOR[what]:
            held = values.get(f"{name}.{key}")
            if isinstance(held, str | int | float) and held != "":
                return held
    return value


def file_of(row: SourceRow) -> Path:
    """Return the file that a row is from."""
    return Path(row.where.partition(": ")[0])


_NAMES: Mapping[str, tuple[str, ...]] = {
    "prompt": (
        *("prompt", "question", "user_input", "input", "task", "problem", "instruction", "query", "user_prompt"),
        *("turns", "inputs", "messages", "request_body", "request", "conversation_a"),
    ),
    "worker": (
        *("worker", "model", "model_name", "model_id", "llm", "assistant", "system", "engine", "ai_model"),
        *("ls_model_name", "provided_model_name", "request_model", "response_model", "model_permaslug"),
        *("llm_selected", "selected_llm", "selected_model", "llm_name", "generator", "provider"),
    ),
    "score": (
        *("score", "correct", "is_correct", "right", "grade", "reward", "passed", "resolved", "success", "solved"),
        *("accuracy", "acc", "rating", "label", "verdict", "outcome", "result", "judgment", "judgement", "quality"),
        *("performance", "is_solved", "pass", "is_right", "eval_score", "percent", "exact_match", "acc_norm"),
        *("correctness", "answer_correctness", "weighted_feedback", "feedback_rating", "match", "includes"),
    ),
    "answer": ("answer", "extracted_answer", "prediction", "predicted", "pred"),
    "response": (
        *("response", "output", "completion", "generation", "text", "model_output", "actual_output", "outputs"),
        *("filtered_resps", "response_body", "predicted_text", "sampled", "generated_answer", "generated_text"),
    ),
    "gold": (
        *("gold", "right_answer", "correct_answer", "reference", "expected", "target", "ground_truth"),
        *("expected_output", "ideal", "ref_answer", "gold_answer", "reference_answer"),
    ),
    "kind": ("answer_kind",),
    "id": ("task_id", "id", "question_id", "sample_id", "instance_id", "example_id", "doc_id", "global_index"),
    "domain": ("domain", "category", "subject", "subset", "dataset", "task_type", "topic", "eval_name", "benchmark"),
    "input_tokens": ("input_tokens", "prompt_tokens", "tokens_in", "tokens_prompt"),
    "output_tokens": ("output_tokens", "completion_tokens", "tokens_out", "tokens_completion"),
    "dollars": (
        *("cost_usd", "dollars", "cost", "spend", "price", "total_cost", "cost_total", "calculated_total_cost"),
        "inference_cost",
    ),
    "seconds": ("latency_s", "seconds", "latency", "duration", "run_duration", "total_time"),
    "milliseconds": ("latency_ms", "duration_ms", "delay_ms", "response_time_ms"),
    "currency": ("currency", "cost_currency"),
}
_DOLLARS = ("", "USD", "$", "US$", "DOLLARS")
_ENDINGS = (*CSV_ENDINGS, ".json", ".parquet", *JSON_LINES_ENDINGS)
_RIGHT = {
    *("true", "yes", "y", "t", "right", "correct", "c", "pass", "passed", "resolved", "solved"),
    *("success", "succeeded", "ok"),
}
_WRONG = {
    *("false", "no", "n", "f", "wrong", "incorrect", "i", "fail", "failed", "unresolved", "unsolved"),
    *("failure", "error"),
}
_UNKNOWN = {"", "null", "none", "nan", "na", "n/a", "-", "unknown", "not graded", "ungraded"}
# Of so small a share of the scores it is taken that they are slips, where all others lie from 0 to 1.
_OUTLIERS = 0.02
# What stands beside a model's name in columns that hold more of it.
_PARTS = {
    "score": ("score", "correct", "accuracy", "acc"),
    "dollars": ("cost", "total_cost", "price", "dollars"),
    "response": ("response", "model_response", "output"),
    "answer": ("answer", "prediction"),
    "seconds": ("latency", "seconds", "time"),
    "input_tokens": ("input_tokens", "prompt_tokens"),
    "output_tokens": ("output_tokens", "completion_tokens"),
}
_SEPARATORS = ("|", "__", "/", ":", ".", "_", " ", "-")
_RIVALS = (
    ("generator_1", "generator_2"),
    ("model_a", "model_b"),
    ("model_1", "model_2"),
    ("left", "right"),
    ("model_left", "model_right"),
)
_RESPONSES = (
    ("response_a", "response_b"),
    ("response_1", "response_2"),
    ("answer_a", "answer_b"),
    ("output_1", "output_2"),
)
_WINNERS = ("winner", "preference", "preferred", "vote", "choice", "chosen")
_MOST_READ = 200  # rows that decide what a table's columns are
_OTHER_SHAPES = (
    "; a file or a folder a model: --column worker=file or --column worker=folder; "
    "a column a model: --wide MODEL,MODEL; two models a row: --pairs A,B,WINNER"
)
# Columns that every file has, where a file or a folder is a model.
_PLACES = ("file", "folder")
_ROUNDS = 200
# Where an object says what was asked.
_ASKED = ("messages", "input", "question", "prompt", "instruction", "query")


def import_table(given: Sources, log: LogBuilder) -> None:
    """Read tables."""
    first = next(_rows(given), None)
    if first is None:
        return
    battle, found = _battle_columns(first, given), _columns(first, given)
    models = () if battle or ("worker" in found and not given.shape.wide) else _model_columns(first, found, given)
    if battle:
        _import_battles(battle, found, given, log)
        return
    needed = ("prompt",) if models else ("prompt", "worker")
    for what in needed:
        if what not in found:
            raise ConfigError(
                f"{first.where}: expected a column for the {what} ({', '.join(_NAMES[what])}); "
                f"there are {', '.join(first.values)}; name yours with --column {what}=NAME"
                + (_OTHER_SHAPES * (what == "worker"))
            )
    used = {*found.values(), given.domain, *(name for parts in models for name in parts.values())}
    for name in (name for name in first.values if name not in used):
        log.remark(f"column not taken over: {name}", 0)
    names = [parts["score"] for parts in models] if models else [found["score"]] if "score" in found else []
    scale = _Scale.of(given, names)
    shared = {what: name for what, name in found.items() if what not in _PARTS}
    for row in _rows(given):
        if not models:
            given.take(row, partial(_take, found=_columns(row, given), scale=scale, given=given, log=log))
        for parts in models:
            own = {**shared, **parts}
            given.take(row, partial(_take, found=own, scale=scale, given=given, log=log, worker=_model_name(parts)))


def _rows(given: Sources) -> Iterator[SourceRow]:
    """Yield the rows of all files, those of documents and objects as plain ones."""
    for row in given.rows(*_ENDINGS):
        yield from plain_rows(row, _NAMES["prompt"])


def _columns(row: SourceRow, given: Sources) -> dict[str, str]:
    """Return under which name each thing is in a row; ConfigError for a name that --column gives and no row has."""
    there: dict[str, str] = {}
    for name in sorted(row.values, key=lambda name: name.count(".")):  # of equal names, the one nearest to the top
        there.setdefault(snake_case(name), name)
        there.setdefault(snake_case(name.rpartition(".")[2]), name)
    found = {what: there[name] for what, names in _NAMES.items() for name in reversed(names) if name in there}
    if "." in found.get("id", "") and "id" not in given.columns:
        del found["id"]  # of something else in the row
    if found.get("response", "").startswith(f"{found.get('prompt')}.") and "response" not in given.columns:
        del found["response"]  # a part of the task
    named = {**given.columns, **({"score": given.score} if given.score else {})}
    for what, name in named.items():
        if what not in _NAMES:
            raise ConfigError(f"--column {what}={name}: expected one of {', '.join(_NAMES)} before the `=`")
        if name not in row.values and name not in given.shape.wide and not (what == "worker" and name in _PLACES):
            problem = f"expected this column (for the {what}); there are {', '.join(row.values)}"
            raise ConfigError(f"{row.where}: {name}: {problem}")
        found[what] = name
    return found


def _take(
    row: SourceRow, found: Mapping[str, str], scale: "_Scale", given: Sources, log: LogBuilder, worker: str = ""
) -> None:
    def text(what: str) -> str | None:
        value = row.get(found[what]) if what in found else None
        if what == "response" and not isinstance(value, str):
            value = response_text(value[0] if isinstance(value, list) and len(value) == 1 else value)
        return None if value is None else str(value)

    def number(what: str) -> float | None:
        return row.number(found[what]) if what in found else None

    def whole(what: str) -> int | None:
        return row.integer(found[what]) if what in found else None

    currency = text("currency")
    if currency is not None and currency.strip().upper() not in _DOLLARS and number("dollars"):
        raise ConfigError(
            f"{row.where}: {found['currency']}: expected costs in US dollars, found {currency[:20]!r}: "
            f"convert the column {found['dollars']}"
        )
    score = scale.read(row, found["score"]) if "score" in found else None
    waited = number("milliseconds")
    answered = LoggedAnswer(
        worker or _worker_of(row, found["worker"]),
        row.where,
        score,
        answer=text("answer"),
        response=text("response"),
        input_tokens=whole("input_tokens"),
        output_tokens=whole("output_tokens"),
        dollars=number("dollars"),
        seconds=number("seconds") if waited is None else waited / 1000,
    )
    if worker and score is None and not answered.answer and not answered.response:
        return  # an empty cell of a wide table is no outcome
    log.add(_task(row, found, given), answered)


def _task(row: SourceRow, found: Mapping[str, str], given: Sources) -> LoggedTask:
    def text(what: str) -> str:
        value = row.get(found[what]) if what in found else None
        return "" if value is None else str(value)

    gold = ReferenceAnswer(text("gold") or None, text("kind") or None)
    asked = own_value(row.values, found["prompt"], "prompt")
    if isinstance(parse_json_text(asked), Mapping | list):
        asked = _chat_of(parse_json_text(asked))
    prompt = SourceRow(row.where, {found["prompt"]: asked}).label(found["prompt"])
    return row.logged_task(prompt, gold, (text("id"), given.domain_of(row) or text("domain")))


def _worker_of(row: SourceRow, name: str) -> str:
    """Return who answered: what stands in a column, or the name of the file or its folder."""
    if name in _PLACES and name not in row.values:
        file = file_of(row)
        return file.name.partition(".")[0] if name == "file" else file.absolute().parent.name
    return SourceRow(row.where, {name: own_value(row.values, name, "worker")}).label(name)


def _chat_of(asked: object) -> str | None:
    """Return the prompt in a chat, or in an object that holds one: what was said up to the first answer."""
    if isinstance(asked, Mapping):
        inside = next((asked[name] for name in _ASKED if name in asked), None)
        return chat_text(asked) if inside is None else inside if isinstance(inside, str) else _chat_of(inside)
    turns = asked if isinstance(asked, list) else []
    answers = [at for at, turn in enumerate(turns) if isinstance(turn, Mapping) and turn.get("role") == "assistant"]
    return chat_text(turns[: answers[0]] if answers and len(answers) < len(turns) and answers[0] else turns)


@dataclass(slots=True)
class _Seen:
    """What stands in the score columns of a table: how many numbers, those outside 0 to 1, percent signs, words."""

    numbers: int = 0
    low: float = inf
    high: float = -inf
    outside: Counter[float] = field(default_factory=Counter)
    percents: int = 0
    words: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Scale:
    """How scores are read: `low` is 0 and `high` is 1, and `words` say which is which; `clip`: beyond is at the end."""

    low: float = 0.0
    high: float = 1.0
    clip: bool = False
    words: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Sources, names: Sequence[str]) -> "_Scale":
        """Return the scale of these columns; ConfigError names the option that decides where several fit."""
        words = dict.fromkeys(_RIGHT, 1.0) | dict.fromkeys(_WRONG, 0.0)
        if given.shape.scale:
            low, colon, high = given.shape.scale.partition(":")
            ends = parse_number(low), parse_number(high)
            if not (low and colon and high) or (None in ends) != (ends == (None, None)) or low == high:
                raise ConfigError(f"--scale: expected WORST:BEST, as in 1:10 or bad:good, not {given.shape.scale!r}")
            if ends[0] is None or ends[1] is None:
                return cls(
                    clip=given.shape.clip, words=words | {low.strip().casefold(): 0.0, high.strip().casefold(): 1.0}
                )
            return cls(ends[0], ends[1], given.shape.clip, words)
        seen = _look(given, names)
        beyond = seen.outside.total()
        if seen.percents or set(seen.outside) == {100.0}:
            return cls(0.0, 100.0, given.shape.clip, words)
        slips = beyond < seen.numbers and beyond <= max(1, _OUTLIERS * seen.numbers)
        if beyond and not slips and not given.shape.clip:
            best = next((end for end in (5, 10, 100) if seen.high <= end), round(seen.high))
            raise ConfigError(
                f"{', '.join(given.names)}: {', '.join(names[:3])}: expected scores from 0 to 1, found {seen.low:g} to "
                f"{seen.high:g}: say what is worst and best, as in --scale {min(1, round(seen.low)):g}:{best:g}; "
                "a few that are slips: --clip"
            )
        return cls(clip=given.shape.clip, words=words)

    def read(self, row: SourceRow, name: str) -> float | None:
        """Return a score in [0, 1], None where nothing is known; RowError for what is none."""
        value = own_value(row.values, name, "score")
        text = str(value).strip().casefold()
        if value is None or text in _UNKNOWN:
            return None
        if text in self.words:
            return self.words[text]
        number = parse_number(text.removesuffix("%").strip())
        if number is None:
            raise row.type_error("a score (another word: --scale WORST:BEST)", name)
        part = (number - self.low) / (self.high - self.low)
        if not self.clip and not 0 <= part <= 1:
            raise row.type_error(f"a score from {self.low:g} to {self.high:g} (--clip takes the nearer end)", name)
        return min(1.0, max(0.0, part))


def _look(given: Sources, names: Sequence[str]) -> _Seen:
    """Read the score columns once."""
    seen = _Seen()
    for row in _rows(given):
        for name in names:
            value = own_value(row.values, name, "score")
            text = "" if value is None else str(value).strip()
            number = parse_number(text.removesuffix("%").strip())
            if number is None:
                seen.words[text.casefold()] += 1
                continue
            seen.numbers += 1
            seen.percents += text.endswith("%")
            seen.low, seen.high = min(seen.low, number), max(seen.high, number)
            if not 0 <= number <= 1:
                seen.outside[number] += 1
                if seen.outside[number] == 1 and len(seen.outside) > _MOST_READ:
                    seen.outside[-1.0] += seen.outside.pop(number)
    return seen


def _model_name(parts: Mapping[str, str]) -> str:
    """Return the model whose columns these are: the name of its scores without what says that they are scores."""
    name = parts["score"]
    for ending in (f"{separator}{word}" for separator in _SEPARATORS for word in _PARTS["score"]):
        if name.casefold().endswith(ending):
            return name[: -len(ending)]
    return name


def _model_columns(first: SourceRow, found: Mapping[str, str], given: Sources) -> tuple[dict[str, str], ...]:
    """Return for each model of a wide table the names of its columns, by what they hold; empty where it is none."""
    if given.shape.wide:
        for name in given.shape.wide:
            if name not in first.values:
                raise ConfigError(f"--wide {name}: expected one of the columns {', '.join(first.values)}")
        return tuple(_parts_of(name, first) for name in given.shape.wide)
    if "score" in found:
        return ()
    free = [name for name in first.values if name not in found.values()]
    models = [_parts_of(name, first) for name in free if not any(name.startswith(f"{other}|") for other in free)]
    models = [parts for parts in models if len(parts) > 1 or _is_score(first.get(parts["score"]))]
    taken = {name for parts in models if len(parts) > 1 for what, name in parts.items() if what != "score"}
    models = [parts for parts in models if parts["score"] not in taken]
    leftover = [name for name in free if name not in taken and all(name != parts["score"] for parts in models)]
    return tuple(models) if len(models) > 1 and not leftover else ()


def _parts_of(model: str, row: SourceRow) -> dict[str, str]:
    """Return the columns of a model: its scores stand under its name."""
    base = _model_name({"score": model})
    parts = {"score": model}
    for what, words in _PARTS.items():
        for name in (f"{base}{separator}{word}" for separator in _SEPARATORS for word in words):
            if what != "score" and name in row.values:
                parts.setdefault(what, name)
    return parts


def _is_score(value: object) -> bool:
    text = str(value if value is not None else "").strip().casefold()
    number = parse_number(text.removesuffix("%"))
    return text in _RIGHT | _WRONG | _UNKNOWN or (number is not None and 0 <= number <= 100)


@dataclass(frozen=True, slots=True)
class _BattleColumns:
    """The columns of two models, of who won (one, or a flag each: first, second, tie), and of their responses."""

    first: str
    second: str
    winner: tuple[str, ...]
    responses: tuple[str, str] | None = None


def _battle_columns(row: SourceRow, given: Sources) -> _BattleColumns | None:
    """Return the columns of a table of battles; None where it is none."""
    there = {name.strip().casefold(): name for name in row.values}
    responses = next(((there[one], there[other]) for one, other in _RESPONSES if one in there and other in there), None)
    if given.shape.pairs:
        for name in given.shape.pairs:
            if name not in row.values:
                raise ConfigError(
                    f"--pairs: expected columns A,B,WINNER; there is no {name!r} in {', '.join(row.values)}"
                )
        return _BattleColumns(given.shape.pairs[0], given.shape.pairs[1], given.shape.pairs[2:], responses)
    for one, other in _RIVALS:
        if one not in there or other not in there:
            continue
        flags = [there[name] for name in (f"winner_{one}", f"winner_{other}", "winner_tie") if name in there]
        winner = next(((there[name],) for name in _WINNERS if name in there), tuple(flags))
        if len(winner) in (1, 3):
            return _BattleColumns(there[one], there[other], winner, responses)
    return None


def _import_battles(battle: _BattleColumns, found: Mapping[str, str], given: Sources, log: LogBuilder) -> None:
    """Read the battles twice: the first time to know how strong each model is."""
    if "prompt" not in found:
        raise ConfigError("a table of battles needs a prompt: name its column with --column prompt=NAME")
    wins: dict[tuple[str, str], float] = defaultdict(float)
    ties: Counter[frozenset[str]] = Counter()
    met: Counter[str] = Counter()

    def count(row: SourceRow) -> None:
        one, other, won = _read_battle(row, battle)
        met.update((one, other))
        if won == 0.5:
            ties[frozenset((one, other))] += 1
        else:
            wins[(one, other) if won else (other, one)] += 1

    for row in _rows(given):
        given.take(row, count, quiet=True)
    strengths, drawn = fit_strengths(wins, ties) if met else ({}, 1.0)
    battles = sum(met.values()) / 2
    usual = {
        name: sum(
            met[other] * expected_score(strengths[name], strengths[other], drawn) for other in met if other != name
        )
        / max(1, sum(met[other] for other in met if other != name))
        for name in met
    }

    def take(row: SourceRow) -> None:
        one, other, won = _read_battle(row, battle)
        expected = expected_score(strengths[one], strengths[other], drawn)
        task = _task(row, {what: name for what, name in found.items() if what != "score"}, given)
        ends = ((one, won, usual[one] - expected), (other, 1 - won, usual[other] - 1 + expected))
        for place, (name, score, moved) in enumerate(ends):
            text = row.get(battle.responses[place]) if battle.responses else None
            log.add(
                task,
                LoggedAnswer(
                    name,
                    row.where,
                    min(1.0, max(0.0, score + moved)),
                    response=None if text is None else str(text),
                    propensity=None if len(met) == 2 else min(1.0, met[name] / battles),
                ),
            )

    for row in _rows(given):
        given.take(row, take)
    log.remark("battles, as scores of who was preferred, whoever the rival was", int(battles))
    if len(met) > 2:
        log.remark("models in battles, whose pairs are taken to be drawn by lot", len(met))


def _read_battle(row: SourceRow, battle: _BattleColumns) -> tuple[str, str, float]:
    """Return the two models, and what the first won: 1, 0, or one half for a tie."""
    one, other = row.label(battle.first), row.label(battle.second)
    if one == other:
        raise row.type_error("two models", battle.second)
    if len(battle.winner) == 3:
        flags = [str(row.get(name)).strip().casefold() in ("1", "1.0", "true") for name in battle.winner]
        if sum(flags) != 1:
            raise row.type_error("one winner, or a tie", battle.winner[0])
        return one, other, (1.0, 0.0, 0.5)[flags.index(True)]
    said = str(row.get(battle.winner[0])).strip().casefold()
    if (number := parse_number(said)) is not None and 1 <= number <= 2:  # one half is between the first and the second
        return one, other, 0.5 if number == 1.5 else float(number < 1.5)
    firsts = {battle.first.casefold(), one.casefold(), "a", "model_a", "1", "left", "first", "model_1"}
    seconds = {battle.second.casefold(), other.casefold(), "b", "model_b", "2", "right", "second", "model_2"}
    if said in firsts - seconds:
        return one, other, 1.0
    if said in seconds - firsts:
        return one, other, 0.0
    if said.startswith("tie") or said in ("draw", "both", "equal", "neither", "both bad", "0.5", "same"):
        return one, other, 0.5
    raise row.type_error("who won: a model's name or column, or a tie", battle.winner[0])


def expected_score(one: float, other: float, drawn: float) -> float:
    """Return what the first of two strengths wins on average, where a tie is one half (Davidson 1970)."""
    ties = drawn * sqrt(one * other)
    return (one + ties / 2) / (one + other + ties)


def fit_strengths(
    wins: Mapping[tuple[str, str], float], ties: Mapping[frozenset[str], int]
) -> tuple[Mapping[str, float], float]:
    """Return each model's strength, and how common ties are, by Davidson's iteration; one tie with each is added."""
    names = sorted({name for pair in wins for name in pair} | {name for pair in ties for name in pair})
    strengths, drawn = dict.fromkeys(names, 1.0), 1.0
    pairs: dict[frozenset[str], float] = defaultdict(float)
    points: dict[str, float] = defaultdict(float)
    for (one, other), count in wins.items():
        pairs[frozenset((one, other))] += count
        points[one] += count
    for pair, count in ties.items():
        pairs[pair] += count
        for name in pair:
            points[name] += count / 2
    for pair in list(pairs):  # so that nobody who won or lost all is beyond compare
        pairs[pair] += 1
        for name in pair:
            points[name] += 0.5
    all_ties = sum(ties.values()) + len(pairs)
    for _ in range(_ROUNDS):
        shares: dict[str, float] = defaultdict(float)
        tied = 0.0
        for pair, count in pairs.items():
            one, other = sorted(pair)
            root = sqrt(strengths[one] * strengths[other])
            total = strengths[one] + strengths[other] + drawn * root
            tied += count * root / total
            for name in (one, other):
                shares[name] += count * (1 + drawn * root / strengths[name] / 2) / total
        strengths = {name: points[name] / shares[name] for name in names}
        middle = sqrt(max(strengths.values()) * min(strengths.values()))
        strengths = {name: value / middle for name, value in strengths.items()}
        drawn = all_ties / tied
    return strengths, drawn
