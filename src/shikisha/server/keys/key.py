"""What is known of a key: whose it is, what it may do, what it may use. Frozen data without any secret.

Invariant: money is counted in whole nanodollars, so that sums are exact, a cap is a cap to the last digit, and any
database adds as we do. Deliberately absent: what has been used (it is counted, not stored with the key).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from enum import StrEnum

from shikisha.errors import ConfigError
from shikisha.server.principal import Principal, Scope

_NANO = 9
IN_DOLLARS = ("dollars", "dollars_per_day")
MOST = 2**62  # of anything that is counted: what every database can add


def nanos(dollars: float) -> int:
    """Return what something costs in nanodollars, rounded up: a bill never forgets."""
    return min(MOST, int(Decimal(repr(float(dollars))).scaleb(_NANO).to_integral_value(ROUND_CEILING)))


def nanos_of_cap(dollars: float) -> int:
    """Return a cap in nanodollars, rounded down."""
    return min(MOST, int(Decimal(repr(float(dollars))).scaleb(_NANO).to_integral_value(ROUND_FLOOR)))


def dollars(amount: int) -> float:
    """Return nanodollars as dollars."""
    return float(Decimal(amount).scaleb(-_NANO))


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
            most = MOST // 10**_NANO if field.name in IN_DOLLARS else MOST
            if cap is not None and not 0 <= cap <= most:  # what compares to nothing is refused too
                raise ConfigError(f"cap {field.name}: expected a number from 0 to {most}, not {cap!r}")

    def row(self) -> dict[str, int | None]:
        """Return the caps as columns."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: nanos_of_cap(cap) if name in IN_DOLLARS and cap is not None else cap for name, cap in given.items()
        }

    @classmethod
    def of(cls, row: Mapping[str, int | None]) -> "KeyCaps":
        """Return the caps that these columns hold."""
        paid = {name: None if (cap := row[name]) is None else dollars(cap) for name in IN_DOLLARS}
        return cls(**paid, **{field.name: row[field.name] for field in fields(cls) if field.name not in IN_DOLLARS})  # type: ignore[arg-type]


UNCAPPED = KeyCaps()


class Refused(StrEnum):
    """Why a key opens no door."""

    NONE = "no_key"  # nothing was presented
    UNKNOWN = "invalid_api_key"  # nobody was given this key
    EXPIRED = "expired_api_key"  # its time is over
    REVOKED = "revoked_api_key"  # somebody took it back


@dataclass(frozen=True, slots=True)
class Wanted:
    """A key to be issued. `workers` and `conductors` None: all that are configured; `expires` is Unix time."""

    name: str
    tenant: str = "default"
    scopes: frozenset[Scope] = frozenset({Scope.RUN, Scope.READ})
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
    scopes: frozenset[Scope]
    created: float
    created_by: str
    workers: tuple[str, ...] | None = None
    conductors: tuple[str, ...] | None = None
    labels: tuple[str, ...] = ()
    expires: float | None = None
    revoked: float | None = None
    caps: KeyCaps = UNCAPPED

    def refused(self, now: float) -> Refused | None:
        """Return why the key opens no door now; None when it does."""
        if self.revoked is not None:
            return Refused.REVOKED
        return Refused.EXPIRED if self.expires is not None and now >= self.expires else None

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

    def wanted(self) -> Wanted:
        """Return what it would take to issue such a key again."""
        return Wanted(
            self.name, self.tenant, self.scopes, self.workers, self.conductors, self.labels, self.expires, self.caps
        )
