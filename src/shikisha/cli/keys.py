"""`keys`: the API keys of a server, in the database of its journal.

Invariants: a secret is printed once, by the command that created it, and alone on stdout; running servers apply a
change within a second, and record it in their audit under the account at this terminal. There is no authorization here,
because whoever can write to the database can do anything.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from time import time
from typing import Annotated, TypeVar

import typer

from shikisha.cli import output, session
from shikisha.cli.approval_prompt import current_user
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions, command
from shikisha.config.container import load_config
from shikisha.core.budget import format_dollars
from shikisha.core.errors import TaskError
from shikisha.core.fast_dataclass import asdict, dataclass, fields, replace
from shikisha.server.keys import IssuedKey, Key, KeyCaps, KeyManager, KeySpec
from shikisha.server.keys.grants import DailySpend, read_spend
from shikisha.server.keys.key import KEY_PREFIX, KeyScope, dollars_of
from shikisha.server.keys.manager import UnknownKey, UnusableKey
from shikisha.server.keys.passkeys import LINK_SECONDS, Passkey, Passkeys, login_link, qr_code

T = TypeVar("T")
N = TypeVar("N", int, float)
group = typer.Typer(
    help="Manage the API keys of a server.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
_DAY = 86400.0
MaybeKeyId = Annotated[
    str,
    typer.Argument(metavar="KEY", help="The id of a key; with --mend-clock by default every key.", show_default=False),
]
MendClock = Annotated[
    bool,
    typer.Option(
        "--mend-clock",
        help="Move usage that a clock which ran ahead recorded in the future to today; check the clock first.",
    ),
]
Many = list[str] | None
KeyName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the key, for people.")]
KeyId = Annotated[str, typer.Argument(metavar="KEY", help="The id of a key, or the key itself.")]


@dataclass(frozen=True, slots=True)
class KeyPermissionOptions:
    """The permissions of a key."""

    tenant: Annotated[str, typer.Option("--tenant", help="The tenant whose runs it sees.")] = "default"
    scope: Annotated[Many, typer.Option("--scope", help="run, read, approve or admin; may be repeated.")] = None
    worker: Annotated[Many, typer.Option("--worker", help="A worker that it may use; by default all.")] = None
    conductor: Annotated[Many, typer.Option("--conductor", help="A conductor that it may use; by default all.")] = None
    label: Annotated[Many, typer.Option("--label", help="A data label that all its tasks carry.")] = None
    days: Annotated[float | None, typer.Option("--days", min=0, help="Days until it expires.")] = None


@dataclass(frozen=True, slots=True)
class KeyCapOptions:
    """The caps of a key; "none" for no cap."""

    cap: Annotated[
        Many,
        typer.Option(
            "--cap",
            metavar="WHAT=NUMBER",
            help="What it may use: dollars, tokens, requests (in all, or -per-day, by UTC), requests-per-minute, "
            "runs-at-once (at one server); NUMBER or none; may be repeated.",
        ),
    ] = None

    def apply_to(self, caps: KeyCaps) -> KeyCaps:
        """Return the caps, with those that are given in place of theirs."""
        known = {each.name.replace("_", "-"): each.name for each in fields(KeyCaps)}
        changed: dict[str, float | None] = {}
        for text in self.cap or ():
            what, _, number = text.partition("=")
            if what not in known:
                raise TaskError(f"--cap: expected one of {', '.join(known)} and =NUMBER, not {text!r}")
            changed[known[what]] = _parse_cap(float if "dollars" in what else int, number)
        return replace(caps, **changed)  # type: ignore[arg-type]  # by name, so that mypy cannot tell int from float


def create(name: KeyName, shared: SharedOptions, may: KeyPermissionOptions, most: KeyCapOptions) -> ExitCode:
    """Create a key. Its secret is printed once and cannot be shown again."""
    if may.days is not None and may.days <= 0:
        raise TaskError("--days: expected more than 0, or the key would never be valid")
    wanted = KeySpec(
        session.require_storable(name, "the name"),
        session.require_storable(may.tenant, "--tenant"),
        frozenset(_parse_scope(scope) for scope in may.scope or ("run", "read")),
        _names(may.worker, "--worker"),
        _names(may.conductor, "--conductor"),
        _names(may.label, "--label") or (),
        None if may.days is None else time() + may.days * _DAY,
        most.apply_to(KeyCaps()),
    )
    for worker in wanted.workers or ():
        if worker not in (known := load_config(shared.config).names):
            raise TaskError(f"--worker: no worker {worker!r} is configured; known are {', '.join(known)}")
    made = _with_keys(shared, lambda keeper, by: keeper.issue(wanted, by), fresh=True)
    return _print_secret(made, shared)


def list_keys(
    shared: SharedOptions, tenant: Annotated[str, typer.Option("--tenant", help="Only keys of this tenant.")] = ""
) -> ExitCode:
    """List the keys, the oldest first, revoked ones included."""
    found = _with_keys(shared, lambda keeper, _: keeper.keys(tenant or None))
    if shared.json:
        output.print_json([key.shown() for key in found])
        return ExitCode.OK
    lines = [
        f"{key.id}  {_key_state(key):18}  {','.join(sorted(key.scopes)):22}  {key.tenant}  {key.name}" for key in found
    ]
    output.print_report("\n".join(lines) or "no keys yet: `shikisha keys create NAME` creates one")
    return ExitCode.OK


def revoke(
    key: KeyId,
    shared: SharedOptions,
    renew: Annotated[bool, typer.Option("--renew", help="Only its secret: give it a new one.")] = False,
) -> ExitCode:
    """Revoke a key. Servers refuse it within a second."""
    if renew:
        return _print_secret(_with_keys(shared, lambda keeper, by: keeper.rotate(_key_id(key), by)), shared)
    revoked = _with_keys(shared, lambda keeper, by: keeper.revoke(_key_id(key), by))
    if shared.json:
        output.print_json(revoked.shown())
    else:
        output.print_note(f"revoked: key {revoked.id} ({revoked.name}) is no longer valid")
    return ExitCode.OK


def budget(shared: SharedOptions, most: KeyCapOptions, key: MaybeKeyId = "", repaired: MendClock = False) -> ExitCode:
    """Show the usage of a key, in total and by day, or change its caps."""
    own_id = _key_id(key)
    if repaired:
        return _mend_clock(own_id or None, shared)
    if not own_id:
        raise TaskError("expected the id of a KEY: see `shikisha keys list`")

    async def look(keeper: KeyManager, by: str) -> tuple[Key, list[DailySpend]]:
        if most.cap:
            await keeper.change(own_id, lambda key: replace(key, caps=most.apply_to(key.caps)), by)
        found = await keeper.get(own_id)
        if found is None:
            raise TaskError(f"there is no key {own_id!r}: see `shikisha keys list`")

        return found, await keeper.database.query(lambda connection: read_spend(connection, own_id))

    found, used = _with_keys(shared, look)
    days = [{"day": each.day or None, **_usage_json(each)} for each in used]
    if shared.json:
        output.print_json(found.shown() | {"used": days})
    else:
        output.print_report("\n".join([*_cap_lines(found), *(_usage_line(each) for each in used)]))
    return ExitCode.OK


def devices(
    key: KeyId,
    shared: SharedOptions,
    link: Annotated[
        bool,
        typer.Option("--link", help="Make a link and a QR code that log one device in, once, within five minutes."),
    ] = False,
    url: Annotated[
        str,
        typer.Option(
            "--url", help="The address of the server, for the link; by default server.url.", show_default=False
        ),
    ] = "",
    remove: Annotated[
        Many, typer.Option("--remove", help="The id of a passkey to remove, or all; may be repeated.")
    ] = None,
) -> ExitCode:
    """List the passkeys of a key, log a device in, or remove what a lost device holds."""
    own_id = _key_id(key)
    if link:
        return _print_link(own_id, url, shared)

    async def look(keeper: KeyManager, by: str) -> list[Passkey]:
        held = Passkeys(keeper)
        for each in await held.of_key(own_id):
            if remove and (each.id in remove or "all" in remove):
                await held.remove(own_id, each.id, by)
        return await held.of_key(own_id)

    found = _with_keys(shared, look)
    if shared.json:
        output.print_json([asdict(each) for each in found])
        return ExitCode.OK
    lines = [f"{each.id}  {each.site}  {_format_date(each.created)}  {each.name}" for each in found]
    output.print_report("\n".join(lines) or "no passkeys: their holder adds one on the page Device")
    return ExitCode.OK


def _print_link(own_id: str, url: str, shared: SharedOptions) -> ExitCode:
    base = url or load_config(shared.config).settings.server.url or ""
    if not base.startswith(("http://", "https://")):
        raise TaskError("--url: expected the address at which the device reaches the server, or server.url")

    async def make(keeper: KeyManager, by: str) -> str:
        found = await keeper.get(own_id)
        if found is None or found.refused(keeper.now()) is not None:
            raise TaskError(f"there is no valid key {own_id!r}: see `shikisha keys list`")
        return login_link(base, await Passkeys(keeper).open_link(found, by))

    made = _with_keys(shared, make)
    if shared.json:
        output.print_json({"key": own_id, "link": made, "seconds": LINK_SECONDS})
    else:
        output.print_note(f"{qr_code(made)}\nlogs one device in, once, within {LINK_SECONDS / 60:.0f} minutes:")
        output.print_answer(made)
    return ExitCode.OK


def _mend_clock(key: str | None, shared: SharedOptions) -> ExitCode:
    """Move the usage of future days to today: the keys that it belongs to get status 503 until that day."""
    mended = _with_keys(shared, lambda keeper, by: keeper.mend_clock(key, by))
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    if shared.json:
        output.print_json({"today": today, "mended": [{"key": each.key, "day": each.day} for each in mended]})
        return ExitCode.OK
    lines = [f"key {each.key}: the usage of {each.day} is moved to {today}" for each in mended]
    output.print_note(
        "\n".join(lines) or f"no key has usage after today, which is {today} by the clock of this machine"
    )
    return ExitCode.OK


def _with_keys(shared: SharedOptions, act: Callable[[KeyManager, str], Awaitable[T]], *, fresh: bool = False) -> T:
    """Act on the keys in the journal's database, in the name of the account at this terminal."""

    async def main() -> T:
        opened = (
            session.open_command_journal(shared, load_config(shared.config))
            if fresh
            else session.open_existing_journal(shared)
        )
        async with opened as journal:
            try:
                return await act(KeyManager(journal), f"cli:{current_user()}")
            except (UnknownKey, UnusableKey) as error:
                raise TaskError(str(error)) from None

    return session.run_async(main)


def _print_secret(made: IssuedKey, shared: SharedOptions) -> ExitCode:
    if shared.json:
        output.print_json(made.key.shown() | {"secret": made.secret})
    else:
        output.print_note(f"key {made.key.id} ({made.key.name}); it is shown only once:")
        output.print_answer(made.secret)
    return ExitCode.OK


def _key_id(key: str) -> str:
    """Return the id of a key that is named by its id, or by the whole key."""
    return key.removeprefix(KEY_PREFIX).partition("-")[0]


def _parse_scope(name: str) -> KeyScope:
    try:
        return KeyScope(name)
    except ValueError:
        raise TaskError(f"--scope: expected one of {', '.join(KeyScope)}, not {name!r}") from None


def _names(given: Many, option: str) -> tuple[str, ...] | None:
    return None if given is None else tuple(session.require_storable(name, option) for name in given)


def _parse_cap(number: Callable[[str], float], text: str) -> float | None:
    """Return the cap of an option: a number, or None for `none`."""
    try:
        return None if text == "none" else number(text)
    except ValueError:
        raise TaskError(f"a cap is a number or none, not {text!r}") from None


def _key_state(key: Key) -> str:
    if key.revoked is not None:
        return f"revoked {_format_date(key.revoked)}"
    if key.expires is not None:
        return f"{'expired' if key.expires <= time() else 'until'} {_format_date(key.expires)}"
    return "valid"


def _format_date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def _cap_lines(key: Key) -> list[str]:
    caps = {name: cap for name, cap in asdict(key.caps).items() if cap is not None}
    said = ", ".join(f"{name.replace('_', ' ')} {cap:g}" for name, cap in caps.items())
    return [f"key {key.id} ({key.name}), tenant {key.tenant}: {said or 'no caps'}"]


def _usage_line(each: DailySpend) -> str:
    used = _usage_json(each)
    paid = format_dollars(used["dollars"], 6)
    return f"{each.day or 'in all':10}  {paid}  {used['tokens']:,} tokens  {used['requests']:,} requests"


def _usage_json(each: DailySpend) -> dict[str, float]:
    return {"dollars": dollars_of(each.used.dollars), "tokens": each.used.tokens, "requests": each.used.requests}


group.command("create")(command(create))
group.command("list")(command(list_keys))
group.command("revoke")(command(revoke))
group.command("budget")(command(budget))
group.command("devices")(command(devices))
