"""Passkeys (WebAuthn) of a key's holder, and codes that count once: challenges, and links that log a device in.

A challenge is the hash of a fresh nonce and of the exact action that it is for (the approval's id, the hash of the
call, the text that is released), so an assertion fits that action and no other. Invariants: a code counts once, for
its purpose, its key and its host, and for minutes; the database has its hash only. A passkey counts with user
verification (a finger, a face, a PIN) and for the host that it was made for. A counter that goes back is refused, as
a copy of the passkey would be. Once a key has a passkey, another one is added only by it, so a stolen cookie is not
enough. Deliberately absent: attestation, since any authenticator may be used.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from io import StringIO
from types import ModuleType
from typing import TypeVar
from urllib.parse import urlsplit

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select, update

from shikisha.core.errors import MissingExtra
from shikisha.core.fast_dataclass import dataclass
from shikisha.journal.records import note_rows, recorded
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys.key import Key, hash_key
from shikisha.server.keys.key_tables import CODES, PASSKEYS, AuditEntry, add_audit_entry, delete_recorded
from shikisha.server.keys.manager import KeyManager, WrongKeyLimiter

T = TypeVar("T")
CHALLENGE_SECONDS = 120.0
LINK_SECONDS = 300.0
_MAX_ASSERTION = 16_384  # characters: the largest real ones have about 2,000
_MAX_CODES = 1_000  # open challenges of one key, and of people who are not logged in
_MAX_PASSKEYS = 20  # of one key
_LOCALHOST = "localhost"


class CodePurpose(StrEnum):
    """What a code counts for."""

    LINK = "link"  # log a device in
    LOGIN = "login"  # log in with a passkey
    ENROLL = "enroll"  # add a passkey
    MANAGE = "manage"  # the word of an earlier passkey that another may be added, or one removed
    APPROVE = "approve"  # say yes to an exact call


@dataclass(frozen=True, slots=True)
class PasskeySite:
    """Where passkeys are made and used: the host (WebAuthn's RP id) and the origin of the pages."""

    host: str
    origin: str


@dataclass(frozen=True, slots=True)
class Passkey:
    """A passkey as its holder sees it; times are Unix times."""

    id: str
    key: str
    site: str
    name: str
    created: float
    used: float | None


def passkey_site(url: str | None, host: str, scheme: str = "http") -> PasskeySite | str:
    """Return where passkeys count for a request to this Host header; a text says why they cannot.

    Only the configured URL is believed, or `localhost`, which no other machine can be: never another Host header.
    """
    parts = urlsplit(f"{scheme}://{host}")
    try:
        named, port = parts.hostname or "", parts.port
    except ValueError:
        named, port = "", None
    if named == _LOCALHOST or named.endswith(f".{_LOCALHOST}"):
        return PasskeySite(named, f"{scheme}://{named}{'' if port is None else f':{port}'}")
    own = urlsplit(url or "")
    if own.scheme != "https" or not own.hostname or own.hostname.replace(".", "").isdigit() or ":" in own.hostname:
        return (
            "passkeys need HTTPS and a host name: set `url` in [server] to an address such as https://ai.example.com, "
            "or open the pages at http://localhost on the machine of the server"
        )
    if named != own.hostname:
        return f"passkeys belong to {own.scheme}://{own.netloc}: open the pages there"
    return PasskeySite(own.hostname, f"{own.scheme}://{own.netloc}")


class Passkeys:
    """The passkeys and codes of one database."""

    def __init__(self, manager: KeyManager) -> None:
        self._manager = manager
        self.login_limiter = WrongKeyLimiter()  # failed logins with a passkey or a link, by address and by passkey

    async def of_key(self, own_id: str) -> list[Passkey]:
        """Return a key's passkeys, oldest first."""
        columns = (PASSKEYS.c.id, PASSKEYS.c.key, PASSKEYS.c.site, PASSKEYS.c.name, PASSKEYS.c.created, PASSKEYS.c.used)
        asked = select(*columns).where(PASSKEYS.c.key == own_id).order_by(PASSKEYS.c.created)
        return await self._manager.database.query(lambda found: [Passkey(*row) for row in found.execute(asked)])

    async def open_link(self, key: Key, by: str, seconds: float = LINK_SECONDS) -> str:
        """Return a token that logs one device in as the holder of this key, once and soon."""
        token = secrets.token_urlsafe(32)
        await self._add_code(hash_key(token), CodePurpose.LINK, key.id, "", b"", seconds)
        await self._manager.note(by, "link.made", key.id)
        return token

    async def take_link(self, token: str) -> Key:
        """Return the key of a link, which then counts no more; ApiError (401) for any other token."""
        code = await self._take_code(token[:200], CodePurpose.LINK)
        key = None if code is None else await self._manager.get(code.key)
        if key is None or key.refused(self._manager.now()) is not None:
            said = (
                "this link was used before, or its time is over: make another with `shikisha keys devices KEY --link`"
            )
            raise ApiError(401, said, "link_over")
        await self._manager.note(key.id, "link.used", key.id)
        return key

    async def registration_options(self, key: Key, site: PasskeySite, word: str) -> Mapping[str, object]:
        """Return what a browser needs to make a passkey; `word` is an assertion of an earlier one, if there is one."""
        held = await self.of_key(key.id)
        if held:
            await self.verify(key.id, word, CodePurpose.MANAGE, "manage")
        if len(held) >= _MAX_PASSKEYS:
            raise ApiError(409, f"a key has at most {_MAX_PASSKEYS} passkeys: remove one first", "too_many_passkeys")
        webauthn, structs = _library()
        options = webauthn.generate_registration_options(
            rp_id=site.host,
            rp_name="Shikisha",
            user_name=key.name,
            user_id=key.id.encode(),
            challenge=await self._challenge(CodePurpose.ENROLL, key.id, site, "enroll"),
            authenticator_selection=structs.AuthenticatorSelectionCriteria(
                resident_key=structs.ResidentKeyRequirement.REQUIRED,
                user_verification=structs.UserVerificationRequirement.REQUIRED,
            ),
            exclude_credentials=[
                structs.PublicKeyCredentialDescriptor(webauthn.base64url_to_bytes(each.id))
                for each in held
                if each.site == site.host
            ],
        )
        return _as_json(webauthn.options_to_json(options))

    async def register(self, key: Key, credential: str, name: str) -> str:
        """Keep a passkey that a browser has made; ApiError (403) for one that does not fit. Return its id."""
        webauthn, _ = _library()
        code, challenge, _ = await self._claimed(credential, CodePurpose.ENROLL, key.id, "enroll")
        made = _verified(
            lambda: webauthn.verify_registration_response(
                credential=credential,
                expected_challenge=challenge,
                expected_rp_id=code.host,
                expected_origin=code.origin,
                require_user_verification=True,
            )
        )
        own_id = webauthn.helpers.bytes_to_base64url(made.credential_id)
        now = self._manager.now()

        @recorded
        def work(connection: Connection) -> bool:
            if connection.execute(select(PASSKEYS.c.id).where(PASSKEYS.c.id == own_id)).first():
                return False
            row = {"id": own_id, "key": key.id, "site": code.host, "public_key": made.credential_public_key}
            row |= {"sign_count": made.sign_count, "name": name, "created": now}
            connection.execute(insert(PASSKEYS), row)
            note_rows(connection, "passkeys", [(own_id,)])
            add_audit_entry(connection, AuditEntry(now, key.id, "passkey.added", key.id, {"passkey": own_id}))
            return True

        if not await self._manager.database.write(work):
            raise ApiError(409, "this passkey is known here already", "known_passkey")
        return str(own_id)

    async def assertion_options(
        self, purpose: CodePurpose, own_id: str, site: PasskeySite, action: str
    ) -> Mapping[str, object]:
        """Return what a browser needs to sign an action; `own_id` empty: by whichever passkey of this host."""
        held = await self.of_key(own_id) if own_id else []
        allowed = [each for each in held if each.site == site.host]
        if own_id and not allowed:
            where = f"; it has some for {', '.join(sorted({each.site for each in held}))}" if held else ""
            raise ApiError(
                409, f"this key has no passkey for {site.host} yet: add one under Device{where}", "no_passkey"
            )
        webauthn, structs = _library()
        options = webauthn.generate_authentication_options(
            rp_id=site.host,
            challenge=await self._challenge(purpose, own_id, site, action),
            allow_credentials=[
                structs.PublicKeyCredentialDescriptor(webauthn.base64url_to_bytes(each.id)) for each in allowed
            ],
            user_verification=structs.UserVerificationRequirement.REQUIRED,
        )
        return _as_json(webauthn.options_to_json(options))

    async def verify(self, own_id: str, assertion: str, purpose: CodePurpose, action: str) -> str:
        """Return the key whose passkey signed exactly this action; ApiError (403) that says what does not fit.

        `own_id` empty: whichever key has the passkey. The challenge counts no more, whatever came of it.
        """
        webauthn, _ = _library()
        site, challenge, named = await self._claimed(assertion, purpose, own_id, action)
        row = await self._manager.database.query(
            lambda connection: connection.execute(select(PASSKEYS).where(PASSKEYS.c.id == named)).one_or_none()
        )
        if row is None or (own_id and row.key != own_id):
            raise _refused("this passkey is not one of this key: use one that you added under Device")
        if row.site != site.host:
            raise _refused(f"this passkey was made for {row.site}, and this is {site.host}")
        done = _verified(
            lambda: webauthn.verify_authentication_response(
                credential=assertion,
                expected_challenge=challenge,
                expected_rp_id=site.host,
                expected_origin=site.origin,
                credential_public_key=row.public_key,
                credential_current_sign_count=row.sign_count,
                require_user_verification=True,
            )
        )
        unchanged = and_(PASSKEYS.c.id == named, PASSKEYS.c.sign_count == row.sign_count)
        count, now = done.new_sign_count, self._manager.now()

        @recorded
        def work(connection: Connection) -> int:
            note_rows(connection, "passkeys", [(named,)])
            return connection.execute(update(PASSKEYS).where(unchanged).values(sign_count=count, used=now)).rowcount

        if await self._manager.database.write(work) != 1:
            raise _refused("this passkey was used elsewhere at the same moment: try again")
        return str(row.key)

    async def remove(self, own_id: str, passkey: str, by: str) -> bool:
        """Delete a passkey of a key; False when there is none."""
        now = self._manager.now()

        @recorded
        def work(connection: Connection) -> bool:
            own = (PASSKEYS.c.key == own_id, PASSKEYS.c.id == passkey)
            found = delete_recorded(connection, PASSKEYS, *own) == 1
            if found:
                add_audit_entry(connection, AuditEntry(now, by, "passkey.removed", own_id, {"passkey": passkey}))
            return found

        return await self._manager.database.write(work)

    async def _challenge(self, purpose: CodePurpose, own_id: str, site: PasskeySite, action: str) -> bytes:
        nonce = secrets.token_bytes(32)
        challenge = _challenge_of(nonce, purpose, action)
        await self._add_code(_code_hash(challenge), purpose, own_id, site.origin, nonce, CHALLENGE_SECONDS)
        return challenge

    async def _claimed(
        self, credential: str, purpose: CodePurpose, own_id: str, action: str
    ) -> tuple[PasskeySite, bytes, str]:
        """Return the site and challenge of a credential's code, which counts no more, and the credential's id."""
        signed, named = read_credential(credential)
        code = await self._take_code(signed, purpose, own_id)
        if code is None:
            raise _refused("this passkey's word was used before, or came too late: try again")
        challenge = _challenge_of(code.nonce, purpose, action)
        if _code_hash(challenge) != code.hash:
            raise _refused("this passkey's word is for another action: what is shown has changed, look at it again")
        return PasskeySite(urlsplit(code.site).hostname or "", code.site), challenge, named

    async def _add_code(
        self, hashed: str, purpose: CodePurpose, own_id: str, origin: str, nonce: bytes, seconds: float
    ) -> None:
        now = self._manager.now()
        row = {"hash": hashed, "purpose": purpose, "key": own_id, "site": origin, "nonce": nonce}

        @recorded
        def work(connection: Connection) -> bool:
            _delete_codes(connection, CODES.c.expires <= now)
            mine = and_(CODES.c.key == own_id, CODES.c.purpose == purpose)
            if connection.execute(select(func.count()).where(mine)).scalar_one() >= _MAX_CODES:
                if own_id:
                    return False
                # Anybody may ask for these without end: the oldest goes, and nobody is refused because of others.
                oldest = select(CODES.c.hash).where(mine).order_by(CODES.c.expires).limit(1)
                _delete_codes(connection, CODES.c.hash.in_(oldest))
            connection.execute(insert(CODES), {**row, "expires": now + seconds})
            if purpose is CodePurpose.LINK:
                note_rows(connection, "codes", [(hashed,)])
            return True

        if not await self._manager.database.write(work):
            raise ApiError(429, "too many passkey requests are open: wait a minute", "too_many_codes", wait=60)

    async def _take_code(self, presented: str, purpose: CodePurpose, own_id: str | None = None) -> "_Code | None":
        """Delete a code and return it; None where there is none for this purpose and key now."""
        hashed, now = hash_key(presented), self._manager.now()
        where = [CODES.c.hash == hashed, CODES.c.purpose == purpose]
        where += [] if own_id is None else [CODES.c.key == own_id]

        @recorded
        def work(connection: Connection) -> _Code | None:
            row = connection.execute(select(CODES).where(*where)).one_or_none()
            if row is None or _delete_codes(connection, *where) != 1:
                return None  # of two who bring it, one deletes it
            return _Code(row.hash, row.key, row.site, row.nonce) if now < row.expires else None

        return await self._manager.database.write(work)


def _delete_codes(connection: Connection, *where: ColumnElement[bool]) -> int:
    """Delete codes and return how many; only links are records, as an open challenge opens nothing by itself."""
    links = delete_recorded(connection, CODES, CODES.c.purpose == CodePurpose.LINK, *where)
    return links + connection.execute(delete(CODES).where(*where)).rowcount


@dataclass(frozen=True, slots=True)
class _Code:
    """A code that was taken."""

    hash: str
    key: str
    site: str
    nonce: bytes


def login_link(base: str, token: str) -> str:
    """Return the link of a token; the token is behind the `#`, so no server or proxy logs it."""
    return f"{base.rstrip('/')}/ui/link#{token}"


def qr_code(text: str) -> str:
    """Return a QR code as lines for a terminal; MissingExtra when segno is not installed."""
    try:
        import segno
    except ImportError:
        raise MissingExtra("phone", "a QR code") from None
    lines = StringIO()
    segno.make(text, micro=False).terminal(lines, compact=True)
    return lines.getvalue().rstrip()


def action_text(approval: str, parts: Sequence[object]) -> str:
    """Return the text of an action that a challenge is bound to: the approval's id and a hash of all that is shown."""
    return f"{approval} {sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()}"


def read_credential(text: str) -> tuple[str, str]:
    """Return the challenge (base64url) and the id of a credential that a browser sent; ApiError (400) for others."""
    webauthn, _ = _library()
    if len(text) > _MAX_ASSERTION:
        raise _not_a_credential(f"at most {_MAX_ASSERTION:,} characters")
    try:
        found = json.loads(text)
        data = json.loads(webauthn.base64url_to_bytes(found["response"]["clientDataJSON"]))
        challenge, named = data["challenge"], found["id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _not_a_credential("what navigator.credentials returned, as JSON") from None
    if not (isinstance(challenge, str) and isinstance(named, str) and named.isascii()):
        raise _not_a_credential("texts as challenge and id")
    return challenge.rstrip("="), named


def _not_a_credential(expected: str) -> ApiError:
    return ApiError(400, f"passkey: expected {expected}", "invalid_passkey", param="passkey")


def _refused(why: str) -> ApiError:
    return ApiError(403, why, "passkey_refused")


def _verified(check: Callable[[], T]) -> T:
    """Return what a check of the library returns; ApiError that says in our words what does not fit."""
    webauthn, _ = _library()
    try:
        return check()
    except (webauthn.helpers.exceptions.WebAuthnException, ValueError, KeyError, TypeError, IndexError) as error:
        said = str(error)
    for mark, why in _REASONS:
        if mark in said:
            raise _refused(f"the passkey was refused: {why}")
    raise _refused("the passkey was refused: it is damaged, or not signed by this device")


_REASONS = (
    ("origin", "it was used on a page of another host"),
    ("RP ID", "it belongs to another host"),
    ("erification is required", "the device did not check who you are (finger, face or PIN)"),
    ("not present", "nobody touched the device"),
    ("sign count", "its counter went back, as that of a copy would"),
    ("challenge", "it signed something else"),
    ("signature", "its signature is wrong"),
)


def _challenge_of(nonce: bytes, purpose: CodePurpose, action: str) -> bytes:
    return sha256(b"\n".join((nonce, purpose.encode(), action.encode()))).digest()


def _code_hash(challenge: bytes) -> str:
    webauthn, _ = _library()
    return hash_key(webauthn.helpers.bytes_to_base64url(challenge))


def _as_json(text: str) -> Mapping[str, object]:
    found: Mapping[str, object] = json.loads(text)
    return found


def _library() -> tuple[ModuleType, ModuleType]:
    """Return py_webauthn and its structures, imported when a passkey is first used."""
    try:
        import webauthn
        from webauthn.helpers import structs
    except ImportError:
        raise MissingExtra("phone", "a passkey") from None
    return webauthn, structs
