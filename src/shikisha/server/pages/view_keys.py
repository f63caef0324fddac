"""Keys and budgets as they are shown: what each may use, what it used, day by day; and a form for a new key, read.

Invariant: a cap that is not there is shown as none, never as 0; the secret of a key is shown on the page that issues
it and on no other. Deliberately absent: issuing (`keys`), and what counts as used (`server.keys`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from shikisha.budget import format_dollars
from shikisha.clean import one_line
from shikisha.errors import ConfigError
from shikisha.server.keys import Key, KeyCaps, Wanted
from shikisha.server.keys.key import dollars
from shikisha.server.keys.portion import NOTHING, Portion
from shikisha.server.keys.spend import Spent
from shikisha.server.keys.tables import TOTAL
from shikisha.server.pages.spark import Columns, columns
from shikisha.server.principal import Scope
from shikisha.task import unstorable

DAYS = 30
_LONGEST = 200
_WHOLE = ("tokens", "requests", "tokens_per_day", "requests_per_day", "requests_per_minute", "runs_at_once")
_PAID = ("dollars", "dollars_per_day")


@dataclass(frozen=True, slots=True)
class Meter:
    """How much of a cap is used, in words and as a share (above 1: more than it)."""

    name: str
    used: str
    cap: str
    share: float

    @property
    def level(self) -> str:
        """How full it is."""
        return "all" if self.share >= 1 else "much" if self.share >= 0.8 else "used"

    @property
    def width(self) -> float:
        """Its bar, of 100."""
        return round(min(100.0, 100 * self.share), 1)


@dataclass(frozen=True, slots=True)
class KeyView:
    """A key, what it used in all and today, its caps, and its days as bars."""

    key: Key
    state: str
    total: Portion
    today: Portion
    meters: tuple[Meter, ...]
    days: Columns

    @property
    def spent(self) -> float:
        """Dollars in all."""
        return dollars(self.total.dollars)

    @property
    def spent_today(self) -> float:
        """Dollars today."""
        return dollars(self.today.dollars)


@dataclass(frozen=True, slots=True)
class KeysView:
    """All keys that are shown; `days` adds their days up, of those in sight."""

    keys: tuple[KeyView, ...]
    days: Columns
    today: float
    total: float


def since(now: float) -> str:
    """Return the first of the days that are shown."""
    return _days(now)[0]


def view(keys: Sequence[Key], spent: Iterable[Spent], now: float) -> KeysView:
    """Return the keys, live ones first; `spent` may hold other keys' rows, which are left out."""
    used: dict[str, dict[str, Portion]] = {key.id: {} for key in keys}
    for row in spent:
        if row.key in used:
            used[row.key][row.day] = row.used
    shown = tuple(_key(key, used[key.id], now) for key in keys)
    summed = {day: _sum(days.get(day, NOTHING) for days in used.values()) for day in _days(now)}
    today = dollars(summed[_days(now)[-1]].dollars)
    live_first = tuple(sorted(shown, key=lambda each: (each.state != "valid", -each.key.created)))
    return KeysView(live_first, _columns(summed), today, sum(each.spent for each in shown))


def _key(key: Key, used: Mapping[str, Portion], now: float) -> KeyView:
    refused = key.refused(now)
    state = "valid" if refused is None else "revoked" if key.revoked is not None else "expired"
    total, today = used.get(TOTAL, NOTHING), used.get(_days(now)[-1], NOTHING)
    days = _columns({day: used.get(day, NOTHING) for day in _days(now)})
    return KeyView(key, state, total, today, tuple(_meters(key.caps, total, today)), days)


def _meters(caps: KeyCaps, total: Portion, today: Portion) -> Iterable[Meter]:
    for word, used, dollar_cap, tokens, requests in (
        ("in all", total, caps.dollars, caps.tokens, caps.requests),
        ("today", today, caps.dollars_per_day, caps.tokens_per_day, caps.requests_per_day),
    ):
        if dollar_cap is not None:
            paid = dollars(used.dollars)
            yield Meter(f"dollars {word}", format_dollars(paid), format_dollars(dollar_cap), _share(paid, dollar_cap))
        if tokens is not None:
            yield Meter(f"tokens {word}", f"{used.tokens:,}", f"{tokens:,}", _share(used.tokens, tokens))
        if requests is not None:
            yield Meter(f"requests {word}", f"{used.requests:,}", f"{requests:,}", _share(used.requests, requests))


def _share(used: float, cap: float) -> float:
    return used / cap if cap > 0 else 1.0


def _sum(portions: Iterable[Portion]) -> Portion:
    found = NOTHING
    for portion in portions:
        found = found.plus(portion)
    return found


def _columns(used: Mapping[str, Portion]) -> Columns:
    return columns(
        [(dollars(each.dollars), f"{day}: {format_dollars(dollars(each.dollars))}") for day, each in used.items()]
    )


def _days(now: float) -> list[str]:
    today = datetime.fromtimestamp(now, UTC).date()
    return [(today - timedelta(days=back)).isoformat() for back in reversed(range(DAYS))]


def wanted(form: Mapping[str, str], scopes: Iterable[str], now: float) -> Wanted:
    """Read the form of a new key; ConfigError names the field that cannot be read."""
    name = _plain(form.get("name", ""), "name")
    if not name:
        raise ConfigError("name: expected a name, so that one knows whose key it is")
    granted = [scope for scope in scopes if scope]
    known = {scope.value for scope in Scope}
    if not granted or not known.issuperset(granted):
        raise ConfigError(f"scopes: expected at least one of {', '.join(sorted(known))}")
    days = _number(form, "expires")
    if days == 0:
        raise ConfigError("expires: expected more days than 0: the key would open nothing")
    return Wanted(
        name=name,
        tenant=_plain(form.get("tenant", ""), "tenant") or "default",
        scopes=frozenset(map(Scope, granted)),
        workers=_names(form.get("workers", ""), "workers"),
        conductors=_names(form.get("conductors", ""), "conductors"),
        labels=_names(form.get("labels", ""), "labels") or (),
        expires=None if days is None else now + 86_400 * days,
        caps=caps(form),
    )


def caps(form: Mapping[str, str]) -> KeyCaps:
    """Read the caps in a form; an empty field is no cap."""
    whole = {name: None if (found := _number(form, name)) is None else int(found) for name in _WHOLE}
    return KeyCaps(**{name: _number(form, name) for name in _PAID}, **whole)  # type: ignore[arg-type]  # whole ones are


def _number(form: Mapping[str, str], name: str) -> float | None:
    text = form.get(name, "").strip()
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf") or (name in _WHOLE and found != int(found)):
        raise ConfigError(
            f"{name}: expected a {'whole ' if name in _WHOLE else ''}number from 0, not {one_line(text, 40)!r}"
        )
    return found


def _names(text: str, name: str) -> tuple[str, ...] | None:
    names = tuple(dict.fromkeys(_plain(part, name) for part in text.split(",")))
    return tuple(each for each in names if each) or None


def _plain(text: str, name: str) -> str:
    text = text.strip()
    if len(text) > _LONGEST or unstorable(text) or not (text.isprintable() or not text):
        raise ConfigError(f"{name}: expected at most {_LONGEST} printable characters")
    return text
