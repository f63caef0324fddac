"""A conductor over whatever proposes plans: an outcome model says who does each step, told what, joined and checked.

The proposer gives subtasks, access lists and whom it would ask. The plan is performed in the way of highest worth by
the model: `worth` dollars times the chance that all is right, less the dollars. To learn more, another way is tried,
the best one by a draw from the model's posterior, as far as the share of dollars for that goes. On a share of the tasks
the proposer's plan is performed as it is: that is the trial which shows whether the learner brings anything. After a
round the model sees what came back, and asks a step again where that is worth its price (`step_redo`).

Invariants: the same task, model and rounds lead to the same proposal; workers outside the pool, tools, people, agents,
approvals and workers that add labels are never assigned (1), and where a task bears labels nothing is explored; what
the proposer planned, what was chosen and drawn, and the model's version are in the proposal. A model that cannot be
read changes no plan, and the proposal says why.
"""

from collections.abc import Callable
from hashlib import sha256

import numpy as np

from shikisha.conductors.plan_search import StepTable, is_searchable
from shikisha.conductors.step_redo import StepRedo
from shikisha.core.budget import format_dollars
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.plan import Plan
from shikisha.core.task import Scope
from shikisha.engine.conductor import Conductor, Proposal, Situation
from shikisha.learned.outcome_fit import LearningTerms
from shikisha.learned.outcome_model import OutcomeModel
from shikisha.learned.step_evidence import EXPLORED, PLANNED, STANDS_BY, planned_workers

CHOSEN, DRAWN = "chosen", "drawn"  # in `PlanProposed.beside`: who does each step by the model, and by the draw
# Returns the model for tasks of a scope; by version where a run began with one. None: learning is off.
ModelSource = Callable[[Scope, str], OutcomeModel | None]


@dataclass(frozen=True, slots=True)
class LearnedConductor:
    """Performs the plans of `proposer` as the model of `source` says; as they are while `source` has none.

    `forms` False keeps a plan's steps as they are, for proposers that find their own steps in the results.
    """

    name: str
    proposer: Conductor
    source: ModelSource
    terms: LearningTerms
    forms: bool = True

    async def propose(self, situation: Situation) -> Proposal:
        """Return the proposer's plan in the way of highest worth, another one to learn from, or the plan as it is."""
        began = situation.rounds[0].version if situation.rounds else ""
        try:
            model, unread = self.source(situation.task.scope, began), ""
        except ConfigError as error:  # what runs teach may stop none
            model, unread = None, f"performed as planned: {error}"
        if model is None or not model.scope.admits(situation.task.scope):
            plain = await self.proposer.propose(situation)
            return replace(plain, note=_joined(plain.note, unread)) if unread else plain
        acts = _fraction("acts", model, situation) < model.learning.acts and not bool(
            situation.task.tools or situation.task.attachments
        )
        if acts and situation.rounds and self.forms:
            again = self._again(model, situation)
            if again is not None:
                return again
        most = getattr(self.proposer, "rounds", None)
        if isinstance(most, int) and len(situation.rounds) >= most:
            return Proposal(Plan())  # its last plan was to be the final one
        first = await self.proposer.propose(situation)
        cards = situation.cards
        if not is_searchable(first.plan) or any(cards[step.worker].adds for step in first.plan.steps):
            return first
        if not acts:
            said = _joined(first.note, f"model {model.version} stands by")
            return replace(
                first, note=said, propensity=1 - model.learning.acts, beside={**first.beside, PLANNED: STANDS_BY}
            )
        return self._chosen(model, first, situation)

    def _chosen(self, model: OutcomeModel, first: Proposal, situation: Situation) -> Proposal:
        table, worth = StepTable(model, situation, first.plan), self.terms.worth
        planned, best = table.as_planned(), table.best(worth, forms=self.forms)
        plan, beside = table.build(best), {CHOSEN: best.summary()}
        fixed = situation.task.labels or situation.rounds
        share = 0.0 if fixed else self.terms.explored_share(model.learning.runs)
        said = "best by"
        propensity = model.learning.acts
        if share:
            rng = np.random.default_rng(int.from_bytes(_hash("draw", model, situation)[:8], "big"))
            table.sample(rng)
            drawn = table.best(worth, forms=self.forms)
            tried = table.build(drawn)
            table.sample(None)
            others = [block for block in drawn.blocks if block not in best.blocks]
            cost = sum(map(table.price_of, others)) + worth * max(0.0, best.chance - table.chance_of(drawn))
            # A worker that joins later has its part of the first free runs, too.
            joins = any(model.is_new(table.names[block.worker], len(table.names)) for block in others)
            free = not cost or share >= 1 or joins
            taken = 1.0 if free else min(1.0, model.learning.credit / cost)
            if tried != plan:
                beside[DRAWN] = drawn.summary()
                explores = _fraction("explores", model, situation) < taken
                propensity *= taken if explores else 1 - taken
                if explores:
                    plan, said = tried, "drawn from"
                    beside[EXPLORED] = f"{cost:.9g}"
        beside[PLANNED] = planned_workers(plan, first.plan, model.phrases)
        note = (
            f"{said} model {model.version}: right with {best.chance:.0%}, {format_dollars(best.dollars)}; as planned "
            f"{planned.chance:.0%}, {format_dollars(planned.dollars)}"
        )
        made = replace(
            first,
            plan=plan,
            note=_joined(first.note, note),
            version=model.version,
            propensity=propensity,
            beside={**first.beside, **beside},
        )
        if self.forms and made.final and not situation.rounds:
            return replace(made, final=not StepRedo(model, situation, worth, made.plan).judges)
        return made

    def _again(self, model: OutcomeModel, situation: Situation) -> Proposal | None:
        """Return the round that asks a step again, or what ships; None where the proposer is to say what comes."""
        base, rounds = situation.rounds[0].plan, situation.rounds
        redo = StepRedo(model, situation, self.terms.worth, base)
        if not redo.judges:
            return None
        made = redo.decide(rounds)
        if made.plan.steps:
            beside = {PLANNED: planned_workers(made.plan, base, model.phrases)}
            note = f"model {model.version}: asks again, right with {made.chance:.0%}"
            return Proposal(made.plan, note=note, version=model.version, beside=beside)
        if len(rounds) > 1 or redo.expects_redo():
            note = f"model {model.version}: ships, right with {made.chance:.0%}"
            return Proposal(Plan(), note=note, version=model.version, keeps=made.keeps)
        return None


def _hash(what: str, model: OutcomeModel, situation: Situation) -> bytes:
    return sha256(f"{what}\n{model.version}\n{situation.task.content_hash}".encode()).digest()


def _fraction(what: str, model: OutcomeModel, situation: Situation) -> float:
    """Return a draw from 0 to 1 that the task and the model decide."""
    return int.from_bytes(_hash(what, model, situation)[:8], "big") / 2**64


def _joined(note: str, said: str) -> str:
    return f"{note}; {said}" if note else said
