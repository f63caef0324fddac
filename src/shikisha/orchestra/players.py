"""The workers: tools that do what they are told if it is their trade, and two simulated language models.

Invariant: a reply is a function of the request (task, subtask, granted, remarks; for noisy work also its key) and of
the worker's own `luck`. A worker that is told something outside its skill, or to use a result that it was not granted,
says so in a sentence, as does a tool that finds nothing left to do; none answers with another part's value. A simulated
model does honest work on what it was given and then, as often as its profile says, gets it wrong; told to finish what
is finished, it hands it on. Deliberately absent: retries, and any look at gold.
"""

import asyncio
import re
from collections import Counter

from shikisha.budget import Usage
from shikisha.context import turns
from shikisha.orchestra.cast import Profile
from shikisha.orchestra.chance import share
from shikisha.orchestra.families import FAMILIES
from shikisha.orchestra.grammar import parse
from shikisha.orchestra.instructions import Order, Verb
from shikisha.orchestra.question import Question
from shikisha.orchestra.scene import CANNOT, LACK, Scene, Unable, duties, survey, told
from shikisha.orchestra.tools import NotFound, work
from shikisha.orchestra.values import Sort, Value, normal, read, show, spoilt
from shikisha.worker import Reply, Request

_PIECE = re.compile(r"\w+|[^\w\s]")
_KEEPS = 0.5  # how often a model that comes to another result than the one it checks lets that one stand


class Player:
    """A worker with a profile; `luck` seeds its slips, `pace` stretches its seconds (0: answers at once)."""

    def __init__(self, profile: Profile, luck: int = 0, pace: float = 0.0) -> None:
        self.profile = profile
        self.luck = luck
        self.pace = pace

    async def perform(self, request: Request) -> Reply:
        """Answer the subtask, or say why not."""
        if self.pace:
            await asyncio.sleep(self.pace * self.profile.seconds)
        text = self.answer(request)
        usage = counted(request, text) if self.profile.is_model else Usage()
        return Reply(text, usage, model=self.profile.name)

    def answer(self, request: Request) -> str:
        """Return what the worker says."""
        prompt = request.task.prompt
        question = parse(prompt)
        if question is None:
            return f"{CANNOT}make sense of this question."
        order, scene = told(request.subtask, prompt), survey(question, request)
        if order.previous and not scene.results:
            return f"{LACK}the previous result."
        try:
            return self._obey(order, scene, request)
        except Unable as reason:
            return str(reason)
        except NotFound as name:
            return f"{CANNOT}find an entry for {name}."

    def _obey(self, order: Order, scene: Scene, request: Request) -> str:
        match order.verb:
            case Verb.PLAN:
                return self._plan(scene.question, request)
            case Verb.VOTE:
                return self._vote(scene, request)
            case Verb.CHECK:
                return self._check(scene, request)
        parts = duties(order, scene, self._able)
        if not parts and not self.profile.is_model:
            raise Unable(f"{CANNOT}find anything that is left to do.")
        return show(self._do(parts, scene, request)) if parts else scene.results[-1][1]

    def _able(self, family: str) -> bool:
        return self.profile.is_model or family in self.profile.skills

    def _do(self, parts: tuple[int, ...], scene: Scene, request: Request) -> Value:
        """Do these parts and return the last one's value."""
        return self._guess(parts, scene, request) if self.profile.is_model else self._work(parts, scene, request)

    def _work(self, parts: tuple[int, ...], scene: Scene, request: Request) -> Value:
        done: dict[int, Value] = {}
        for at in parts:
            part = scene.question.parts[at]
            skill = self.profile.skills.get(part.family)
            if skill is None:
                raise Unable(f"{CANNOT}do the {part.family} part.")
            value = work(part.operation, scene.given(part, done), part.constants)
            attempt = request.key if FAMILIES[part.family].noisy else ""
            done[at] = self._slipped(value, skill, request, part.operation.name, attempt)
        return done[parts[-1]]

    def _guess(self, parts: tuple[int, ...], scene: Scene, request: Request) -> Value:
        done: dict[int, Value] = {}
        for at in parts:
            part = scene.question.parts[at]
            try:
                done[at] = part.operation.apply(scene.given(part, done), part.constants)
            except KeyError as name:
                raise NotFound(str(name)) from None
        skill = self.profile.skill(tuple(scene.question.families[at] for at in parts))
        return self._slipped(done[parts[-1]], skill, request, "parts", parts, len(request.remarks))

    def _vote(self, scene: Scene, request: Request) -> str:
        if not self.profile.vote:
            raise Unable(f"{CANNOT}judge between results.")
        at = scene.results[-1][0]
        votes = Counter(normal(text) for part, text in scene.results if part == at)
        most = max(votes.values())
        leaders = [text for text, count in votes.items() if count == most]
        circumstances = ("vote", *sorted(votes.items()))
        chosen = leaders[int(self._share(request, "tie", *circumstances) * len(leaders))]
        value = next((value for sort in _SORTS if (value := read(chosen, sort)) is not None), None)
        if value is None:
            return chosen
        return show(self._slipped(value, self.profile.vote, request, *circumstances))

    def _check(self, scene: Scene, request: Request) -> str:
        at, said = scene.results[-1]
        if not self.profile.is_model and not self.profile.skills:
            return self._vote(scene, request)
        if at is None:
            raise Unable(f"{CANNOT}check this: nobody says which part it is.")
        known = {part: text for part, text in scene.known.items() if part != at}
        own = show(self._do(scene.missing(at, known), scene, request))
        if self.profile.is_model and normal(own) != normal(said) and self._share(request, "keep", said) < _KEEPS:
            return said
        return own

    def _plan(self, question: Question, request: Request) -> str:
        if not self.profile.is_model:
            raise Unable(f"{CANNOT}plan.")
        families = list(question.families)
        if self._share(request, "plan") >= self.profile.whole[0]:
            families[0] = next(name for name in FAMILIES if name not in families)
        return ", then ".join(families)

    def _slipped(self, value: Value, skill: float, request: Request, *circumstances: object) -> Value:
        if self._share(request, *circumstances) < skill:
            return value
        return spoilt(value, self._share(request, "slip", *circumstances))

    def _share(self, request: Request, *circumstances: object) -> float:
        return share(self.luck, self.profile.name, request.task.prompt, *circumstances)


_SORTS = (Sort.NUMBER, Sort.DAY, Sort.WORD)


def counted(request: Request, text: str) -> Usage:
    """Count words and signs in everything shown and in the reply: the simulated models' tokenizer."""
    shown = sum(len(_PIECE.findall(turn.text)) for turn in turns(request))
    return Usage(shown, len(_PIECE.findall(text)))
