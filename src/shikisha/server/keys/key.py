"""A key: its format, its holder (`Principal`), its scopes and its caps. Frozen data; no secret is part of it.

A key reads `sk-shikisha-ID-SECRET`: the id finds its row, the secret is 256 random bits. Invariants: only a SHA-256
of the whole key is stored, and it is compared in constant time; a slow hash would protect only secrets that people
think up, and would let anyone exhaust the server with wrong keys. Money is counted in whole nanodollars, so sums are
exact in any database.
"""

import hmac
import secrets
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import asdict, dataclass, fields
from shikisha.core.secrets import ISSUED_KEY_PREFIX


class KeyScope(StrEnum):
    """What a key may be used for."""

    RUN = "run"  # begin runs, and see, cancel and judge those of its own tenant
    READ = "read"  # see the runs, workers and costs of its own tenant
    APPROVE = "approve"  # answer what runs of its own tenant wait for
    ADMIN = "admin"  # everything, for every tenant: keys, budgets, erasure


@dataclass(frozen=True, slots=True)
class Principal:
    """A key's holder. `workers` and `conductors` None: all that are configured; `labels` are put on all its tasks."""

    key: str  # the key's id, which is no secret
    name: str
    tenant: str
    scopes: frozenset[KeyScope]
    workers: tuple[str, ...] | None = None
    conductors: tuple[str, ...] | None = None
    labels: tuple[str, ...] = ()

    def may(self, scope: KeyScope) -> bool:
        """Whether the key has this scope; admin has them all."""
        return scope in self.scopes or KeyScope.ADMIN in self.scopes

    @property
    def actor(self) -> str:
        """Its name for the journal."""
        return f"{self.name} ({self.key})"

    def owns(self, tenant: str) -> bool:
        """Whether what belongs to this tenant may be seen."""
        return tenant == self.tenant or KeyScope.ADMIN in self.scopes


_NANO_DIGITS = 9
DOLLAR_CAPS = ("dollars", "dollars_per_day")
MAX_COUNT = 2**62  # of anything that is counted: what every database can add


@lru_cache(4096)  # the same amount is held, settled and counted
def nanodollars(dollars: float) -> int:
    """Return what something costs in nanodollars, rounded up: a bill never forgets."""
    return min(MAX_COUNT, int(Decimal(repr(float(dollars))).scaleb(_NANO_DIGITS).to_integral_value(ROUND_CEILING)))


def cap_nanodollars(dollars: float) -> int:
    """Return a cap in nanodollars, rounded down."""
    return min(MAX_COUNT, int(Decimal(repr(float(dollars))).scaleb(_NANO_DIGITS).to_integral_value(ROUND_FLOOR)))


def dollars_of(amount: int) -> float:
    """Return nanodollars as dollars."""
    return float(Decimal(amount).scaleb(-_NANO_DIGITS))


@dataclass(frozen=True, slots=True)
class KeyCaps:
    """What a key may use; None is no cap. Days are UTC days."""

    dollars: float | None = None
    tokens: int | None = None
    requests: int | None = None
    dollars_per_day: float | None = None
    tokens_per_day: int | None = None
    requests_per_day: int | None = None
    requests_per_minute: int | None = None
    runs_at_once: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            cap = getattr(self, field.name)
            most = MAX_COUNT // 10**_NANO_DIGITS if field.name in DOLLAR_CAPS else MAX_COUNT
            if cap is not None and not 0 <= cap <= most:  # what compares to nothing is refused too
                raise ConfigError(f"cap {field.name}: expected a number from 0 to {most}, not {cap!r}")

    def row(self) -> dict[str, int | None]:
        """Return the caps as columns."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: cap_nanodollars(cap) if name in DOLLAR_CAPS and cap is not None else cap
            for name, cap in given.items()
        }

    @classmethod
    def of(cls, row: Mapping[str, int | None]) -> "KeyCaps":
        """Return the caps that these columns hold."""
        paid = {name: None if (cap := row[name]) is None else dollars_of(cap) for name in DOLLAR_CAPS}
        return cls(**paid, **{field.name: row[field.name] for field in fields(cls) if field.name not in DOLLAR_CAPS})  # type: ignore[arg-type]


UNCAPPED = KeyCaps()


class KeyRefusal(StrEnum):
    """Why a key opens no door."""

    NONE = "no_key"  # nothing was presented
    UNKNOWN = "invalid_api_key"  # nobody was given this key
    EXPIRED = "expired_api_key"  # its time is over
    REVOKED = "revoked_api_key"  # somebody took it back


@dataclass(frozen=True, slots=True)
class KeySpec:
    """A key to be issued. `workers` and `conductors` None: all that are configured; `expires` is Unix time."""

    name: str
    tenant: str = "default"
    scopes: frozenset[KeyScope] = frozenset({KeyScope.RUN, KeyScope.READ})
    workers: tuple[str, ...] | None = None
    conductors: tuple[str, ...] | None = None
    labels: tuple[str, ...] = ()
    expires: float | None = None
    caps: KeyCaps = UNCAPPED


@dataclass(frozen=True, slots=True)
class Key:
    """A key that was issued; times are Unix times, `created_by` is the id of the key that asked for it."""

    id: str
    name: str
    tenant: str
    scopes: frozenset[KeyScope]
    created: float
    created_by: str
    workers: tuple[str, ...] | None = None
    conductors: tuple[str, ...] | None = None
    labels: tuple[str, ...] = ()
    expires: float | None = None
    revoked: float | None = None
    caps: KeyCaps = UNCAPPED

    def refused(self, now: float) -> KeyRefusal | None:
        """Return why the key opens no door now; None when it does."""
        if self.revoked is not None:
            return KeyRefusal.REVOKED
        return KeyRefusal.EXPIRED if self.expires is not None and now >= self.expires else None

    def principal(self) -> Principal:
        """Return its holder as the server knows him."""
        return Principal(self.id, self.name, self.tenant, self.scopes, self.workers, self.conductors, self.labels)

    def shown(self) -> dict[str, object]:
        """Return it as JSON shows it."""
        lists = {"workers": self.workers, "conductors": self.conductors, "labels": self.labels}
        return {
            "id": self.id,
            "name": self.name,
            "tenant": self.tenant,
            "scopes": sorted(self.scopes),
            **{name: None if names is None else list(names) for name, names in lists.items()},
            "created": self.created,
            "created_by": self.created_by,
            "expires": self.expires,
            "revoked": self.revoked,
            "caps": asdict(self.caps),
        }

    def wanted(self) -> KeySpec:
        """Return what it would take to issue such a key again."""
        return KeySpec(
            self.name, self.tenant, self.scopes, self.workers, self.conductors, self.labels, self.expires, self.caps
        )


KEY_PREFIX = ISSUED_KEY_PREFIX
_ID_ALPHABET = "23456789abcdefghjkmnpqrstvwxyz"  # nothing that is read for something else
_ID_LENGTH = 10
_MAX_KEY_LENGTH = 200


def new_id() -> str:
    """Return a fresh id; it is no secret."""
    return "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))


def new_key(own_id: str) -> str:
    """Return a fresh key of this id."""
    return f"{KEY_PREFIX}{own_id}-{secrets.token_urlsafe(32)}"


def read_key_id(presented: str) -> str | None:
    """Return the id that something presented as a key bears; None where it is none of ours."""
    if not presented.startswith(KEY_PREFIX) or len(presented) > _MAX_KEY_LENGTH:
        return None
    own_id, dash, secret = presented.removeprefix(KEY_PREFIX).partition("-")
    plain = own_id.isascii() and own_id.isalnum() and secret.isascii() and secret.isprintable()
    return own_id if dash and plain else None


def hash_key(key: str) -> str:
    """Return what is kept of a key."""
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def matches_hash(presented: str, kept: str) -> bool:
    """Whether this is the key of which this is kept; it takes as long if it is not."""
    return hmac.compare_digest(hash_key(presented), kept)
