"""A conductor that performs a skill where one fits the task, and asks its inner conductor where none does.

A skill that fits saves the planner's call. Where no single one does, a plan is composed from parts of several, if they
leave no doubt. Where the plan brought no answer, the inner conductor goes on. Invariants: only skills that were
replayed here are used; a skill's workers are in the pool (1); the plan's note names the skill, or all
that it is composed of.
"""

from dataclasses import dataclass, field

from shikisha.core.plan import Plan
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.learned.skill_composition import SkillPart, compose_plan, cut_skills
from shikisha.learned.skills import COMPOSED_NOTE, SKILL_NOTE, Skill


@dataclass(frozen=True, slots=True)
class SkilledConductor:
    """Performs what `skills` or, if `composes`, their parts agree on; where they give no plan, or two, asks `inner`."""

    inner: Conductor
    skills: tuple[Skill, ...]
    composes: bool = True
    _parts: tuple[SkillPart, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_parts", cut_skills(self.skills) if self.composes else ())

    @property
    def name(self) -> str:
        """The inner conductor's name."""
        return self.inner.name

    async def propose(self, situation: Situation) -> Proposal:
        """Return the plan of the skills that fit; ship its answer; else what the inner conductor proposes."""
        skill = self._fitting(situation)
        if skill is None:
            return await self.inner.propose(situation)
        note, plan = skill
        if not situation.rounds:
            return Proposal(plan, note=note)
        last = situation.rounds[-1].final
        if len(situation.rounds) == 1 and last is not None and last.ok:
            return Proposal(Plan(), note=note)
        return await self.inner.propose(situation)

    def _fitting(self, situation: Situation) -> tuple[str, Plan] | None:
        task, names = situation.task, [card.name for card in situation.cards]
        if task.context or task.history or task.attachments or task.tools:
            return None  # a skill knows the prompt alone
        most = situation.left.plan_steps
        if not situation.rounds:  # later, the steps of our plan are performed
            most = min(most, situation.left.steps)
        found = list[tuple[str, Plan]]()
        for skill in self.skills:
            if skill.admitted and skill.scope.admits(task.scope):
                plan = skill.plan(task.prompt, names)
                if plan is not None and len(plan) <= most:
                    found.append((f"{SKILL_NOTE}{skill.name}", plan))
        composed = compose_plan(self._parts, task.prompt, names, task.scope, most) if self._parts else None
        if composed is not None:
            found.append((COMPOSED_NOTE + ", ".join(composed.skills), composed.plan))
        return found[0] if found and all(plan == found[0][1] for _, plan in found) else None
