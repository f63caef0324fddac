"""A conductor that acts by a shelf of policies: the live one, or its canary for a share of the tasks; shadows beside.

`policy:DIR`, with the options of `policy:FILE`, which hold for every policy on the shelf. Invariants: the shelf is read
at every decision, so a promotion holds from the next run on; a run keeps to the version that began it, which stands in
its journal, for as long as the shelf holds it; whoever does not act calls nothing, and what goes wrong with it is told
in its words beside the plan and hurts nobody; a canary that cannot begin a task leaves it to the live policy. The
propensity of a plan is the probability with which the lot would have led to it after all that happened before: none is
written where every policy that may have begun the run would do the same. Deliberately absent: who is live and why
(`policy.shelf`), and statistics (`learn.trial`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import fsum
from pathlib import Path
from typing import TypeAlias

from shikisha.conductor import Proposal, Situation
from shikisha.conductors.policy import PolicyConductor, policy_conductor
from shikisha.errors import ConfigError, PlanError, ShikishaError
from shikisha.policy.acts import CANNOT, act_of
from shikisha.policy.shelf import Shelf
from shikisha.policy.shelf_file import place, read

Decided: TypeAlias = Proposal | str  # what a policy would do, or why it has nothing to offer
_HARMLESS = (ShikishaError, ValueError, LookupError, ArithmeticError)  # what a policy may raise that does not act
_KEPT = 16  # policies held in memory


@dataclass(frozen=True, slots=True)
class ShelvedConductor:
    """Acts by the shelf in `folder`; `query` are the options of all its policies."""

    name: str
    folder: Path
    query: str = ""

    async def propose(self, situation: Situation) -> Proposal:
        """Propose what the policy does that acts for this task, and tell what the others would do."""
        shelf = read(self.folder)
        begun = situation.rounds[0].version if situation.rounds else ""
        there = dict.fromkeys([*shelf.shares, *shelf.shadows, *([begun] if shelf.holds(begun) else [])])
        decided = {version: await self._decided(version, situation) for version in there}
        acting = _acting(shelf, begun, decided, situation)
        proposal = decided[acting]
        if isinstance(proposal, str):
            raise PlanError(proposal, f"{self.folder}: {acting}")
        note = f"{_role(shelf, acting, begun)}: {proposal.note}"
        chance = await self._chance(shelf, acting, decided, situation)
        beside = {version: _words(said, situation) for version, said in decided.items() if version != acting}
        return replace(proposal, note=note, propensity=chance, beside=beside)

    async def _decided(self, version: str, situation: Situation) -> Decided:
        try:
            conductor = _conductor(place(self.folder, version), self.query)
            if conductor.version != version:
                return f"{CANNOT}: this is not what was put on the shelf: its version is {conductor.version}"
            return await conductor.propose(replace(situation, ask=None))
        except _HARMLESS as error:
            return f"{CANNOT}: {error}"

    async def _chance(
        self, shelf: Shelf, acting: str, decided: Mapping[str, Decided], situation: Situation
    ) -> float | None:
        """Return the share of those that do this, among the shares of those that may have acted till now."""
        own = decided[acting]
        if acting not in shelf.shares or len(shelf.shares) == 1 or isinstance(own, str):
            return own.propensity if isinstance(own, Proposal) else None
        shares = {
            version: share
            for version, share in shelf.shares.items()
            if version == acting or await self._may_have_begun(version, decided[version], situation)
        }
        words = _words(own, situation)
        same = {version: said for version, said in decided.items() if _words(said, situation) == words}
        drawn = fsum(share * _drawn(same[version]) for version, share in shares.items() if version in same)
        chance = drawn / fsum(shares.values())
        return None if chance >= 1 else chance

    async def _may_have_begun(self, version: str, now: Decided, situation: Situation) -> bool:
        """Whether this policy, had it been drawn, would have led to where the run is."""
        if not situation.rounds:
            return isinstance(now, Proposal)
        left = situation.left
        for count, performed in enumerate(situation.rounds):
            later = len(situation.rounds) - count
            more = replace(left, rounds=left.rounds + later, steps=left.steps + later)
            then = replace(situation, rounds=situation.rounds[:count], left=more)
            said = await self._decided(version, then)
            if isinstance(said, str) or said.plan != performed.plan:
                return False
        return True


def shelved_conductor(spec: str, name: str = "") -> ShelvedConductor:
    """Return the conductor of `DIR` or `DIR?OPTION=VALUE&...`; ConfigError where no policy there can act so.

    One that can may have begun the run that is to go on.
    """
    path, _, query = spec.partition("?")
    folder = Path(path)
    shelf, why = read(folder), None
    for version in dict.fromkeys([shelf.live, *(policy.version for policy in shelf.policies)]):
        try:
            _conductor(place(folder, version), query)
        except ConfigError as error:
            why = why or error
        else:
            return ShelvedConductor(name or f"policy:{spec}", folder, query)
    raise why or ConfigError(f"{folder}: there is no policy on this shelf")


@lru_cache(maxsize=_KEPT)
def _conductor(path: Path, query: str) -> PolicyConductor:
    """Return the conductor of a policy file, which never changes."""
    return policy_conductor(f"{path}?{query}" if query else str(path))


def _drawn(decided: Decided) -> float:
    """Return the probability with which a policy that explores would do this."""
    return 1.0 if isinstance(decided, str) or decided.propensity is None else decided.propensity


def _acting(shelf: Shelf, begun: str, decided: Mapping[str, Decided], situation: Situation) -> str:
    """Return the version that acts: the one that began the run, else the one drawn, else the live one."""
    if isinstance(decided.get(begun), Proposal):
        return begun
    drawn = shelf.drawn(situation.task.content_hash)
    return drawn if isinstance(decided[drawn], Proposal) else shelf.live


def _role(shelf: Shelf, acting: str, begun: str) -> str:
    role = "live" if acting == shelf.live else "canary" if acting in shelf.shares else "began this run"
    return role if begun in {"", acting} else f"{role}, as {begun}, which began this run, cannot act any more"


def _words(decided: Decided, situation: Situation) -> str:
    if isinstance(decided, str):
        return decided
    plans = [performed.plan for performed in situation.rounds]
    return act_of(decided.plan, decided.keeps, plans, _names(situation))


def _names(situation: Situation) -> Sequence[str]:
    return [card.name for card in situation.cards]
