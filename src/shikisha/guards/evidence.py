"""What a run has been shown, and the identifiers in a call's arguments that must be among it.

An identifier is a value that names one thing in the world: an id, a key, an e-mail address, a link. A language model
that does not know one writes a likely one. Invariants: looking one up is exact up to case, so a part of a longer
identifier is not the identifier; the work is linear in texts and arguments, and what is too large is refused.
Deliberately absent: judging text that names nothing (a subject, a note), which only the task can justify.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from shikisha.core.errors import FaultKind
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.messages import Json, Speaker
from shikisha.engine.guards import GuardSituation

QUESTION = "question"  # the source of everything that the user wrote
STEPS = "steps"  # the source of the answers of earlier steps that this one sees

# The classes of failure: where an agent went wrong, as studies of web and tool agents count them.
NAVIGATION = "navigation"  # it acts on what it was not led to: an unseen id, another record, a stale view
CONTENT = "content"  # it acts on the right thing with wrong values
INCOMPLETE = "incomplete"  # it stopped before everything was done
TOOL_USE = "tool use"  # it calls tools that are not there, or with arguments that no tool takes

_FAULTS = frozenset(map(str, FaultKind))
MAX_VALUES = 2_000  # scalars in one call's arguments
MAX_DEPTH = 40
_LONGEST_IDENTIFIER = 512

_EMAIL = re.compile(r"[\w.+%-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_LINK = re.compile(r"https?://[^\s\"'<>)\]}]{1,2000}", re.IGNORECASE)
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_CODE = re.compile(r"#?(?=[\w-]*\d{3})(?=[\w-]*[A-Za-z])[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*")  # W2378156, INC-00042
_DIGITS = re.compile(r"#?\d{6,}")  # an order's number; shorter ones are amounts and counts more often
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:?\d{2}.*)?")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ID_WORDS = frozenset(
    (
        *("id", "ids", "uuid", "guid", "key", "sku", "iban", "isbn", "url", "uri", "phone", "username"),
        *("email", "emails", "mail", "recipient", "recipients", "cc", "bcc"),
    )
)
_ID_FORMATS = frozenset({"email", "idn-email", "uri", "uri-reference", "iri", "uuid", "hostname", "ipv4", "ipv6"})
_SEPARATORS = re.compile(r"[,;\s]+")


@dataclass(frozen=True, slots=True)
class ArgumentValue:
    """A scalar in a call's arguments: its place (`items[0].sku`), its text, and whether an identifier belongs there."""

    path: str
    text: str
    named: bool = False


@dataclass(frozen=True, slots=True)
class ShownText:
    """A text that was shown: whose it is (`question`, or the name of a tool), folded for comparison."""

    source: str
    folded: str
    values: frozenset[str] = frozenset()  # the whole scalars of a JSON result, folded


@dataclass(slots=True)
class Evidence:
    """All texts that a run has been shown so far, in order: `add` takes one in, `find` is called before each write."""

    texts: list[ShownText] = field(default_factory=list)

    def add(self, source: str, text: str) -> None:
        """Take in one text: the user's words, or a tool's result."""
        self.texts.append(_shown(source, text))

    def find(self, identifier: str, sources: Iterable[str] = (), *, whole: bool = False) -> str | None:
        """Return who showed this identifier first, None if nobody did.

        `sources` restricts who may have; `whole` wants it to be a whole value of a tool's JSON result, so that an
        identifier inside a text that a stranger wrote (the body of an e-mail, a note) counts as not shown.
        """
        wanted, folded = frozenset(sources), identifier.casefold().strip()
        for shown in self.texts:
            if wanted and shown.source not in wanted:
                continue
            strict = whole and shown.source != QUESTION
            if folded in shown.values if strict else _holds_token(shown.folded, folded):
                return shown.source
        return None


def read_arguments(arguments: Mapping[str, Json], schema: Mapping[str, Json] | None = None) -> list[ArgumentValue]:
    """Return every scalar in the arguments; ValueError when there are too many, or they are nested too deep."""
    found: list[ArgumentValue] = []
    _read(arguments, "", _properties(schema), found, 0, named=False)
    return found


def identifiers(value: ArgumentValue) -> Iterator[str]:
    """Yield the identifiers in one argument: its parts where its place is an identifier's, else what looks like one."""
    text = value.text.strip()
    if not text:
        return
    if value.named:
        parts = [text] if len(text) <= _LONGEST_IDENTIFIER and not _SEPARATORS.search(text) else _split(text)
        yield from parts
        return
    short = len(text) <= _LONGEST_IDENTIFIER and not _DATE.fullmatch(text)
    if short and any(shape.fullmatch(text) for shape in (_UUID, _CODE, _DIGITS)):
        yield text
        return
    for shape in (_EMAIL, _LINK):
        for match in shape.finditer(text):
            yield match.group().rstrip(".,;:!?")


def _split(text: str) -> list[str]:
    """Return the identifiers of a list in one text; a name of several words is one."""
    addresses = [match.group() for match in _EMAIL.finditer(text)] or [match.group() for match in _LINK.finditer(text)]
    if addresses:
        return addresses
    parts = [part.strip() for part in re.split(r"[,;\n]+", text)]
    return [part for part in parts if part]


def _read(
    value: Json, path: str, schema: Mapping[str, Json], found: list[ArgumentValue], depth: int, *, named: bool
) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"{path or 'arguments'}: nested deeper than {MAX_DEPTH}")
    if len(found) >= MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES:,} values")
    if isinstance(value, Mapping):
        for name, part in value.items():
            own = schema.get(name)
            own = own if isinstance(own, Mapping) else {}
            # Whether an argument of this name is an identifier, by its last word (`customer_id`, `orderIds`,
            # `to_email`).
            words = [word.casefold() for word in _WORDS.findall(name[:_LONGEST_IDENTIFIER])]
            is_named = (bool(words) and words[-1] in _ID_WORDS) or own.get("format") in _ID_FORMATS
            _read(part, f"{path}.{name}" if path else name, _properties(own), found, depth + 1, named=is_named)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for place, part in enumerate(value):
            _read(part, f"{path}[{place}]", schema, found, depth + 1, named=named)
    elif isinstance(value, str):
        found.append(ArgumentValue(path, value, named))
    elif value is not None and not isinstance(value, bool):
        found.append(ArgumentValue(path, _number_text(value), named))


def _number_text(value: int | float) -> str:
    """Return a number as a JSON result shows it."""
    return json.dumps(value)


def _properties(schema: Mapping[str, Json] | None) -> Mapping[str, Json]:
    """Return the schemas of an object's members, those of a list's items where it is a list."""
    found: Json = schema or {}
    for _ in range(MAX_DEPTH):
        if not isinstance(found, Mapping):
            break
        if isinstance(properties := found.get("properties"), Mapping):
            return properties
        found = found.get("items")
    return {}


def _holds_token(text: str, token: str) -> bool:
    """Whether the text holds the token with no letter or digit right before or after it."""
    if not token:
        return True
    start = text.find(token)
    while start >= 0:
        end = start + len(token)
        before, after = text[start - 1 : start], text[end : end + 1]
        if not (_is_word(before) and _is_word(token[0])) and not (_is_word(after) and _is_word(token[-1])):
            return True
        start = text.find(token, start + 1)
    return False


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _whole_values(text: str) -> Iterator[str]:
    """Yield the scalars of a JSON text, folded; a text that is no JSON has none but itself."""
    try:
        found: list[object] = [json.loads(text)]
    except (ValueError, RecursionError):
        yield text.casefold().strip()
        return
    while found:
        value = found.pop()
        if isinstance(value, dict):
            found += value.values()
            yield from map(str.casefold, value)  # a mapping from id to record is a usual result
        elif isinstance(value, list):
            found += value
        elif isinstance(value, str):
            yield value.casefold().strip()
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield _number_text(value)


def gather_evidence(situation: GuardSituation) -> Evidence:
    """Return everything that the agent was shown: the user's words, granted steps, and its tools' results so far."""
    task, evidence = situation.task, Evidence()
    for text in (task.prompt, task.context, *(turn.text for turn in task.history if turn.speaker is Speaker.USER)):
        if text:
            evidence.texts.append(_shown(QUESTION, text))
    evidence.texts += [_shown(STEPS, granted.text) for granted in situation.granted if granted.text]
    for exchange in (*task.exchanges, *situation.exchanges):
        for call, result in zip(exchange.calls, exchange.results, strict=False):
            if not is_refusal(result.content):
                evidence.texts.append(_shown(call.name, result.content))
    return evidence


def is_refusal(content: str) -> bool:
    """Whether a result is our own word that the call was not made, or failed: it quotes what the agent wrote."""
    if not content.startswith('{"error":'):
        return False
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("error") in _FAULTS and "tool" in found


@lru_cache(maxsize=128)
def _shown(source: str, text: str) -> ShownText:
    """Return a text as evidence; an agent's earlier results come by at every write."""
    return ShownText(source, text.casefold(), frozenset(_whole_values(text)))
