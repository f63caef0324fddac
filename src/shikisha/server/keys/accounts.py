"""What this server may use of one key's budget, and what its runs hold and used of that.

Invariant: what is held and used never passes what was granted, wherever the key has a cap, and what is granted is
granted by the database (`spend`), one tranche after another. Calls are held against the day on which they begin, and
counted on that day, whenever they end. A clock that goes back is not believed: by a day at most, and calls still count
on the later day, so that no day's budget is had twice; by more, and nothing is held until that day comes, or until
somebody says that it was the later day which was wrong (`spend.mend_clock`). Deliberately absent: runs, and what a
request is told.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial

from shikisha.server.keys.database import Database
from shikisha.server.keys.key import KeyCaps
from shikisha.server.keys.portion import NOTHING, Kind, Portion
from shikisha.server.keys.spend import Refusal, Why, Wish, give_back, grant, latest_day

_DAY = 86400.0
_TRIES = 3


@dataclass(slots=True)
class Tranche:
    """What is granted of a key for a day since this server began, and what of that is used and held."""

    granted: Portion = NOTHING
    used: Portion = NOTHING
    held: Portion = NOTHING

    def room(self, need: Portion, capped: frozenset[Kind]) -> bool:
        """Whether that much more may be held."""
        left = self.granted.minus(self.used).minus(self.held).minus(need)
        return all(value >= 0 for kind, value in left.kinds() if kind in capped and need[_PLACES[kind]])

    @property
    def spare(self) -> bool:
        """Whether something is granted that is neither used nor held."""
        return any(value > 0 for value in self.granted.minus(self.used).minus(self.held))

    def close(self) -> None:
        """Let nothing more be held until more is granted."""
        self.granted = self.used.plus(self.held)


_PLACES = {kind: place for place, kind in enumerate(Kind)}


@dataclass(slots=True)
class Account:
    """A key's account at this server, under one member's name."""

    key: str
    member: str
    database: Database
    now: Callable[[], float]
    changed: Callable[["Account"], None]  # called when more was used
    tranches: dict[str, Tranche] = field(default_factory=dict)
    latest: str = ""
    runs: int = 0
    _untold: set[str] = field(default_factory=set)  # days on which more was used than the database was told
    _caps: KeyCaps | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def hold(self, need: Portion, caps: KeyCaps) -> str | Refusal:
        """Hold a portion; return the day on which it counts, or why not. JournalUnavailable: nobody can say."""
        capped = _capped(caps)
        for _ in range(_TRIES):
            day = self._day() or await self._day_again()
            if day is None:
                return Refusal(Why.CLOCK, latest=self.latest)
            tranche = self.tranches.setdefault(day, Tranche())
            if (caps == self._caps or not capped) and tranche.room(need, capped):
                tranche.held = tranche.held.plus(need)
                return day
            refusal = await self._more(day, need, caps)
            if refusal is not None and not (refusal.why is Why.CLOCK and refusal.latest > self.latest):
                return refusal
            self.latest = max(self.latest, refusal.latest if refusal else day)
        return Refusal(Why.CLOCK, latest=self.latest)

    def settle(self, day: str | None, held: Portion, used: Portion) -> None:
        """Release what was held on a day (None: nothing was, count it today), and count what was used."""
        day = day or self._day() or self.latest
        tranche = self.tranches.setdefault(day, Tranche())
        tranche.held = tranche.held.minus(held)
        if any(used):
            tranche.used = tranche.used.plus(used)
            self._untold.add(day)
            self.changed(self)

    def told(self) -> dict[tuple[str, str], Portion]:
        """Return what was used, by key and day, on the days on which it is more than was returned before."""
        days, self._untold = self._untold, set()
        return {(self.key, day): self.tranches[day].used for day in days}

    async def rest(self) -> None:
        """Give back what nobody here holds or used, and forget the days that are over."""
        async with self._turn:
            today = self._day() or self.latest
            spare = {day: each for day, each in self.tranches.items() if each.spare}
            for each in spare.values():
                each.close()
            granted = {day: each.granted for day, each in spare.items()}
            if granted:
                await self.database.write(partial(give_back, key=self.key, member=self.member, granted=granted))
            for day, each in tuple(self.tranches.items()):
                if day < today and not any(each.held) and day not in self._untold:
                    del self.tranches[day]

    async def _more(self, day: str, need: Portion, caps: KeyCaps) -> Refusal | None:
        """Have more granted, unless somebody just did."""
        async with self._turn:
            tranche = self.tranches.setdefault(day, Tranche())
            if caps == self._caps and tranche.room(need, _capped(caps)):
                return None
            tranche.close()
            wish = Wish(self.key, day, self.member, tranche.used, tranche.held, need)
            answer = await self.database.write(partial(grant, wish=wish))
            if isinstance(answer, Refusal):
                return answer
            tranche.granted, self._caps = answer, caps
            return None

    def _day(self) -> str | None:
        """Return the UTC day, or the last one seen where the clock is up to a day behind it; None where it is more."""
        now = self.now()
        day = day_of(now)
        if day < self.latest:
            day = self.latest if day_of(now + _DAY) >= self.latest else ""
        self.latest = max(self.latest, day)
        return day or None

    async def _day_again(self) -> str | None:
        """Return the day once the last one was asked for anew: it may have been corrected."""
        self.latest = await self.database.query(partial(latest_day, key=self.key))
        return self._day()


def day_of(at: float) -> str:
    """Return the UTC day of a Unix time, as in 2026-11-24."""
    return _named(int(at // _DAY))


@lru_cache(16)
def _named(day: int) -> str:
    return datetime.fromtimestamp(day * _DAY, UTC).strftime("%Y-%m-%d")


@lru_cache(1024)
def _capped(caps: KeyCaps) -> frozenset[Kind]:
    return frozenset(kind for kind in Kind if not (getattr(caps, kind) is None is getattr(caps, f"{kind}_per_day")))
