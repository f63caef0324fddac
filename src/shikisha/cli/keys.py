"""Keys of a server: `keys create`, `list`, `revoke`, `rotate`, `budget` and `mend-clock`, on the journal's database.

Invariants: a secret is printed once, by the command that made it, and alone on stdout; what is done here holds for
servers that run within a second, and is in their audit under the name of the account at this terminal. Deliberately
absent: who may use this (whoever can write the database can do anything).
"""

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from time import time
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from shikisha.budget import format_dollars
from shikisha.cli import out, session
from shikisha.cli.exits import Exit
from shikisha.cli.options import Shared, command
from shikisha.errors import TaskError

if TYPE_CHECKING:
    from shikisha.server.keys import Issued, Key, KeyCaps, KeyKeeper
    from shikisha.server.keys.spend import Spent
    from shikisha.server.principal import Scope

T = TypeVar("T")
N = TypeVar("N", int, float)
group = typer.Typer(help="Look after the keys of a server.", no_args_is_help=True)
_DAY = 86400.0
Many = list[str] | None
KeyName = Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is, for people.")]
KeyId = Annotated[str, typer.Argument(metavar="KEY", help="A key's id, or the key itself's first part.")]


@dataclass(frozen=True, slots=True)
class May:
    """What a key may do."""

    tenant: Annotated[str, typer.Option("--tenant", help="Whose runs it sees.")] = "default"
    scope: Annotated[Many, typer.Option("--scope", help="run, read, approve or admin; may be repeated.")] = None
    worker: Annotated[Many, typer.Option("--worker", help="A worker it may use; all without one.")] = None
    conductor: Annotated[Many, typer.Option("--conductor", help="A conductor it may use; all without one.")] = None
    label: Annotated[Many, typer.Option("--label", help="A data label that all its tasks bear.")] = None
    days: Annotated[float | None, typer.Option("--days", min=0, help="Days until it expires.")] = None


@dataclass(frozen=True, slots=True)
class Most:
    """What a key may use; "none" for no cap."""

    dollars: Annotated[str, typer.Option("--dollars", help="US dollars in all, or none.")] = ""
    tokens: Annotated[str, typer.Option("--tokens", help="Tokens in all, or none.")] = ""
    requests: Annotated[str, typer.Option("--requests", help="Requests in all, or none.")] = ""
    dollars_per_day: Annotated[str, typer.Option("--dollars-per-day", help="US dollars a UTC day, or none.")] = ""
    tokens_per_day: Annotated[str, typer.Option("--tokens-per-day", help="Tokens a UTC day, or none.")] = ""
    requests_per_day: Annotated[str, typer.Option("--requests-per-day", help="Requests a UTC day, or none.")] = ""
    requests_per_minute: Annotated[str, typer.Option("--requests-per-minute", help="At one server, or none.")] = ""
    runs_at_once: Annotated[str, typer.Option("--runs-at-once", help="At one server, or none.")] = ""

    @property
    def given(self) -> bool:
        """Whether any cap is."""
        return any(getattr(self, field.name) for field in fields(self))

    def over(self, caps: "KeyCaps") -> "KeyCaps":
        """Return the caps with those that were given in the place of theirs."""
        from shikisha.server.keys import KeyCaps

        return KeyCaps(
            _cap(float, self.dollars, caps.dollars),
            _cap(int, self.tokens, caps.tokens),
            _cap(int, self.requests, caps.requests),
            _cap(float, self.dollars_per_day, caps.dollars_per_day),
            _cap(int, self.tokens_per_day, caps.tokens_per_day),
            _cap(int, self.requests_per_day, caps.requests_per_day),
            _cap(int, self.requests_per_minute, caps.requests_per_minute),
            _cap(int, self.runs_at_once, caps.runs_at_once),
        )


def create(name: KeyName, shared: Shared, may: May, most: Most) -> Exit:
    """Issue a key. Its secret is printed once, and cannot be had again."""
    from shikisha.server.keys import KeyCaps, Wanted

    if may.days is not None and may.days <= 0:
        raise TaskError("--days: expected more than 0: the key would open nothing")
    wanted = Wanted(
        session.storable(name, "the name"),
        session.storable(may.tenant, "--tenant"),
        frozenset(_scope(scope) for scope in may.scope or ("run", "read")),
        _names(may.worker, "--worker"),
        _names(may.conductor, "--conductor"),
        _names(may.label, "--label") or (),
        None if may.days is None else time() + may.days * _DAY,
        most.over(KeyCaps()),
    )
    for worker in wanted.workers or ():
        if worker not in (known := session.compose(shared).names):
            raise TaskError(f"--worker: no worker {worker!r} is configured; known are {', '.join(known)}")
    made = _do(shared, lambda keeper, by: keeper.issue(wanted, by), fresh=True)
    return _told(made, shared)


def listing(shared: Shared, tenant: Annotated[str, typer.Option("--tenant", help="Only this tenant's.")] = "") -> Exit:
    """List the keys, oldest first. Revoked ones stay."""
    found = _do(shared, lambda keeper, _: keeper.keys(tenant or None))
    if shared.json:
        out.value([key.shown() for key in found])
        return Exit.OK
    lines = [
        f"{key.id}  {_state(key):18}  {','.join(sorted(key.scopes)):22}  {key.tenant}  {key.name}" for key in found
    ]
    out.report("\n".join(lines) or "no keys yet: `shikisha keys create NAME` makes one")
    return Exit.OK


def revoke(key: KeyId, shared: Shared) -> Exit:
    """Take a key back. Servers refuse it within a second."""
    revoked = _do(shared, lambda keeper, by: keeper.revoke(_id(key), by))
    if shared.json:
        out.value(revoked.shown())
    else:
        out.note(f"revoked: key {revoked.id} ({revoked.name}) opens nothing any more")
    return Exit.OK


def rotate(key: KeyId, shared: Shared) -> Exit:
    """Give a key a new secret. The old one opens nothing any more."""
    return _told(_do(shared, lambda keeper, by: keeper.rotate(_id(key), by)), shared)


def budget(key: KeyId, shared: Shared, most: Most) -> Exit:
    """Show what a key used, in all and by day, or change its caps."""
    own_id = _id(key)

    async def look(keeper: "KeyKeeper", by: str) -> "tuple[Key, list[Spent]]":
        if most.given:
            await keeper.change(own_id, lambda key: replace(key, caps=most.over(key.caps)), by)
        found = await keeper.get(own_id)
        if found is None:
            raise TaskError(f"there is no key {own_id!r}: see `shikisha keys list`")
        from shikisha.server.keys.spend import spent

        return found, await keeper.database.query(lambda connection: spent(connection, own_id))

    found, used = _do(shared, look)
    days = [{"day": each.day or None, **_used(each)} for each in used]
    if shared.json:
        out.value(found.shown() | {"used": days})
    else:
        out.report("\n".join([*_caps(found), *(_line(each) for each in used)]))
    return Exit.OK


def mend(
    shared: Shared,
    key: Annotated[str, typer.Argument(metavar="[KEY]", help="One key's id; else every key.", show_default=False)] = "",
) -> Exit:
    """Mend what a clock that was ahead has left: keys that get 503 until a day which is far off.

    What was used on days that have not come yet counts as used today. Look at this machine's clock first.
    """
    mended = _do(shared, lambda keeper, by: keeper.mend_clock(_id(key) if key else None, by))
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    if shared.json:
        out.value({"today": today, "mended": [{"key": each.key, "day": each.day} for each in mended]})
        return Exit.OK
    lines = [f"key {each.key}: what was used on {each.day} counts on {today} now" for each in mended]
    out.note("\n".join(lines) or f"no key was used after today, which is {today} by this machine's clock")
    return Exit.OK


def _do(shared: Shared, act: "Callable[[KeyKeeper, str], Awaitable[T]]", *, fresh: bool = False) -> T:
    """Do something with the keys of the journal's database, in the name of whoever is at this terminal."""

    async def main() -> T:
        from shikisha.cli.desk import actor
        from shikisha.server.keys import KeyKeeper
        from shikisha.server.keys.keeper import UnknownKey, Unusable

        opened = session.journal(shared, session.compose(shared)) if fresh else session.reading(shared)
        async with opened as journal:
            try:
                return await act(KeyKeeper(journal), f"cli:{actor()}")
            except (UnknownKey, Unusable) as error:
                raise TaskError(str(error)) from None

    return session.perform(main)


def _told(made: "Issued", shared: Shared) -> Exit:
    if shared.json:
        out.value(made.key.shown() | {"secret": made.secret})
    else:
        out.note(f"key {made.key.id} ({made.key.name}); it is shown this once:")
        out.answer(made.secret)
    return Exit.OK


def _id(key: str) -> str:
    """Return the id in what somebody took for one: the id, or a whole key."""
    from shikisha.server.keys.secret import PREFIX

    return key.removeprefix(PREFIX).partition("-")[0]


def _scope(name: str) -> "Scope":
    from shikisha.server.principal import Scope

    try:
        return Scope(name)
    except ValueError:
        raise TaskError(f"--scope: expected one of {', '.join(Scope)}, not {name!r}") from None


def _names(given: Many, option: str) -> tuple[str, ...] | None:
    return None if given is None else tuple(session.storable(name, option) for name in given)


def _cap(number: Callable[[str], N], text: str, before: N | None) -> N | None:
    """Return the cap that a text says: another one, none, or as it was."""
    if text in {"", "none"}:
        return before if not text else None
    try:
        return number(text)
    except ValueError:
        raise TaskError(f"a cap is a number or none, not {text!r}") from None


def _state(key: "Key") -> str:
    if key.revoked is not None:
        return f"revoked {_date(key.revoked)}"
    if key.expires is not None:
        return f"{'expired' if key.expires <= time() else 'until'} {_date(key.expires)}"
    return "valid"


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def _caps(key: "Key") -> list[str]:
    caps = {name: cap for name, cap in asdict(key.caps).items() if cap is not None}
    said = ", ".join(f"{name.replace('_', ' ')} {cap:g}" for name, cap in caps.items())
    return [f"key {key.id} ({key.name}), tenant {key.tenant}: {said or 'no caps'}"]


def _line(each: "Spent") -> str:
    used = _used(each)
    paid = format_dollars(used["dollars"], 6)
    return f"{each.day or 'in all':10}  {paid}  {used['tokens']:,} tokens  {used['requests']:,} requests"


def _used(each: "Spent") -> dict[str, float]:
    from shikisha.server.keys.key import dollars

    return {"dollars": dollars(each.used.dollars), "tokens": each.used.tokens, "requests": each.used.requests}


group.command("create")(command(create))
group.command("list")(command(listing))
group.command("revoke")(command(revoke))
group.command("rotate")(command(rotate))
group.command("budget")(command(budget))
group.command("mend-clock")(command(mend))
