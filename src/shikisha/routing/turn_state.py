"""The state of a conversation with a client's tools, as numbers: what a turn is decided from.

Read are what tools returned, how calls repeat, the client's messages by length and kind, and what earlier turns used.
Invariants: no text of a model is read (a turn without a call counts as that, whatever it says); the work is bounded,
however long the conversation is: results by their ends, the newest exchanges only. What is not known is None, never 0.
Deliberately absent: prices, and what follows from all this (`turn_router`).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import takewhile

from shikisha.core.fast_dataclass import dataclass
from shikisha.core.messages import ChatMessage, Json, Speaker, ToolCall
from shikisha.core.task import Task
from shikisha.engine.conductor import Turn

_HEAD, _TAIL = 2_000, 4_000  # characters of a result that are read
_EXCHANGES = 8  # the newest, that are looked at
_TOKEN_CHARACTERS = 4
_IMAGE_TOKENS = 1_500
_KEY_CHARACTERS = 4_000
_FEW_SHOWN = 200


def _patterns(*sources: str) -> tuple[re.Pattern[str], ...]:
    """Compile several: one that begins with a literal or a line is searched fast, an alternation of them is not."""
    return tuple(re.compile(each, re.MULTILINE) for each in sources)


_RED = _patterns(
    r"[1-9](?<!\w\w)\d{0,6} (?:failed|failures?|errors?)\b",
    r"FAILED(?<!\wFAILED)\b",
    r"FAILURES(?<!\wFAILURES)\b",
    r"^(?:not ok \d|--- FAIL)",
)
_GREEN = _patterns(
    r"[1-9](?<!\w\w)\d{0,6} pass(?:ed|ing)\b",
    r"^(?:OK(?: |$)|ok\s+\S|--- PASS)",
    r"test result: ok",
    r"All tests passed(?<!\wAll tests passed)",
)
_ERROR = _patterns(
    r"^(?:Traceback \(most recent|[A-Z]\w{0,60}(?:Error|Exception)\b)",
    r"^ {0,8}(?:[Ff]atal|[Ee]rror|FATAL|ERROR)(?:\[\w{1,10}\])?:",
    r"[Ee]xit(?<!\w\w{4})(?:ed with)?(?: code| status)?:? ?[1-9]\d{0,3}\b",
    r"<tool_use_error>",
    r"command not found(?<!\wcommand not found)\b",
    r"No such file or directory",
    r"Permission denied",
)
_EMPTY = re.compile(
    r"(?:no (?:matches|results|files|matching \w{1,20})(?: were)?(?: found)?|0 (?:matches|results)|found 0 \w{1,20}"
    r"|\[\]|\{\})?\W{0,8}",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class TurnState:
    """What is known of a conversation before a turn. Tokens are estimates.

    `prefix` is the whole conversation, `fresh` what came since the turn before. `errors`, `empty` and `tests` (None: no
    test spoke) are of the newest results; `red` counts the newest exchanges in a row whose tests failed; `repeated`:
    the newest calls were made before, with the same results. `idle`: tools had failed, and the turn before called none.
    `retried`: the client says the same again.
    """

    turn: int
    prefix: int
    fresh: int
    kind: str  # of the newest message: task, reply, results
    errors: int = 0
    empty: int = 0
    tests: bool | None = None
    red: int = 0
    repeated: bool = False
    idle: bool = False
    retried: bool = False
    forced: bool = False
    pictures: int = 0

    def stall(self, red_turns: int) -> str:
        """Say how the conversation is stuck; "" where it is not."""
        if self.repeated:
            return "the same call brought the same result again"
        if self.red >= red_turns:
            return f"tests are red after {self.red} turns"
        if self.idle:
            return "tools had failed, and the turn before called none"
        return "the client asks the same again" if self.retried else ""

    def facts(self) -> dict[str, Json]:
        """Return what is not as usual, as a journal keeps it."""
        shown = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in shown.items() if value not in (None, 0, False)}


@dataclass(frozen=True, slots=True)
class _Exchange:
    """Calls and what came of them, the results read."""

    calls: tuple[ToolCall, ...]
    results: tuple[str, ...]


def conversation_key(task: Task) -> str:
    """Return what names a conversation: its tenant, labels, and how it begins; the same for each of its turns."""
    users = (each.text for each in task.history if each.speaker is Speaker.USER)
    systems = (each.text for each in task.history if each.speaker is Speaker.SYSTEM)
    parts = (task.tenant or "", *sorted(task.labels), next(systems, "")[:_FEW_SHOWN], next(users, task.prompt))
    return sha256("\0".join([part[:_KEY_CHARACTERS] for part in parts]).encode()).hexdigest()[:16]


def read_state(turn: Turn, known: int | None = None) -> TurnState:
    """Return the state before a turn; `known` are the tokens of the turn before, its reply included."""
    task = turn.task
    recent = list(_recent(turn))
    texts = recent[0].results if turn.exchanges and recent else ()
    said = [each for each in task.history if each.speaker is not Speaker.SYSTEM]
    last = next((each for each in reversed(said) if each.speaker is Speaker.ASSISTANT), None)
    asked = next((each for each in reversed(said) if each.speaker is Speaker.USER), None)
    fresh = _tokens(*texts) if turn.exchanges else _tokens(task.prompt)
    tests = _tests(recent[0]) if recent else None
    errors = sum(_says(_ERROR, text) for text in recent[0].results) if recent else 0
    red = sum(1 for _ in takewhile(lambda each: _tests(each) is False, recent)) if tests is False else 0
    pictures = len(task.attachments) + sum(len(each.attachments) for each in task.history)
    return TurnState(
        turn=sum(bool(each.calls) for each in task.history)
        + len(turn.exchanges)
        + sum(each.plain for each in said) // 2,
        prefix=known + fresh if known else _whole(turn) + pictures * _IMAGE_TOKENS,
        fresh=fresh,
        kind="results" if turn.exchanges else "reply" if last is not None else "task",
        errors=errors if texts else 0,
        empty=sum(_EMPTY.fullmatch(text.strip()) is not None for text in texts),
        tests=tests if texts else None,
        red=red,
        repeated=bool(turn.exchanges) and any(_same(recent[0], each) for each in recent[1:]),
        idle=not turn.exchanges and last is not None and not last.calls and (tests is False or errors > 0),
        retried=not turn.exchanges and asked is not None and asked.text.strip() == task.prompt.strip(),
        forced=turn.forced,
        pictures=pictures,
    )


def _recent(turn: Turn) -> Iterator[_Exchange]:
    """Yield the newest exchanges with the client's tools, the newest first."""
    left = _EXCHANGES
    for each in reversed(turn.exchanges):
        yield _Exchange(each.calls, tuple(_ends(result.content) for result in each.results))
        left -= 1
        if not left:
            return
    results: dict[str, str] = {}
    for message in reversed(turn.task.history):
        if message.speaker is Speaker.TOOL:
            results[message.answers] = _ends(message.text)
        elif message.calls:
            yield _Exchange(message.calls, tuple(results.get(call.id, "") for call in message.calls))
            left -= 1
        if not left:
            return


def _ends(text: str) -> str:
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]}\n{text[-_TAIL:]}"


def _tests(exchange: _Exchange) -> bool | None:
    """Return whether tests passed; None: none spoke."""
    if any(_says(_RED, text) for text in exchange.results):
        return False
    return True if any(_says(_GREEN, text) for text in exchange.results) else None


def _says(patterns: tuple[re.Pattern[str], ...], text: str) -> bool:
    return any(each.search(text) for each in patterns)


def _same(one: _Exchange, other: _Exchange) -> bool:
    return canonical_calls(one.calls) == canonical_calls(other.calls) and one.results == other.results


def canonical_calls(calls: Sequence[ToolCall]) -> str:
    """Return what calls say, however they are written, numbered and ordered; "" for none.

    Two workers' calls are the same where names, arguments and values are: space and case of texts, 5 or 5.0 or "5", and
    the order of parallel calls do not count.
    """
    return (
        json.dumps(sorted(json.dumps([each.name, _plain(_arguments(each.arguments))]) for each in calls))
        if calls
        else ""
    )


def _arguments(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _plain(value: object, depth: int = 0) -> object:
    if isinstance(value, bool) or value is None or depth > 32:
        return value if depth <= 32 else str(value)
    if isinstance(value, int | float):
        return _number(str(value))
    if isinstance(value, str):
        return _number(" ".join(value.split()).casefold().strip(" ."))
    if isinstance(value, Mapping):
        return sorted(
            ([str(name), _plain(each, depth + 1)] for name, each in value.items()), key=lambda pair: str(pair[0])
        )
    return [_plain(each, depth + 1) for each in value] if isinstance(value, Sequence) else str(value)


def _number(text: str) -> object:
    try:
        return float(text) if len(text) < 40 else text
    except ValueError:
        return text


def _tokens(*texts: str) -> int:
    return sum(len(text) if not text.isascii() else len(text) // _TOKEN_CHARACTERS + 1 for text in texts)


def _whole(turn: Turn) -> int:
    def of(message: ChatMessage) -> int:
        return _tokens(message.text, *[call.arguments for call in message.calls])

    exchanged = [(each.text, *[call.arguments for call in each.calls]) for each in turn.exchanges]
    results = [result.content for each in turn.exchanges for result in each.results]
    tools = _tokens(*[str(tool) for tool in turn.task.tools])
    spoken = sum(map(of, turn.task.history)) + sum(_tokens(*texts) for texts in exchanged)
    return spoken + tools + _tokens(turn.task.prompt, turn.task.context, *results)
