"""A conductor that follows rules from a TOML file: the first rule that fits the task names a worker or a topology.

    [[rule]]
    name = "sums"
    domain = ["math", "gsm"]          # the task's type, exactly
    keyword = ["integral", "prime"]   # whole words of the prompt, in any case
    worker = "calculator"

    [[rule]]
    language = "de"                   # a guess, see `guess_language`
    longer_than = 2000                # characters of prompt and context
    topology = "vote?n=3"

    [[rule]]                          # no condition: fits everything, so it stands last
    topology = "single"

All conditions of a rule must hold; of a list, one entry must. Invariant: the same task meets the same rule in every
round. The language is guessed here because a classifier such as py3langid names a language for every text ("42" is
Afrikaans) and loads for 0.6 s; a rule needs "unclear" as an answer. Deliberately absent:
regular expressions and scores; people must be able to read a rule aloud.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.conductors.topologies import TopologyOptions
from shikisha.core import toml
from shikisha.core.errors import ConfigError, PlanError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.task import Task
from shikisha.core.toml import Table
from shikisha.engine.conductor import Conductor, Proposal, Situation

RuleWord = Annotated[str, Field(min_length=1)]
RuleWords = Annotated[
    tuple[RuleWord, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
]


class RoutingRule(Table):
    """Conditions, and what follows: `worker` or `topology`."""

    name: str = ""
    domain: RuleWords = ()
    keyword: RuleWords = ()
    label: RuleWords = ()
    language: RuleWords = ()
    longer_than: int | None = Field(default=None, ge=0)
    shorter_than: int | None = Field(default=None, ge=1)
    worker: str | None = None
    topology: str | None = None

    @model_validator(mode="after")
    def _one_consequence(self) -> "RoutingRule":
        if (self.worker is None) == (self.topology is None):
            raise ValueError("expected either 'worker' or 'topology'")
        return self

    @property
    def fits_everything(self) -> bool:
        """Whether the rule has no condition."""
        words = (self.domain, self.keyword, self.label, self.language)
        return not any(words) and self.longer_than is None and self.shorter_than is None

    def fit(self, task: Task) -> str | None:
        """Return in words why the task fits, or None."""
        reasons = []
        for holds in (self._domain, self._label, self._length, self._keyword, self._language):
            reason = holds(task)
            if reason is None:
                return None
            reasons.append(reason)
        return ", ".join(filter(None, reasons)) or "fits everything"

    def _domain(self, task: Task) -> str | None:
        if not self.domain:
            return ""
        return f"domain {task.domain!r}" if task.domain in self.domain else None

    def _label(self, task: Task) -> str | None:
        if not self.label:
            return ""
        return next((f"label {label!r}" for label in task.labels if label in self.label), None)

    def _length(self, task: Task) -> str | None:
        length = len(task.prompt) + len(task.context)
        if self.longer_than is None and self.shorter_than is None:
            return ""
        if self.longer_than is not None and length <= self.longer_than:
            return None
        return f"{length:,} characters" if self.shorter_than is None or length < self.shorter_than else None

    def _keyword(self, task: Task) -> str | None:
        if not self.keyword:
            return ""
        return next((f"keyword {word!r}" for word in self.keyword if _word_pattern(word).search(task.prompt)), None)

    def _language(self, task: Task) -> str | None:
        if not self.language:
            return ""
        language = guess_language(task.prompt)
        return f"language {language!r}" if language in self.language else None


class RuleFile(Table):
    """The file: rules in order."""

    rule: tuple[RoutingRule, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class RuleConductor:
    """The first rule that fits decides; PlanError when none does."""

    name: str
    rules: tuple[tuple[RoutingRule, Conductor], ...]

    async def propose(self, situation: Situation) -> Proposal:
        """Propose what the first fitting rule's conductor does."""
        for index, (rule, conductor) in enumerate(self.rules):
            reason = rule.fit(situation.task)
            if reason is not None:
                proposal = await conductor.propose(situation)
                return replace(proposal, note=f"{_rule_name(index, rule)} ({reason}): {proposal.note}")
        raise PlanError("no rule fits this task; a last rule without conditions would", self.name)


def load_rules(path: Path, workers: Sequence[str] | None = None) -> RuleConductor:
    """Read the rules; ConfigError names file, rule and key. `workers`, when given, are the names a rule may use."""
    rules = toml.validate_model(RuleFile, toml.read_toml(path), str(path)).rule
    for index, rule in enumerate(rules[:-1]):
        if rule.fits_everything:
            raise ConfigError(f"{path}: {_rule_name(index, rule)} has no condition, so no later rule is ever reached")
    return RuleConductor(
        f"rules:{path}", tuple((rule, _rule_conductor(path, i, rule, workers)) for i, rule in enumerate(rules))
    )


def _rule_conductor(path: Path, index: int, rule: RoutingRule, workers: Sequence[str] | None) -> Conductor:
    where = f"{path}: rule[{index}]"
    if rule.worker is None:
        try:
            return fixed_conductor(rule.topology or "")
        except ConfigError as error:
            raise ConfigError(f"{where}.topology: {error}") from None
    if workers is not None and rule.worker not in workers:
        raise ConfigError(f"{where}.worker: unknown worker {rule.worker!r}: known are {', '.join(sorted(workers))}")
    return fixed_conductor("single", TopologyOptions(roles={"worker": rule.worker}))


def _rule_name(index: int, rule: RoutingRule) -> str:
    return f"rule {index} {rule.name!r}" if rule.name else f"rule {index}"


def _word_pattern(word: str) -> re.Pattern[str]:
    """Match whole words; scripts without spaces between words (from U+2E80) match anywhere."""
    start = r"(?<!\w)" if word[:1] < "\u2e80" else ""
    end = r"(?!\w)" if word[-1:] < "\u2e80" else ""
    return re.compile(start + re.escape(word) + end, re.IGNORECASE)


_LETTERS = re.compile(r"[^\W\d_]+")
# A longer text does not improve the guess.
_MAX_CHARACTERS = 4_000

_SCRIPTS = (
    ("ja", "\u3040", "\u30ff"),
    ("ko", "\uac00", "\ud7af"),
    ("zh", "\u4e00", "\u9fff"),
    ("ru", "\u0400", "\u04ff"),
    ("el", "\u0370", "\u03ff"),
    ("he", "\u0590", "\u05ff"),
    ("ar", "\u0600", "\u06ff"),
    ("hi", "\u0900", "\u097f"),
    ("th", "\u0e00", "\u0e7f"),
)

_COMMON_TEXT = {
    "en": "the of and to in is that it for was with as are this what which how from have you not by an",
    "de": "der die das und ist nicht ein eine zu den von mit auf für sich dem wie was ich wird sind welche im",
    "fr": "le la les des et est une que qui dans pour pas sur avec ce il au du sont quelle nous plus ne",
    "es": "el los las y es una que en por para con del no se su al como qué cuál más son está lo",
    "pt": "o os as e é uma que em por para com do da não se no na como qual mais são está ao",
    "it": "il gli le e è una che di per con del della non si nel come quale più sono ha un i",
    "nl": "de het een en is niet van dat op te voor met zijn wat hoe er aan welke wordt ook naar",
    "sv": "och att det som en ett är på för med av inte den vad hur till jag har var från",
}
_COMMON_WORDS = {language: frozenset(words.split()) for language, words in _COMMON_TEXT.items()}


def guess_language(text: str) -> str:
    """Return an ISO 639-1 code (`en`, `de`, `ja`, …), or "" when the evidence is unclear."""
    words = _LETTERS.findall(text[:_MAX_CHARACTERS].casefold())
    letters = Counter(_script(letter) for word in words for letter in word)
    if letters["ja"]:
        # Japanese is written with Chinese characters too.
        letters["ja"] += letters.pop("zh", 0)
    script, count = max(letters.items(), key=lambda item: item[1], default=("", 0))
    if script != "latin":
        return script if count > letters.total() / 2 else ""
    # The language with most frequent words: at least two, and 1.5 times as many as the next language
    hits = Counter({language: sum(word in known for word in words) for language, known in _COMMON_WORDS.items()})
    (best, most), (_, next_most) = hits.most_common(2)
    return best if most >= 2 and most >= 1.5 * next_most else ""


def _script(letter: str) -> str:
    if letter < "\u0250":
        return "latin"
    return next((name for name, first, last in _SCRIPTS if first <= letter <= last), "")
