"""A simulated planner for the office: it reads a planner's real prompt, and plans as its cards and notes suggest.

It stands where a language model would stand behind `lm:WORKER`, and is named simulated wherever it appears. It knows
the question behind the text, as the simulated staff does: which sentence is which part. Everything else it takes from
the prompt: what cards claim, what notes on cards count ("right on 12 of 14"), what it is advised to tell workers. It
follows each piece of advice on a share `obedience` of the tasks. A `forgetful` one shows no step an earlier result
until it is advised to. It prices its tokens as a small real model does.

Invariants: a plan is a function of the prompt, the task and `luck`; it never sees a level. Deliberately absent:
conditions and further rounds, and doubt: it believes every card.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from shikisha.core.budget import Price, Usage
from shikisha.core.plan import MAX_STEPS
from shikisha.engine.pool import Member
from shikisha.engine.worker import Card, Reply, Request
from shikisha_train.office.cards import card_texts
from shikisha_train.office.company import WorkKind
from shikisha_train.office.part_plans import DOLLAR_WEIGHT, WORDINGS
from shikisha_train.office.questions import OfficeQuestion
from shikisha_train.office.seeded_random import hash_fraction
from shikisha_train.office.simulated_staff import advised_features
from shikisha_train.office.staff import KINDS

PLANNER_NAME = "simulated planner"
PLANNER_PRICE = Price(0.25, 2.0)  # dollars per million tokens: a small model of 2025
_REASONING = "Each sentence asks for one thing; a model that claims it, at the lowest price, gets it."
_MODEL = re.compile(r"^Model (\d+) \((.*)\)$")
_PRICE = re.compile(r"\$([\d.e-]+) a call")
_ALL = re.compile(r"Outcomes: right on (\d+) of (\d+)")
_LIKE = re.compile(r"At work like '([^']*)': right on (\d+) of (\d+)\.")
_TOKEN = re.compile(r"\w+|[^\w\s]")
_CLAIMED, _UNCLAIMED = 0.7, 0.15
_PRIOR = 2.0  # outcomes that a claim is worth
_MISNAMED = 0.1  # the share of parts whose kind of work it draws, where it should name it


@dataclass(frozen=True, slots=True)
class ReadCard:
    """What the planner reads of one model: its claims, price, and counts by the start of a sentence."""

    claims: frozenset[WorkKind]
    price: float
    overall: tuple[int, int]
    like: Mapping[str, tuple[int, int]]

    def score(self, kind: WorkKind, sentence: str) -> float:
        """Return how promising the model seems for a part."""
        prior = _CLAIMED if kind in self.claims else _UNCLAIMED + 0.02 * len(self.claims)
        if self.overall[1]:
            prior = (prior * 4 + self.overall[0]) / (4 + self.overall[1])
        start = " ".join(sentence.split())
        right, tries = next((self.like[said] for said in self.like if said and start.startswith(said)), (0, 0))
        return (right + _PRIOR * prior) / (tries + _PRIOR) - DOLLAR_WEIGHT * self.price


_DEAREST = re.compile(r"most expensive|dearest|strongest model", re.I)
_SHOWS = re.compile(r"\b(show|grant)\b[^.]*\bresults?\b", re.I)
_LACKED = "I lack the result of an earlier part."
_CHEAPEST = re.compile(r"always (take|use) the cheapest", re.I)
# What a simulated reflector may think of: advice that helps if workers want to be told it, and advice that does not.
USEFUL_ADVICE = (
    "Tell each model to reply with the result only.",
    "Tell each model to mind the units and to write dates as YYYY-MM-DD.",
    "Tell each model to go over its result twice.",
    "Give each model an example, for example 1234.",
)
SHOW_RESULTS = "Show each step the earlier results that it needs."
IDLE_ADVICE = (
    "Be polite to the models.",
    "Think about the question from all sides before you plan.",
    "Remember that the user is busy.",
    "Give everything to the most expensive model.",
    "Always take the cheapest model.",
    "Number the steps.",
    "Keep the reasoning short.",
    "Mention the company's name in each step.",
)


class SimulatedReflector:
    """A worker that edits advice: it adds one sentence, a useful one with probability `skill`, or answers no JSON.

    Where the feedback says that a worker lacked a result, the useful sentence is the one about that.
    `blunders` is how often it answers something else than JSON, `repeats` how often it repeats the advice as it is.
    """

    def __init__(self, seed: int, skill: float = 0.5, blunders: float = 0.1, repeats: float = 0.1) -> None:
        self.seed, self.skill, self.blunders, self.repeats = seed, skill, blunders, repeats
        self.calls = 0

    async def perform(self, request: Request) -> Reply:
        """Answer with an edit of the advice that the request quotes."""
        self.calls += 1
        text = self.edit(request.task.prompt)
        return Reply(text, Usage(len(_TOKEN.findall(request.task.prompt)), len(_TOKEN.findall(text))), dollars=0.002)

    def edit(self, prompt: str) -> str:
        """Return what it says."""
        quoted = prompt.partition("The advice now:\n")[2].partition("\n\n")[0]
        advice = " ".join(line.removeprefix("| ") for line in quoted.split("\n")).replace("(none)", "").strip()

        def draw(word: str) -> float:
            return hash_fraction(word, self.seed, prompt)

        if draw("blunder") < self.blunders:
            return "I would tell them to try harder."
        if draw("repeat") < self.repeats:
            return json.dumps({"advice": advice})
        able = draw("skill") < self.skill
        if able and _LACKED in prompt and SHOW_RESULTS not in advice:
            return json.dumps({"advice": f"{advice} {SHOW_RESULTS}".strip()})
        sort = USEFUL_ADVICE if able else IDLE_ADVICE
        left = [sentence for sentence in sort if sentence not in advice] or list(IDLE_ADVICE)
        return json.dumps({"advice": f"{advice} {left[int(draw('which') * len(left))]}".strip()})


class SimulatedPlanner:
    """A worker that writes plans for one question."""

    def __init__(
        self,
        question: OfficeQuestion,
        obedience: float = 0.9,
        luck: int = 0,
        *,
        forgetful: bool = False,
        most: int = MAX_STEPS,
    ) -> None:
        self.question, self.obedience, self.luck, self.forgetful = question, obedience, luck, forgetful
        self.most = most

    async def perform(self, request: Request) -> Reply:
        """Write a plan for the prompt in the request's turns."""
        prompt = "\n".join(turn.text for turn in request.turns)
        text = self.plan_text(prompt, request.task.content_hash)
        usage = Usage(len(_TOKEN.findall(prompt)), len(_TOKEN.findall(text)))
        return Reply(text, usage, dollars=PLANNER_PRICE.of(usage), model=PLANNER_NAME)

    def _preference(self, advice: str, task: str) -> Callable[[ReadCard, WorkKind, str], float]:
        """Return whom it prefers: as cards say, or by price alone if it is advised so and obeys."""
        if hash_fraction("obeys", self.luck, task, "price") < self.obedience:
            if _DEAREST.search(advice):
                return _by_price
            if _CHEAPEST.search(advice):
                return _by_low_price
        return ReadCard.score

    def plan_text(self, prompt: str, task: str) -> str:
        """Return the plan as JSON."""
        cards = read_cards(prompt)
        advice = prompt.rpartition("Advice from earlier runs.")[2] if "Advice from earlier runs." in prompt else ""
        advice = advice.partition("\nQuestion:")[0]
        features = [
            feature
            for feature in sorted(advised_features(advice))
            if hash_fraction("obeys", self.luck, task, feature) < self.obedience
        ]
        score = self._preference(advice, task)
        obeys = hash_fraction("obeys", self.luck, task, "shows") < self.obedience
        shows = not self.forgetful or (obeys and _SHOWS.search(advice) is not None)
        told = "".join(f" {WORDINGS[feature]}" for feature in features)
        steps = []
        for part, (sentence, piece) in enumerate(zip(self.question.sentences, self.question.parts, strict=True)):
            worker = max(cards, key=lambda at: score(cards[at], piece.kind, sentence))
            access = list(piece.uses) if shows else []
            named = piece.kind
            if hash_fraction("misnames", self.luck, task, part) < _MISNAMED:
                named = KINDS[int(hash_fraction("named", self.luck, task, part) * len(KINDS))]
            steps.append({"worker": worker, "subtask": f"{sentence}{told}", "access": access, "kind": str(named)})
            if part + 1 == self.most:
                break
        return json.dumps({"reasoning": _REASONING, "steps": steps})


def _by_price(card: ReadCard, kind: WorkKind, sentence: str) -> float:
    del kind, sentence
    return card.price


def _by_low_price(card: ReadCard, kind: WorkKind, sentence: str) -> float:
    return -_by_price(card, kind, sentence)


def planner_member(
    question: OfficeQuestion,
    obedience: float = 0.9,
    luck: int = 0,
    *,
    forgetful: bool = False,
    most: int = MAX_STEPS,
) -> Member:
    """Return the planner as a member that `LanguageModelConductor` asks."""
    card = Card(PLANNER_NAME, "writes plans", "simulated", PLANNER_PRICE, max_output_tokens=2_000)
    return Member(card, SimulatedPlanner(question, obedience, luck, forgetful=forgetful, most=most))


def read_cards(prompt: str) -> dict[int, ReadCard]:
    """Return what the last list of models in a prompt says, by ordinal; a counter of votes is no model for a part."""
    found = dict[int, ReadCard]()
    lines = prompt.rpartition("\nModels:\n")[2].split("\n")
    for at, line in enumerate(lines):
        match = _MODEL.match(line)
        if match is None:
            continue
        said = next((lines[at + 1][2:] for _ in (0,) if at + 1 < len(lines) and lines[at + 1].startswith("| ")), "")
        if "counts the votes" in said:
            continue
        price = _PRICE.search(match[2])
        overall = _ALL.search(said)
        found[int(match[1])] = ReadCard(
            claimed_kinds(said.partition(" Outcomes:")[0]),
            float(price[1]) if price else 0.0,
            (int(overall[1]), int(overall[2])) if overall else (0, 0),
            {one[1]: (int(one[2]), int(one[3])) for one in _LIKE.finditer(said)},
        )
    return found


def claimed_kinds(card: str) -> frozenset[WorkKind]:
    """Return the kinds of work that a card claims, by the sentences that cards are made of."""
    said = card.lower()
    if any(text.lower() in said for text in _sentences("generalist")):
        return frozenset(KINDS)
    return frozenset(kind for kind in KINDS if any(text.lower() in said for text in _sentences(kind)))


@cache
def _sentences(name: str) -> Sequence[str]:
    return tuple(text for texts in card_texts()[name].values() for text in texts)
