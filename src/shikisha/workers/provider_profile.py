"""What providers of language models send, want back and refuse: one data file for each, read into one table.

An endpoint is known by the host of its address; whatever has another address (a gateway, a server of one's own) is read
with the words of all files together, because most of them repeat a provider's. Invariants: a profile is data, and an
unknown key in one is an error that names the file; a word has one meaning in all files (numbers, which repeat, count
for their own provider only); nothing here is a secret or a price. Deliberately absent: models, addresses and keys
(`config.providers`), and code for a single provider: what a file cannot say, no provider gets.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import Field

from shikisha.core.errors import ConfigError, FaultCause
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.toml import Table, validate_model

M = TypeVar("M")
Words = tuple[str, ...]
CauseWords = dict[FaultCause, Words]


class ReasoningFacts(Table):
    """Where thoughts stand in a message, and whether they go back with a turn that calls tools."""

    fields: Words = ()
    marks: tuple[tuple[str, str], ...] = ()  # around thoughts in the text itself
    back: Literal["required", "accepted", "refused"] = "accepted"


class CallFacts(Table):
    """Limits of tools. `id` is a pattern of the call ids that are taken, whoever made them."""

    id: str = "[a-zA-Z0-9]{9}"
    max_name: int = 64
    max_tools: int | None = None


class RequestFacts(Table):
    """How a request is written: the name of the output limit, and which of our own additions are refused."""

    limit: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    refuses: Words = ()
    schema_mode: bool = False  # held to a JSON Schema by the endpoint itself, in OpenAI's strict mode


class UsageFacts(Table):
    """Where usage stands in a chunk, and its words for each kind of tokens, as dotted paths.

    `beside`: words for input that leave out what was read from a cache or written to one.
    """

    places: Words = ()
    input: Words = ()
    beside: Words = ()
    output: Words = ()
    cached: Words = ()
    cache_write: Words = ()
    cache_write_5m: Words = ()
    cache_write_1h: Words = ()
    reasoning: Words = ()
    image: Words = ()
    audio: Words = ()
    image_output: Words = ()
    audio_output: Words = ()
    more_input: Words = ()  # of other calls, billed besides the answer's own
    more_cached: Words = ()
    more_output: Words = ()


class ErrorFacts(Table):
    """What errors are called: codes and types, phrases in messages, and where the seconds to wait stand."""

    codes: CauseWords = Field(default={})
    phrases: CauseWords = Field(default={})
    waits: Words = ()  # dotted paths in the body of an error: seconds, or a text such as "21s"


class FinishFacts(Table):
    """Words for how an answer ended."""

    complete: Words = ()
    calls: Words = ()
    truncated: Words = ()
    refused: Words = ()
    failed: Words = ()
    malformed: Words = ()  # what the model wrote cannot be read as a call


class ProviderProfile(Table):
    """One provider; `hosts` are the last labels of its addresses, `names` its names in `config.providers`."""

    title: str
    names: Words
    hosts: Words = ()
    sources: Words
    reasoning: ReasoningFacts = ReasoningFacts.model_construct()
    calls: CallFacts = CallFacts.model_construct()
    request: RequestFacts = RequestFacts.model_construct()
    usage: UsageFacts = UsageFacts.model_construct()
    errors: ErrorFacts = ErrorFacts.model_construct()
    finish: FinishFacts = FinishFacts.model_construct()
    end: Literal["[DONE]", "close"] = "[DONE]"
    cache_seconds: float | None = None  # how long a prefix is kept at least after its last use, where that is stated

    @property
    def error_codes(self) -> Mapping[str, FaultCause]:
        """The cause for each code and type, in lower case: the provider's own first, then all others' words."""
        return {**vocabulary().codes, **{word: cause for cause, words in self.errors.codes.items() for word in words}}


@dataclass(frozen=True, slots=True)
class WireVocabulary:
    """The words of all providers together."""

    reasoning: frozenset[str]
    marks: tuple[tuple[str, str], ...]
    usage: Mapping[str, tuple[str, ...]]
    usage_keys: frozenset[str]  # with which the places of usage begin
    codes: Mapping[str, FaultCause]
    phrases: tuple[tuple[re.Pattern[str], FaultCause], ...]
    waits: tuple[str, ...]
    finish: Mapping[str, str]


def parse_profile(text: str, where: str) -> ProviderProfile:
    """Return the profile in a TOML text; ConfigError names file, key and what was expected."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: not TOML: {error}") from None
    return validate_model(ProviderProfile, data, where)


@cache
def provider_profiles() -> Mapping[str, ProviderProfile]:
    """Return the profiles that are shipped, by the name of their file."""
    folder = resources.files("shikisha.workers").joinpath("profiles")
    named = [each for each in folder.iterdir() if each.name.endswith(".toml")]
    files = sorted(named, key=lambda each: (each.name != "openai.toml", each.name))  # its words are the usual ones
    return {
        each.name.removesuffix(".toml"): parse_profile(each.read_text(encoding="utf-8"), f"profiles/{each.name}")
        for each in files
    }


UNKNOWN_ENDPOINT = ProviderProfile.model_construct(title="any other endpoint", names=(), sources=())


def profile_named(name: str) -> ProviderProfile:
    """Return the profile of a provider as `config.providers` names it; that of any other endpoint where none is."""
    return next((each for each in provider_profiles().values() if name in each.names), UNKNOWN_ENDPOINT)


def profile_at(url: str, provider: str | None = None) -> ProviderProfile:
    """Return the profile of whoever has this address, or of the provider whose form it is said to have."""
    if provider is not None:
        return profile_named(provider)
    host = f".{urlsplit(url).hostname or ''}"
    found = [each for each in provider_profiles().values() if any(host.endswith(f".{end}") for end in each.hosts)]
    return found[0] if found else UNKNOWN_ENDPOINT


@cache
def vocabulary() -> WireVocabulary:
    """Return the words of all providers; a word with two meanings is a ConfigError."""
    profiles = provider_profiles().values()
    codes = _one_meaning(
        (word, cause) for each in profiles for cause, words in each.errors.codes.items() for word in words
    )
    finish = _one_meaning(
        (word, kind) for each in profiles for kind, words in each.finish.model_dump().items() for word in words
    )
    phrases = {cause: "|".join(f"(?:{each})" for each in found) for cause, found in _all_phrases().items()}
    return WireVocabulary(
        frozenset(field for each in profiles for field in each.reasoning.fields),
        tuple(dict.fromkeys(marks for each in profiles for marks in each.reasoning.marks)),
        {kind: _merged(kind) for kind in UsageFacts.model_fields},
        frozenset(place.partition(".")[0] for place in _merged("places")),
        {word: cause for word, cause in codes.items() if not word.isdecimal()},
        tuple((re.compile(phrases[cause], re.IGNORECASE), cause) for cause in FaultCause if cause in phrases),
        tuple(dict.fromkeys(path for each in profiles for path in each.errors.waits)),
        finish,
    )


def _merged(kind: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for each in provider_profiles().values() for path in getattr(each.usage, kind)))


def _all_phrases() -> dict[FaultCause, list[str]]:
    found: dict[FaultCause, list[str]] = {}
    for each in provider_profiles().values():
        for cause, phrases in each.errors.phrases.items():
            found.setdefault(cause, []).extend(phrases)
    return found


def _one_meaning(pairs: Iterator[tuple[str, M]]) -> dict[str, M]:
    meanings: dict[str, M] = {}
    for word, meaning in pairs:
        if word != word.casefold():
            raise ConfigError(f"profiles: {word!r}: expected lower case")
        if not word.isdecimal() and meanings.setdefault(word, meaning) != meaning:
            raise ConfigError(f"profiles: {word!r} means both {meanings[word]} and {meaning}")
    return meanings
