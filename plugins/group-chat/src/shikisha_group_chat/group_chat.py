"""A group chat: members of the pool speak in turn about one task, and see the last turns.

A turn is a plan of one step, so that a turn has all that a step has: caps, retries, checks, approvals, a journal entry,
and resuming; a member may be a person. Who speaks next is decided by `order`: in turn, by a model that is shown the
turns and answers with a number, or by a policy that was learned from outcomes, which also says when enough was said and
whose turn is the answer. The chat ends after `turns` turns, when a member says `until`, when `agree` members gave the
same answer, when everybody had nothing to say for one round, or when the run's caps leave one turn. The last turn is
the closer's, who gives the group's answer; without a closer, that is what members agreed on, or the last thing said.

Invariants: a speaker is an ordinal of the pool, never a name that somebody wrote, so an invalid speaker cannot be (1);
every chat ends, whatever is said (3). Turns are shown as JSON, so that nothing that a member says can pass for another
member's turn. What a turn shows has the labels of all earlier results, as whatever a conductor writes has.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, NamedTuple

from shikisha.conductors.fixed_conductors import find_agreement
from shikisha.core.budget import Caps
from shikisha.core.errors import ConfigError, FaultKind, PlanError, WorkerError
from shikisha.core.messages import ChatMessage, Json, Speaker
from shikisha.core.plan import ANSWER, Plan, Step
from shikisha.core.run import RoundResult
from shikisha.engine.conductor import Conductor, Proposal, Rejection, RunBounds, Situation
from shikisha.engine.pool import Member
from shikisha.engine.worker import Card, Request

NOTHING = "PASS"  # what a member says who has nothing to say
_FINAL = "It is the last turn: give the group's final answer to the task."
MAX_CHOICE_TRIES = 2  # of a model to name a speaker
_SHOWN_CHARACTERS = 8_000  # of one turn
_REJECTED_CHARACTERS = 2_000


class SpeakerOrder(StrEnum):
    """How the next speaker is chosen."""

    ROUND_ROBIN = "round-robin"  # each in turn
    CONDUCTOR = "conductor"  # a model says who
    POLICY = "policy"  # another conductor says who, and when it is enough


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Who takes part, in which role by name, how many turns there are and are shown, and how the chat ends.

    Without `members` the whole pool takes part.
    """

    members: tuple[str, ...] = ()
    roles: dict[str, str] = field(default_factory=dict)
    turns: int = 12
    last: int = 8
    until: str = ""
    closer: str = ""
    agree: int = 0


class _Turn(NamedTuple):
    speaker: int
    text: str | None


@dataclass(frozen=True, slots=True)
class GroupChatConductor:
    """Proposes the next turn; with SpeakerOrder.CONDUCTOR, `chooser` is the endpoint that names the speaker.

    With SpeakerOrder.POLICY `policy` chooses among the members, as it would whom to ask.
    """

    name: str
    order: SpeakerOrder = SpeakerOrder.ROUND_ROBIN
    options: ChatOptions = ChatOptions()
    chooser: Member | None = None
    policy: Conductor | None = None
    spoken: ClassVar[bool] = True

    def bounds(self, caps: Caps) -> RunBounds:
        """Return what a chat takes at most: its turns, and the tries of the model that says who speaks."""
        turns = min(self.options.turns, caps.rounds)
        asks = (self.chooser.card,) * (MAX_CHOICE_TRIES * turns) if self.chooser else ()
        return RunBounds(turns, asks)

    async def propose(self, situation: Situation) -> Proposal:
        """Propose a turn of one member, or the empty plan that keeps the last thing said."""
        members, closer = self.seats(situation.cards)
        turns = [_turn_of(each) for each in situation.rounds]
        # This round is counted already; its step is not.
        last_turn = situation.left.rounds < 1 or situation.left.steps <= 1 or len(turns) + 1 >= self.options.turns
        agreed = self._agreed(turns)
        why = f"{self.options.agree} members agree" if agreed is not None else self._over(turns, members)
        if why and closer is None:
            return Proposal(Plan(), note=why, final=True, keeps=_last_said(turns) if agreed is None else agreed)
        if closer is not None and (why or last_turn):
            return self._turn(situation, turns, closer, _FINAL, f"{why or 'the last turn'}: it closes", final=True)
        if self.policy is not None:
            return await self._by_policy(situation, turns, members, self.policy)
        speaker, note, rejected, substituted = await self._next(situation, turns, members)
        request = _FINAL if last_turn else self._request(situation.cards[speaker])
        turn = self._turn(situation, turns, speaker, request, note, final=last_turn)
        return replace(turn, rejected=rejected, substituted=substituted)

    async def _by_policy(
        self, at: Situation, turns: Sequence[_Turn], members: Sequence[int], policy: Conductor
    ) -> Proposal:
        """Let the policy say who speaks, or whose turn is the answer; it sees the members and their turns alone."""
        cards = tuple(at.cards[member] for member in members)
        rounds = tuple(
            replace(past, plan=Plan((Step(ANSWER, members.index(turn.speaker)),)))
            for past, turn in zip(at.rounds, turns, strict=True)
        )
        chosen = await policy.propose(replace(at, cards=cards, rounds=rounds))
        if not chosen.plan.steps:
            keeps = _last_said(turns) if chosen.keeps is None else chosen.keeps
            return Proposal(Plan(), note=chosen.note, version=chosen.version, final=True, keeps=keeps)
        place = chosen.plan.steps[-1].worker
        if place >= len(members):
            raise PlanError(f"{policy.name} chose speaker {place}; there are {len(members)} members", self.name)
        # Whoever speaks answers: a turn that is only said may be the answer, since the policy may keep any.
        turn = self._turn(at, turns, members[place], self._request(cards[place]), chosen.note, final=False)
        return replace(turn, version=chosen.version, propensity=chosen.propensity)

    def seats(self, cards: Sequence[Card]) -> tuple[tuple[int, ...], int | None]:
        """Return the ordinals of the members and of the closer; ConfigError where the pool lacks one that is named."""
        place = {card.name: ordinal for ordinal, card in enumerate(cards)}
        named = [*self.options.members, *self.options.roles, *([self.options.closer] if self.options.closer else [])]
        if lacking := [name for name in named if name not in place]:
            raise ConfigError(f"{self.name}: not in the pool: {', '.join(lacking)}; the pool has {', '.join(place)}")
        members = tuple(dict.fromkeys(place[name] for name in self.options.members)) or tuple(range(len(cards)))
        return members, place[self.options.closer] if self.options.closer else None

    def _agreed(self, turns: Sequence[_Turn]) -> int | None:
        """Return the round of the first of `agree` members whose latest answers are the same; None without such."""
        if not self.options.agree:
            return None
        latest = {turn.speaker: place for place, turn in enumerate(turns) if _says(turn)}
        places = sorted(latest.values())
        found = find_agreement([turns[place].text for place in places], self.options.agree)
        return None if found is None else places[found]

    def _over(self, turns: Sequence[_Turn], members: Sequence[int]) -> str:
        """Return why no member speaks any more; "" while one does."""
        if self.options.until and any(turn.text and self.options.until in turn.text for turn in turns[-1:]):
            return f"it was said: {self.options.until}"
        if len(turns) >= self.options.turns:
            return f"{len(turns)} turns are over"
        silent = [turn for turn in turns[-len(members) :] if turn.text is None or turn.text.strip() == NOTHING]
        return "nobody has more to say" if len(silent) == len(members) else ""

    async def _next(
        self, at: Situation, turns: Sequence[_Turn], members: Sequence[int]
    ) -> tuple[int, str, tuple[Rejection, ...], str | None]:
        """Return the next speaker, why, what of the chooser's could not be read, and who chose in its place."""
        before = [turn.speaker for turn in turns if turn.speaker in members]
        following = members[(members.index(before[-1]) + 1) % len(members)] if before else members[0]
        if self.order is SpeakerOrder.ROUND_ROBIN or self.chooser is None:
            return following, "in turn", (), None
        if at.ask is None:
            raise PlanError("this conductor has no way to call its model", self.name)
        rejected: list[Rejection] = []
        messages = self._choice_messages(at, turns, members)
        schema: dict[str, Json] = {
            "type": "object",
            "properties": {"speaker": {"type": "integer", "enum": list(range(len(members)))}},
            "required": ["speaker"],
            "additionalProperties": False,
        }
        for _ in range(MAX_CHOICE_TRIES):
            try:
                request = Request(at.task, "Say who speaks next.", turns=tuple(messages), schema=schema)
                reply = await at.ask(self.chooser, request)
            except WorkerError as error:
                if error.fault.kind is FaultKind.WAITING:
                    raise
                return following, f"its model gave no answer ({error.fault.kind})", tuple(rejected), "round-robin"
            chosen = _read_choice(reply.text, len(members))
            if chosen is not None:
                return members[chosen], "chosen by the model", tuple(rejected), None
            said = reply.text[:_REJECTED_CHARACTERS]
            rejected.append(Rejection(said, f"expected a number from 0 to {len(members) - 1}", "speaker"))
            messages = [
                *messages,
                ChatMessage(Speaker.ASSISTANT, said or "(nothing)"),
                ChatMessage(Speaker.USER, f"That names no member. Answer with a number from 0 to {len(members) - 1}."),
            ]
        return following, f"its model named no member in {MAX_CHOICE_TRIES} tries", tuple(rejected), "round-robin"

    def _choice_messages(self, at: Situation, turns: Sequence[_Turn], members: Sequence[int]) -> list[ChatMessage]:
        listed = [f"{place}: {self._described(at.cards[ordinal])}" for place, ordinal in enumerate(members)]
        rule = (
            "You lead a group that works on a task. Say which member should speak next, so that the task is done soon: "
            'answer with JSON like {"speaker": 0} and nothing else.'
        )
        said = self._transcript(turns, at.cards)
        asked = [f"Task:\n{at.task.prompt}", "Members:\n" + "\n".join(listed), f"Said so far:\n{said}" if said else ""]
        return [
            ChatMessage(Speaker.SYSTEM, rule),
            ChatMessage(Speaker.USER, "\n\n".join(part for part in asked if part)),
        ]

    def _described(self, card: Card) -> str:
        role = self.options.roles.get(card.name, "")
        return " ".join(part for part in (f"{card.name}.", role, card.description) if part)

    def _request(self, card: Card) -> str:
        role, until = self.options.roles.get(card.name, ""), self.options.until
        asked = f"It is your turn: bring the group's work forward. If you have nothing to add, say {NOTHING}."
        return " ".join(part for part in (role, asked, until and f"When the task is done, say {until}.") if part)

    def _turn(
        self, at: Situation, turns: Sequence[_Turn], speaker: int, request: str, note: str, *, final: bool
    ) -> Proposal:
        said = self._transcript(turns, at.cards)
        told = f"The last turns, as JSON:\n{said}" if said else "Nobody has spoken yet."
        me = f"You are {at.cards[speaker].name} in a group that works on the task together."
        return Proposal(Plan((Step(f"{me} {told}\n\n{request}", speaker),)), note=note, final=final)

    def _transcript(self, turns: Sequence[_Turn], cards: Sequence[Card]) -> str:
        """Return the last turns as lines of JSON, in which no text can pass for a turn of somebody else."""
        shown = turns[-self.options.last :] if self.options.last else ()
        return "\n".join(_lines(shown, cards))


def _lines(turns: Sequence[_Turn], cards: Sequence[Card]) -> Iterator[str]:
    for turn in turns:
        text = "(no answer)" if turn.text is None else turn.text
        cut = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}… ({len(text)} characters)"
        yield json.dumps({"speaker": cards[turn.speaker].name, "says": cut}, ensure_ascii=False)


def _turn_of(past: RoundResult) -> _Turn:
    final = past.final
    return _Turn(past.plan.steps[-1].worker, final.text if final is not None and final.ok else None)


def _last_said(turns: Sequence[_Turn]) -> int | None:
    """Return the round of the last turn in which something was said; None where nothing was."""
    said = [place for place, turn in enumerate(turns) if _says(turn)]
    return said[-1] if said else None


def _says(turn: _Turn) -> bool:
    return turn.text is not None and turn.text.strip() != NOTHING


def _read_choice(text: str, count: int) -> int | None:
    """Return the number that a model answered with, as JSON or alone; None where it names no member."""
    try:
        value = json.loads(text[:_REJECTED_CHARACTERS].strip())
    except (ValueError, RecursionError):
        return None
    chosen = value.get("speaker") if isinstance(value, dict) else value
    return chosen if isinstance(chosen, int) and not isinstance(chosen, bool) and 0 <= chosen < count else None
