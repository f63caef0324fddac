"""`/ui/keys`: keys, their budgets and their spending by day, with forms to issue, change and revoke keys.

Invariants: only an admin sees keys of others or changes any. A secret is shown only on the page that answers the form
which requested it. A missing cap is shown as none, never as 0. Erasure and the audit log are in the API and the
command line.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from time import time

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shikisha.core.budget import format_dollars
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.task import storage_problem
from shikisha.core.text import one_line
from shikisha.plots.day_charts import ChartForm, DayChart, DaySeries, day_bar_chart
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys import IssuedKey, Key, KeyCaps, KeySpec
from shikisha.server.keys.grants import NO_AMOUNT, BudgetAmount, DailySpend, read_spend
from shikisha.server.keys.key import KeyScope, dollars_of
from shikisha.server.keys.key_tables import ALL_DAYS
from shikisha.server.lifecycle.service import RunService
from shikisha.server.pages.login import (
    FORM_CHECK,
    AdminLogin,
    AnyLogin,
    CheckedForm,
    PageRoute,
    PageSession,
    Service,
    form_texts,
    redirect,
)
from shikisha.server.pages.templates import UI_ROOT, render_page

SHOWN_DAYS = 30
_MAX_TEXT = 200
_COUNT_CAPS = ("tokens", "requests", "tokens_per_day", "requests_per_day", "requests_per_minute", "runs_at_once")
_DOLLAR_CAPS = ("dollars", "dollars_per_day")


@dataclass(frozen=True, slots=True)
class CapMeter:
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
    total: BudgetAmount
    today: BudgetAmount
    meters: tuple[CapMeter, ...]
    days: DayChart

    @property
    def spent(self) -> float:
        """Dollars in all."""
        return dollars_of(self.total.dollars)

    @property
    def spent_today(self) -> float:
        """Dollars today."""
        return dollars_of(self.today.dollars)


@dataclass(frozen=True, slots=True)
class KeysView:
    """All keys that are shown; `days` adds their days up, of those in sight."""

    keys: tuple[KeyView, ...]
    days: DayChart
    today: float
    total: float


def first_shown_day(now: float) -> str:
    """Return the first of the days that are shown."""
    return _shown_days(now)[0]


def keys_view(keys: Sequence[Key], spent: Iterable[DailySpend], now: float) -> KeysView:
    """Return the keys, live ones first; `spent` may hold other keys' rows, which are left out."""
    used: dict[str, dict[str, BudgetAmount]] = {key.id: {} for key in keys}
    for row in spent:
        if row.key in used:
            used[row.key][row.day] = row.used
    shown = tuple(_key_view(key, used[key.id], now) for key in keys)
    rows = {day: [days.get(day, NO_AMOUNT) for days in used.values()] for day in _shown_days(now)}
    summed = {day: reduce(BudgetAmount.plus, each, NO_AMOUNT) for day, each in rows.items()}
    today = dollars_of(summed[_shown_days(now)[-1]].dollars)
    live_first = tuple(sorted(shown, key=lambda each: (each.state != "valid", -each.key.created)))
    return KeysView(live_first, _bars_by_day(summed), today, sum(each.spent for each in shown))


def _key_view(key: Key, used: Mapping[str, BudgetAmount], now: float) -> KeyView:
    refused = key.refused(now)
    state = "valid" if refused is None else "revoked" if key.revoked is not None else "expired"
    total, today = used.get(ALL_DAYS, NO_AMOUNT), used.get(_shown_days(now)[-1], NO_AMOUNT)
    days = _bars_by_day({day: used.get(day, NO_AMOUNT) for day in _shown_days(now)})
    return KeyView(key, state, total, today, tuple(_cap_meters(key.caps, total, today)), days)


def _cap_meters(caps: KeyCaps, total: BudgetAmount, today: BudgetAmount) -> Iterable[CapMeter]:
    for word, used, dollar_cap, tokens, requests in (
        ("in all", total, caps.dollars, caps.tokens, caps.requests),
        ("today", today, caps.dollars_per_day, caps.tokens_per_day, caps.requests_per_day),
    ):
        if dollar_cap is not None:
            paid = dollars_of(used.dollars)
            yield CapMeter(
                f"dollars {word}", format_dollars(paid), format_dollars(dollar_cap), _used_share(paid, dollar_cap)
            )
        if tokens is not None:
            yield CapMeter(f"tokens {word}", f"{used.tokens:,}", f"{tokens:,}", _used_share(used.tokens, tokens))
        if requests is not None:
            yield CapMeter(
                f"requests {word}", f"{used.requests:,}", f"{requests:,}", _used_share(used.requests, requests)
            )


def _used_share(used: float, cap: float) -> float:
    return used / cap if cap > 0 else 1.0


def _bars_by_day(used: Mapping[str, BudgetAmount]) -> DayChart:
    spent = DaySeries("", tuple(dollars_of(each.dollars) for each in used.values()))
    return day_bar_chart(tuple(used), (spent,), ChartForm(format_dollars, height=120.0))


def _shown_days(now: float) -> list[str]:
    today = datetime.fromtimestamp(now, UTC).date()
    return [(today - timedelta(days=back)).isoformat() for back in reversed(range(SHOWN_DAYS))]


def read_key_form(form: Mapping[str, str], scopes: Iterable[str], now: float) -> KeySpec:
    """Read the form of a new key; ConfigError names the field that cannot be read."""
    name = _read_text(form.get("name", ""), "name")
    if not name:
        raise ConfigError("name: expected a name, so that one knows whose key it is")
    granted = [scope for scope in scopes if scope]
    known = {scope.value for scope in KeyScope}
    if not granted or not known.issuperset(granted):
        raise ConfigError(f"scopes: expected at least one of {', '.join(sorted(known))}")
    days = _read_number(form, "expires")
    if days == 0:
        raise ConfigError("expires: expected more days than 0: the key would open nothing")
    return KeySpec(
        name=name,
        tenant=_read_text(form.get("tenant", ""), "tenant") or "default",
        scopes=frozenset(map(KeyScope, granted)),
        workers=_read_names(form.get("workers", ""), "workers"),
        conductors=_read_names(form.get("conductors", ""), "conductors"),
        labels=_read_names(form.get("labels", ""), "labels") or (),
        expires=None if days is None else now + 86_400 * days,
        caps=read_caps_form(form),
    )


def read_caps_form(form: Mapping[str, str]) -> KeyCaps:
    """Read the caps in a form; an empty field is no cap."""
    whole = {name: None if (found := _read_number(form, name)) is None else int(found) for name in _COUNT_CAPS}
    return KeyCaps(**{name: _read_number(form, name) for name in _DOLLAR_CAPS}, **whole)  # type: ignore[arg-type]  # whole ones are


def _read_number(form: Mapping[str, str], name: str) -> float | None:
    text = form.get(name, "").strip()
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf") or (name in _COUNT_CAPS and found != int(found)):
        raise ConfigError(
            f"{name}: expected a {'whole ' if name in _COUNT_CAPS else ''}number from 0, not {one_line(text, 40)!r}"
        )
    return found


def _read_names(text: str, name: str) -> tuple[str, ...] | None:
    names = tuple(dict.fromkeys(_read_text(part, name) for part in text.split(",")))
    return tuple(each for each in names if each) or None


def _read_text(text: str, name: str) -> str:
    text = text.strip()
    if len(text) > _MAX_TEXT or storage_problem(text) or not (text.isprintable() or not text):
        raise ConfigError(f"{name}: expected at most {_MAX_TEXT} printable characters")
    return text


router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(f"{UI_ROOT}/keys")
async def show_keys(request: Request, session: AnyLogin, service: Service) -> Response:
    """Show an admin all keys, and anyone else his own."""
    return await _keys_page(request, session, service)


@router.post(f"{UI_ROOT}/keys")
async def issue_key(request: Request, session: AdminLogin, service: Service, form: CheckedForm) -> Response:
    """Issue a key, and show its secret this once."""
    try:
        wanted = read_key_form(form_texts(form), [str(each) for each in form.getlist("scopes")], service.keys.now())
    except ConfigError as error:
        return await _keys_page(request, session, service, wrong=str(error), form=form_texts(form))
    return await _keys_page(request, session, service, issued=await service.keys.issue(wanted, session.by.key))


@router.post(f"{UI_ROOT}/keys/{{own_id}}/revoke", dependencies=[FORM_CHECK])
async def revoke_key(own_id: str, session: AdminLogin, service: Service) -> Response:
    """Take a key back."""
    if own_id == session.by.key:
        raise ApiError(409, "this is the key that you are logged in with: take it back with another", "own_key")
    await _existing_key(service, own_id)
    await service.keys.revoke(own_id, session.by.key)
    return redirect(f"{UI_ROOT}/keys")


@router.post(f"{UI_ROOT}/keys/{{own_id}}/rotate", dependencies=[FORM_CHECK])
async def rotate_key(request: Request, own_id: str, session: AdminLogin, service: Service) -> Response:
    """Give a key a new secret, and show it this once."""
    await _existing_key(service, own_id)
    return await _keys_page(request, session, service, issued=await service.keys.rotate(own_id, session.by.key))


@router.post(f"{UI_ROOT}/keys/{{own_id}}/caps")
async def change_caps(own_id: str, session: AdminLogin, service: Service, form: CheckedForm) -> Response:
    """Change a key's caps."""
    await _existing_key(service, own_id)
    try:
        found = read_caps_form(form_texts(form))
    except ConfigError as error:
        raise ApiError(400, str(error), "invalid_request") from None
    await service.keys.change(own_id, lambda key: replace(key, caps=found), session.by.key)
    return redirect(f"{UI_ROOT}/keys#{own_id}")


async def _keys_page(
    request: Request,
    session: PageSession,
    service: RunService,
    *,
    issued: IssuedKey | None = None,
    wrong: str = "",
    form: dict[str, str] | None = None,
) -> Response:
    admin, now = session.may(KeyScope.ADMIN), time()
    own = await service.keys.get(session.by.key)
    known = await service.keys.keys() if admin else [own] if own is not None else []
    told = await service.journal.query(
        partial(read_spend, key=None if admin else session.by.key, since=first_shown_day(now))
    )
    shown = {
        "view": keys_view(known, told, now),
        "admin": admin,
        "issued": issued,
        "wrong": wrong,
        "given": form or {},
        "scopes": [scope.value for scope in KeyScope],
        "shown_at": now,
    }
    return render_page(request, "keys.html.jinja", shown, 400 if wrong else 200)


async def _existing_key(service: RunService, own_id: str) -> Key:
    found = await service.keys.get(own_id)
    if found is None:
        raise ApiError(404, f"there is no key {own_id}", "not_found")
    return found
