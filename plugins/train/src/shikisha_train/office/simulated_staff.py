"""The simulated workers of the office at work: what a subtask asks for, what was granted, and what they answer.

A worker knows the question behind a task's text (it is simulated, and named so), finds the parts that its subtask
quotes or resembles, takes granted results for what it needs, works, and errs as `staff` says. A worker that is granted
a wrong result goes on with it.

Invariants: an answer is a function of the request, its idempotency key and the worker's `luck`, and no text is run as
code. What a worker does not know depends on its family and the part, not on the attempt; a slip depends on the key.
`call_success` is the exact chance that a call is right, given right inputs. Deliberately absent: opinions of cards.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shikisha.core.budget import Usage
from shikisha.core.visibility import request_messages
from shikisha.engine.worker import Reply, Request
from shikisha_train.office.company import OfficeValue, read_value, write_value, wrong_value
from shikisha_train.office.questions import EarlierPart, OfficeQuestion, parts_in
from shikisha_train.office.seeded_random import hash_fraction
from shikisha_train.office.staff import (
    CHECK_COST,
    CHECK_KEEPS,
    CHECK_POWER,
    IRRELEVANT_SHOWN,
    MORE_PARTS,
    StaffMember,
    WordingFeature,
)

# How a worker notices a feature in a subtask: anybody's words count that match.
_FEATURE_PATTERNS = {
    WordingFeature.FORMAT: re.compile(
        r"\b(only|just) (with )?(the )?(result|answer|number|value|name)|result only", re.I
    ),
    WordingFeature.UNIT: re.compile(r"\bunits?\b|YYYY-MM-DD|\bISO\b|whole number", re.I),
    WordingFeature.EXAMPLE: re.compile(r"\bfor (example|instance)\b|\be\.g\.", re.I),
    WordingFeature.CHECK: re.compile(r"\b(double-check|twice|go over (it|your)|check (it|your))", re.I),
}
# What an earlier round brought, as a later round's subtask states it: a further round grants no earlier step.
_KNOWN = re.compile(r'Known: "(?P<said>[^"]+)" gave (?P<value>[\w-]+(?: [\w-]+)?)\.(?=\s|$)')
_CHECK_SUBTASK = re.compile(r"\s*(check|verify|review)\b", re.I)
LACKS, LOST = "I lack the result of an earlier part.", "I cannot make sense of this."
_TOKEN = re.compile(r"\w+|[^\w\s]")


def features_of(subtask: str, question: OfficeQuestion) -> frozenset[WordingFeature]:
    """Return the wording features that a subtask has besides the question's own sentences."""
    own = subtask
    for sentence in (question.text, *question.sentences):
        own = own.replace(sentence, " ") if sentence else own
    return advised_features(own)


def advised_features(text: str) -> frozenset[WordingFeature]:
    """Return the wording features that a text has, in anybody's words."""
    return frozenset(feature for feature, pattern in _FEATURE_PATTERNS.items() if pattern.search(text))


def call_success(
    member: StaffMember,
    question: OfficeQuestion,
    part: int,
    count: int,
    features: frozenset[WordingFeature],
    irrelevant: int = 0,
) -> float:
    """Return the chance that a call that does `count` parts does this one right, given right inputs."""
    kind = question.parts[part].kind
    return member.knows(kind) * steadiness(member, question, part, count, features, irrelevant)


def steadiness(
    member: StaffMember,
    question: OfficeQuestion,
    part: int,
    count: int,
    features: frozenset[WordingFeature],
    irrelevant: int,
) -> float:
    """Return the chance that a worker does not slip at a part, in a call that does `count` parts."""
    kept = member.steady(question.parts[part].kind) * MORE_PARTS ** ((count - 1) / count)
    return float(kept * member.wording_factor(features) ** (1 / count) * IRRELEVANT_SHOWN ** (irrelevant / count))


@dataclass(frozen=True, slots=True)
class SeenResults:
    """The granted results by part; `irrelevant` counts those that no asked part needs."""

    values: Mapping[int, OfficeValue]
    irrelevant: int


class SimulatedStaff:
    """A worker of the office; `luck` seeds what it knows and where it slips."""

    def __init__(self, member: StaffMember, question: OfficeQuestion, task_id: str, luck: int) -> None:
        self.member, self.question, self.task_id, self.luck = member, question, task_id, luck

    async def perform(self, request: Request) -> Reply:
        """Answer the subtask, or say what is missing."""
        text, cost = self.answer(request)
        prompt = sum(len(_TOKEN.findall(turn.text)) for turn in request_messages(request))
        usage = Usage(prompt, len(_TOKEN.findall(text)))
        return Reply(text, usage, dollars=self.member.price * cost, model=self.member.name)

    def answer(self, request: Request) -> tuple[str, float]:
        """Return what the worker says, and which share of its price it takes."""
        subtask = _KNOWN.sub(" ", request.subtask)
        is_check = _CHECK_SUBTASK.match(subtask) is not None
        asked = parts_in(subtask, self.question)
        seen = self._seen(request, asked, is_check=is_check)
        if is_check and len(asked) == 1 and asked[0] in seen.values:
            return self._check(asked[0], seen, request), CHECK_COST[self.question.parts[asked[0]].kind]
        return self._work(asked, seen, request), 1.0

    def _seen(self, request: Request, asked: Sequence[int], *, is_check: bool) -> SeenResults:
        values = {
            parts_in(match["said"], self.question)[-1]: read_value(match["value"])
            for match in _KNOWN.finditer(request.subtask)
        }
        for earlier in request.granted:
            if earlier.text is None or earlier.text in (LACKS, LOST):
                continue
            covered = parts_in(earlier.subtask, self.question)
            values[covered[-1]] = read_value(earlier.text)
        needed = {at for part in asked for at in self.question.parts[part].uses} | (set(asked) if is_check else set())
        rule = self.question.condition
        if rule is not None and any(part >= rule.first_then for part in asked):
            needed.add(rule.on)
        return SeenResults(values, len(values.keys() - needed))

    def _work(self, asked: Sequence[int], seen: SeenResults, request: Request) -> str:
        """Do the parts that are asked for, in order, and answer with the last one's result."""
        done = dict(seen.values)
        wanted = set(asked)
        rule = self.question.condition
        features = features_of(request.subtask, self.question)
        count = self._count(wanted)
        for part in sorted(asked):
            if rule is not None and part >= rule.first_then and rule.on in done:
                wanted &= set(self.question.taken(done[rule.on]))
            if part not in wanted:
                continue
            value = self._value(part, done)
            if value is None:
                return LACKS
            done[part] = self._err(value, part, count, features, seen.irrelevant, request.key)
        return write_value(done[max(wanted)]) if wanted else LOST

    def _count(self, asked: set[int]) -> int:
        """Return how many parts a call does; of two branches only one is done, and they are of one length."""
        rule = self.question.condition
        if rule is None or not any(part >= rule.first_else for part in asked):
            return len(asked)
        then = [part for part in asked if rule.first_then <= part < rule.first_else]
        other = [part for part in asked if part >= rule.first_else]
        return len(asked) - min(len(then), len(other))

    def _value(self, part: int, done: Mapping[int, OfficeValue]) -> OfficeValue | None:
        """Return the part's value for what is at hand; None where an input is missing."""
        inputs: list[OfficeValue] = []
        for given in self.question.parts[part].inputs:
            if isinstance(given, EarlierPart):
                if given.part not in done:
                    return None
                inputs.append(done[given.part])
            else:
                inputs.append(given)
        return self.question.parts[part].operation.apply(inputs, self.question.parts[part].constants)

    def _err(
        self,
        value: OfficeValue,
        part: int,
        count: int,
        features: frozenset[WordingFeature],
        irrelevant: int,
        key: str,
    ) -> OfficeValue:
        member, kind = self.member, self.question.parts[part].kind
        if hash_fraction("knows", self.luck, member.family, self.task_id, part) >= member.knows(kind):
            return wrong_value(value, "family", self.luck, member.family, self.task_id, part)
        chance = steadiness(member, self.question, part, count, features, irrelevant)
        if hash_fraction("slip", self.luck, member.name, self.task_id, part, key) >= chance:
            return wrong_value(value, "slip", self.luck, member.name, self.task_id, part, key)
        return value

    def _check(self, part: int, seen: SeenResults, request: Request) -> str:
        """Return the stated result, or the worker's own where it finds the stated one wrong."""
        stated = seen.values[part]
        value = self._value(part, {at: known for at, known in seen.values.items() if at != part})
        if value is None:
            return LACKS
        kind = self.question.parts[part].kind
        draw = hash_fraction("check", self.luck, self.member.name, self.task_id, part, request.key)
        if draw < (1 - CHECK_KEEPS if value == stated else CHECK_POWER[kind] * self.member.levels[kind]):
            features = features_of(request.subtask, self.question)
            return write_value(self._err(value, part, 1, features, seen.irrelevant, request.key))
        return write_value(stated)
