"""A team of roles: each does its part, hands over a document that its schema holds, and the next works from it.

The roles act in the order in which they are written. A role may send the work `back` to an earlier one until a field of
its own hand-over says so, and may ask earlier roles back; both a bounded number of times, so every team ends. With a
`planner`, another conductor says who does what instead; the team ends when every `back` is satisfied. With a
`casting`, one says which of a role's workers plays it. The last step hands out the answer: a field of one hand-over.

Invariants: who a hand-over is of, and whether work is sent back, is decided by ordinals and by checked documents, never
by names in texts; what a gate has passed is what is handed out; without that the run has no answer. The same rounds
give the same proposal. Deliberately absent: checking schemas (`Member.schema`), and roles that are made up at run time.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from shikisha.core.budget import Caps
from shikisha.core.errors import ConfigError, PlanError
from shikisha.core.json_schema import read_document
from shikisha.core.messages import Json
from shikisha.core.plan import ANSWER, Plan, Step
from shikisha.core.run import Result, RoundResult
from shikisha.engine.conductor import Conductor, Proposal, RunBounds, Situation
from shikisha.engine.worker import Card
from shikisha_role_teams.hand_over import HandOver, role_line, show_hand_overs

ANSWER_MEMBER = "answer"  # the name, in a team, of what hands out the answer
_MAX_QUESTION = 4_000  # characters of what a role asks another


@dataclass(frozen=True, slots=True)
class SendBack:
    """To whom a role sends the work back while `until` in its hand-over is not true, and how often in one run.

    `keeps`: when that is used up, the team goes on; otherwise it has no answer.
    """

    to: str
    until: str
    most: int
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class Role:
    """One role: what it is told, which workers can play it, the schema of what it hands over (None: a text).

    `sees` are the roles whose hand-overs it is shown (None: all others); `asks`, how often it may ask which.
    """

    name: str
    workers: tuple[str, ...]
    prompt: str = ""
    schema: Mapping[str, Json] | None = None
    sees: tuple[str, ...] | None = None
    asks: Mapping[str, int] = field(default_factory=dict)
    back: SendBack | None = None

    @property
    def answer_schema(self) -> Mapping[str, Json] | None:
        """The schema of whatever it may say: a hand-over, or a question where it may ask."""
        if self.schema is None or not self.asks:
            return self.schema
        text: dict[str, Json] = {"type": "string", "minLength": 1, "maxLength": _MAX_QUESTION}
        asked: dict[str, Json] = {
            "type": "object",
            "properties": {"ask": {"enum": list(self.asks)}, "question": text},
            "required": ["ask", "question"],
            "additionalProperties": False,
        }
        return {"anyOf": [dict(self.schema), asked]}


@dataclass(frozen=True, slots=True)
class RoleTeam:
    """The roles in order, and whose hand-over is the answer (`answer_field`: which field of it).

    ConfigError for a team that cannot work: roles that there are not, fields that a hand-over need not have.
    """

    name: str
    roles: tuple[Role, ...]
    answer_role: str
    answer_field: str = ""

    def __post_init__(self) -> None:
        names = [role.name for role in self.roles]
        if not names:
            raise ConfigError("roles: a team without a role has no way to end")
        for place, role in enumerate(self.roles):
            earlier = names[:place]
            _check_known(f"roles.{role.name}.sees", role.sees or (), names)
            _check_known(f"roles.{role.name}.asks", role.asks, earlier, "an earlier role")
            if role.asks and role.schema is None:
                raise ConfigError(f"roles.{role.name}.asks: expected a schema, which tells a question from a hand-over")
            if role.back is not None:
                _check_known(f"roles.{role.name}.back.to", [role.back.to], earlier, "an earlier role")
                where = f"roles.{role.name}.back.until"
                _check_field(where, role, role.back.until, "boolean", "the team would have no way to end")
        _check_known("answer", [self.answer_role], names)
        if self.answer_field:
            _check_field("answer", self.roles[names.index(self.answer_role)], self.answer_field)

    @property
    def members(self) -> tuple[tuple[int, str], ...]:
        """The seats of the pool: the role's place and its worker, for each worker of each role."""
        return tuple((place, worker) for place, role in enumerate(self.roles) for worker in role.workers)

    @property
    def member_names(self) -> tuple[str, ...]:
        """The names of the members of the pool, in order; the last one hands out the answer."""
        named = (
            f"{self.name}/{role.name}" + (f"@{worker}" if len(role.workers) > 1 else "")
            for role in self.roles
            for worker in role.workers
        )
        return (*named, f"{self.name}/{ANSWER_MEMBER}")

    @property
    def fewest_steps(self) -> int:
        """How many steps it takes when nothing is sent back or asked."""
        return len(self.roles) + 1

    @property
    def most_steps(self) -> int:
        """How many steps it takes at most, as long as each role's first worker hands over."""
        place = {role.name: number for number, role in enumerate(self.roles)}
        again = 0
        for number, role in enumerate(self.roles):
            if role.back is not None:
                again += role.back.most * (number - place[role.back.to] + 1)
            again += sum(most * (number - place[name] + 2) for name, most in role.asks.items())
        return self.fewest_steps + again


class _Made(NamedTuple):
    """The round and step in which a hand-over was made, and the steps of that round that it was made from."""

    round: int
    step: int
    access: tuple[int, ...]


@dataclass(slots=True)
class _TeamProgress:
    """Where a team stands: the role whose turn it is (the number of roles: it is done), and what it is told.

    `over`: why there can be no answer. `handed` has each role's latest hand-over, `made` where that was made.
    """

    at: int = 0
    over: str = ""
    handed: dict[int, HandOver] = field(default_factory=dict)
    made: dict[int, _Made] = field(default_factory=dict)
    sent: Counter[int] = field(default_factory=Counter)
    asked: Counter[tuple[int, int]] = field(default_factory=Counter)
    failed: Counter[int] = field(default_factory=Counter)
    askers: list[tuple[int, str]] = field(default_factory=list)
    back_from: int | None = None


@dataclass(frozen=True, slots=True)
class TeamConductor:
    """Conducts a team over the pool of its members.

    `planner`: who plans, in place of the order of the roles. `casting`: who chooses among a role's workers.
    """

    name: str
    team: RoleTeam
    planner: Conductor | None = None
    casting: Conductor | None = None

    def bounds(self, caps: Caps) -> RunBounds:
        """Return what a run of the team takes at most."""
        return RunBounds(min(self.team.most_steps, caps.rounds, caps.steps), inner=self.planner)

    async def propose(self, situation: Situation) -> Proposal:
        """Propose the next hand-over, or the last step, which hands out the answer."""
        self.check_cards(situation.cards)
        if self.planner is not None:
            return await self._planned(situation, self.planner)
        now = self._follow(situation.rounds)
        if now.over:
            return _no_answer(now.over)
        if now.at == len(self.team.roles):
            return self._hand_out(situation, now)
        if situation.left.rounds < 1 or situation.left.steps <= 1:  # this round is counted already
            return _no_answer(f"the budget of rounds or steps ends before the {self._role(now.at).name}")
        seat, note = await self._cast(situation, now)
        return Proposal(Plan((Step(self._ask(now), seat),)), note=note, partial=True)

    def check_cards(self, cards: Sequence[Card]) -> None:
        """Raise ConfigError unless the pool is this team's own."""
        names, wanted = tuple(card.name for card in cards), self.team.member_names
        if names != wanted:
            raise ConfigError(
                f"{self.name}: expected the team's own pool, {', '.join(wanted)}; it is {', '.join(names)}"
            )

    def _role(self, place: int) -> Role:
        return self.team.roles[place]

    def _place(self, name: str) -> int:
        return [role.name for role in self.team.roles].index(name)

    # In order

    def _follow(self, rounds: Sequence[RoundResult]) -> _TeamProgress:
        """Return where the rounds have led."""
        now = _TeamProgress()
        for number, past in enumerate(rounds):
            if now.over or now.at == len(self.team.roles):
                break
            (step, result), place = (past.plan.steps[-1], past.results[-1]), now.at
            if self.team.members[step.worker][0] != place:
                now.over = f"round {number} asked another role than the team's order says"
            elif not result.ok:
                self._after_failure(now, place, result)
            else:
                self._after_document(now, place, self._document(place, result))
        return now

    def _after_failure(self, now: _TeamProgress, place: int, result: Result) -> None:
        """Turn to the role's next worker, if it has one."""
        now.failed[place] += 1
        if now.failed[place] >= len(self._role(place).workers):
            now.over = f"the {self._role(place).name} handed over nothing: {result.fault}"

    def _after_document(self, now: _TeamProgress, place: int, document: Json) -> None:
        role = self._role(place)
        now.back_from = None
        question = _question(role, document)
        if question is not None:
            target = self._place(question[0])
            now.asked[place, target] += 1
            if now.asked[place, target] > role.asks[question[0]]:
                now.over = f"the {role.name} asked the {question[0]} more than {role.asks[question[0]]} times"
            now.askers.append((place, question[1]))
            now.at = target
            return
        now.handed[place] = HandOver(role.name, document)
        if now.askers:
            asker, _ = now.askers.pop()
            # Roles that send back look again at what was changed; others between need not.
            now.at = next((each for each in range(place + 1, asker) if self._role(each).back is not None), asker)
            return
        if role.back is not None and not _holds(document, role.back):
            if now.sent[place] < role.back.most:
                now.sent[place] += 1
                now.at, now.back_from = self._place(role.back.to), place
                return
            if not role.back.keeps:
                now.over = (
                    f"the {role.name} sent the work back {role.back.most} times, and {role.back.until} is not true"
                )
                return
        now.at = place + 1

    def _document(self, place: int, result: Result) -> Json:
        """Return what a result hands over; the engine has checked it."""
        text = result.text or ""
        return text if self._role(place).schema is None else read_document(text)

    async def _cast(self, at: Situation, now: _TeamProgress) -> tuple[int, str]:
        """Return the ordinal of the member that plays the role next, and why it does."""
        role, seats = self._role(now.at), [seat for seat, (place, _) in enumerate(self.team.members) if place == now.at]
        note = f"{role.name}, as the order says" if now.back_from is None else f"{role.name}, once more"
        if self.casting is None or len(seats) == 1:
            return seats[now.failed[now.at]], note
        cards = tuple(replace(at.cards[seat], name=worker) for seat, worker in zip(seats, role.workers, strict=True))
        before = [past for past in at.rounds if past.plan.steps[-1].worker in seats]
        played = tuple(
            replace(past, plan=Plan((Step(ANSWER, seats.index(past.plan.steps[-1].worker)),))) for past in before
        )
        cast = await self.casting.propose(replace(at, cards=cards, rounds=played))
        if cast.plan.steps:
            chosen = seats[cast.plan.steps[-1].worker]
        else:
            chosen = before[-1].plan.steps[-1].worker if before else seats[0]
        return chosen, f"{note}; {self.casting.name} chose {self.team.members[chosen][1]}: {cast.note}"

    def _ask(self, now: _TeamProgress) -> str:
        """Return what the role whose turn it is is asked."""
        role = self._role(now.at)
        said = [role.prompt]
        if now.askers:
            asker, question = now.askers[-1]
            told = json.dumps(question, ensure_ascii=False)
            said.append(
                f"The {self._role(asker).name} asks you: {told}\nHand over your part again, so that it answers this."
            )
        if now.back_from is not None:
            sender = self._role(now.back_from).name
            said.append(
                f"The {sender} sent the work back: see what it handed over. Hand over your part again, improved."
            )
        may = {name: most - now.asked[now.at, self._place(name)] for name, most in role.asks.items()}
        if any(left > 0 for left in may.values()):
            left_over = ", ".join(f"the {name} {left} times more" for name, left in may.items() if left > 0)
            form = '{"ask": ROLE, "question": TEXT}'
            said.append(f"Where something is missing you may ask back, instead of handing over: {form}; {left_over}.")
        elif may:
            said.append("You can ask nothing more: hand over.")
        return self._worded(now.at, said, now.handed)

    def _worded(self, place: int, said: Iterable[str], handed: Mapping[int, HandOver]) -> str:
        role = self._role(place)
        shown = [
            each
            for other, each in sorted(handed.items())
            if role.sees is None or each.role in role.sees or other == place
        ]
        head = role_line(role.name, self.team.name)
        told = "\n\n".join(part for part in said if part)
        return "\n\n".join(part for part in (f"{head}\n{told}" if told else head, show_hand_overs(shown)) if part)

    # Planned by another conductor

    async def _planned(self, situation: Situation, planner: Conductor) -> Proposal:
        """Let the planner say who does what next, until every gate has passed what is to be handed out."""
        now = self._gather(situation.rounds)
        lacking = self._lacking(now)
        if not lacking:
            return self._hand_out(situation, now)
        if situation.left.rounds < 1 or situation.left.steps <= 1:
            return _no_answer(f"the budget of rounds or steps ends, and {lacking}")
        left = replace(situation.left, steps=situation.left.steps - 1)
        proposal = await planner.propose(replace(situation, cards=situation.cards[:-1], left=left))
        if proposal.plan.ships:
            return replace(_no_answer(f"{planner.name} plans nothing more, and {lacking}"), text=proposal.text)
        steps = [replace(step, subtask=self._worded_step(step, now.handed)) for step in proposal.plan.steps]
        return replace(proposal, plan=Plan(tuple(steps)), final=False, keeps=None, joins=False, partial=True)

    def _gather(self, rounds: Sequence[RoundResult]) -> _TeamProgress:
        """Return each role's latest hand-over, whatever the order was."""
        now = _TeamProgress()
        for number, past in enumerate(rounds):
            for index, (step, result) in enumerate(zip(past.plan.steps, past.results, strict=True)):
                place = self.team.members[step.worker][0]
                document = self._document(place, result) if result.ok else None
                if result.ok and _question(self._role(place), document) is None:
                    now.handed[place] = HandOver(self._role(place).name, document)
                    now.made[place] = _Made(number, index, step.access)
        return now

    def _worded_step(self, step: Step, handed: Mapping[int, HandOver]) -> str:
        if step.worker >= len(self.team.members):
            raise PlanError("only the team itself hands out the answer", "model_id")
        place = self.team.members[step.worker][0]
        return self._worded(place, [self._role(place).prompt, step.subtask], handed)

    def _lacking(self, now: _TeamProgress) -> str:
        """Return what the answer waits for; "" where it can be handed out."""
        place = self._place(self.team.answer_role)
        if place not in now.handed:
            return f"the {self.team.answer_role} has handed over nothing"
        for number, role in enumerate(self.team.roles):
            if role.back is None or role.back.keeps:
                continue
            if number not in now.handed or not _holds(now.handed[number].document, role.back):
                return f"{role.back.until} of the {role.name} is not true"
            if number > place and not self._looked(now, number, place):
                return f"the {role.name} has not looked at what the {self.team.answer_role} handed over last"
        return ""

    def _looked(self, now: _TeamProgress, gate: int, place: int) -> bool:
        """Whether a role made its hand-over from another's latest: granted, or shown as one of earlier rounds."""
        own, other, sees = now.made[gate], now.made[place], self._role(gate).sees
        if own.round == other.round:
            return other.step in own.access
        return own.round > other.round and (sees is None or self._role(place).name in sees)

    # The answer

    def _hand_out(self, situation: Situation, now: _TeamProgress) -> Proposal:
        given = now.handed.get(self._place(self.team.answer_role))
        if given is None:
            return _no_answer(f"the {self.team.answer_role} has handed over nothing")
        what = f"the field {json.dumps(self.team.answer_field)} of " if self.team.answer_field else ""
        subtask = f"Hand out {what}what the {given.role} handed over.\n\n{show_hand_overs([given])}"
        return Proposal(Plan((Step(subtask, len(situation.cards) - 1),)), note="the team is done", final=True)


def _no_answer(why: str) -> Proposal:
    return Proposal(Plan(), note=why, final=True)


def _holds(document: Json, back: SendBack) -> bool:
    return isinstance(document, dict) and document.get(back.until) is True


def _question(role: Role, document: Json) -> tuple[str, str] | None:
    """Return whom a role asks and what; None where it hands over."""
    if not role.asks or not isinstance(document, dict) or document.keys() != {"ask", "question"}:
        return None
    asked, question = document["ask"], document["question"]
    return (asked, question) if isinstance(asked, str) and isinstance(question, str) and asked in role.asks else None


def _check_known(where: str, named: Iterable[str], known: Sequence[str], what: str = "a role of the team") -> None:
    for name in named:
        if name not in known:
            raise ConfigError(f"{where}: {name!r} is not {what}: {', '.join(known) or 'there is none'}")


def _check_field(where: str, role: Role, name: str, kind: str = "", otherwise: str = "") -> None:
    """Raise ConfigError unless the schema says that a hand-over of the role always has this field, of this type."""
    schema = role.schema or {}
    fields, required = schema.get("properties"), schema.get("required")
    found = fields.get(name) if isinstance(fields, Mapping) else None
    always = isinstance(required, Sequence) and name in required
    fits = isinstance(found, Mapping) and (not kind or found.get("type") == kind)
    if not (always and fits):
        wanted = f"a required {kind} field".replace("  ", " ")
        raise ConfigError(
            f"{where}: {name!r} is not {wanted} of the schema of {role.name}" + (f": {otherwise}" * bool(otherwise))
        )
