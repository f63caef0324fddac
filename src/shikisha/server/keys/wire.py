"""Keys, budgets and the audit as JSON: what an administrator may send, and what is shown.

Invariant: what is shown of a key never holds a secret; only the answer to whoever had one made does (`KeyIssued`).
Deliberately absent: changing a key's tenant (its runs bear it).
"""

from collections.abc import Iterable
from dataclasses import asdict, replace
from time import time
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from shikisha.server.keys.audit import Act
from shikisha.server.keys.key import MOST, Key, KeyCaps, Wanted, dollars
from shikisha.server.keys.portion import Portion
from shikisha.server.principal import Scope
from shikisha.server.wire.reading import Wire
from shikisha.task import unstorable

_LATEST = 1e11  # Unix seconds: in the year 5138
_MOST_DOLLARS = 4e9
_MOST_NAMES = 1000


def storable(text: str) -> str:
    """Return the text if a store can keep it; ValueError otherwise."""
    if problem := unstorable(text):
        raise ValueError(f"it holds {problem}")
    return text


def to_come(at: float) -> float:
    """Return the time if it is to come; ValueError otherwise."""
    if at <= time():
        raise ValueError("that time has passed (Unix seconds are expected); a key is ended by revoking it")
    return at


Text = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(storable)]
Run = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(storable)]
Names = Annotated[list[Text], Field(max_length=_MOST_NAMES)]
Scopes = Annotated[list[Annotated[Scope, Field(strict=False)]], Field(min_length=1, max_length=len(Scope))]
Time = Annotated[float, Field(gt=0, le=_LATEST, description="Unix seconds, not in the past"), AfterValidator(to_come)]
Dollars = Annotated[float, Field(ge=0, le=_MOST_DOLLARS)]
Number = Annotated[int, Field(ge=0, le=MOST)]


class CapsWire(Wire):
    """What a key may use, in all and on a UTC day; null is no cap."""

    dollars: Dollars | None = None
    tokens: Number | None = None
    requests: Number | None = None
    dollars_per_day: Dollars | None = None
    tokens_per_day: Number | None = None
    requests_per_day: Number | None = None
    requests_per_minute: Number | None = None
    runs_at_once: Number | None = None

    def over(self, caps: KeyCaps) -> KeyCaps:
        """Return the caps with those that were sent in the place of theirs."""
        return replace(caps, **{name: getattr(self, name) for name in self.model_fields_set})


class KeyWanted(Wire):
    """A key to be issued."""

    name: Text
    tenant: Text = "default"
    scopes: Scopes = Field(default=[Scope.RUN, Scope.READ])
    workers: Names | None = Field(default=None, description="null: all that are configured")
    conductors: Names | None = Field(default=None, description="null: all that are configured")
    labels: Names = Field(default=[], description="data labels that all its tasks bear")
    expires: Time | None = None
    caps: CapsWire = CapsWire()

    def wanted(self) -> Wanted:
        """Return it as the keeper takes it."""
        return Wanted(
            self.name,
            self.tenant,
            frozenset(self.scopes),
            _tuple(self.workers),
            _tuple(self.conductors),
            tuple(self.labels),
            self.expires,
            self.caps.over(KeyCaps()),
        )


class KeyChange(Wire):
    """What is to be changed of a key; what is not sent stays as it is, and so does each cap."""

    name: Text = Field(default="", validate_default=False)
    scopes: Scopes = Field(default=[], validate_default=False)
    workers: Names | None = None
    conductors: Names | None = None
    labels: Names = Field(default=[])
    expires: Time | None = None
    caps: CapsWire = CapsWire()

    def over(self, key: Key) -> Key:
        """Return the key as it is to be."""
        sent = {name: getattr(self, name) for name in self.model_fields_set - {"caps", "scopes"}}
        lists = {name: _tuple(value) for name, value in sent.items() if name in {"workers", "conductors", "labels"}}
        scopes = frozenset(self.scopes) if "scopes" in self.model_fields_set else key.scopes
        return replace(key, **{**sent, **lists}, scopes=scopes, caps=self.caps.over(key.caps))


class CapsShown(BaseModel):
    """What a key may use; null is no cap."""

    dollars: float | None
    tokens: int | None
    requests: int | None
    dollars_per_day: float | None
    tokens_per_day: int | None
    requests_per_day: int | None
    requests_per_minute: int | None
    runs_at_once: int | None

    @classmethod
    def of(cls, caps: KeyCaps) -> "CapsShown":
        """Return these caps as they are shown."""
        return cls(**asdict(caps))


class KeyShown(BaseModel):
    """A key, without what opens it; times are Unix seconds."""

    object: Literal["key"] = "key"
    id: str
    name: str
    tenant: str
    scopes: list[Scope]
    workers: list[str] | None
    conductors: list[str] | None
    labels: list[str]
    created: float
    created_by: str
    expires: float | None
    revoked: float | None
    caps: CapsShown

    @classmethod
    def of(cls, key: Key) -> "KeyShown":
        """Return a key as it is shown."""
        return cls.model_validate(key.shown())


class KeyIssued(KeyShown):
    """A key and its secret, which is told this once."""

    secret: str

    @classmethod
    def told(cls, key: Key, secret: str) -> "KeyIssued":
        """Return a key as it is shown to whoever had it made."""
        return cls.model_validate(key.shown() | {"secret": secret})


class KeyList(BaseModel):
    """Keys, oldest first."""

    object: Literal["list"] = "list"
    data: list[KeyShown]


class Used(BaseModel):
    """What was used."""

    dollars: float
    tokens: int
    requests: int

    @classmethod
    def of(cls, portion: Portion) -> "Used":
        """Return a portion as it is shown."""
        return cls(dollars=dollars(portion.dollars), tokens=portion.tokens, requests=portion.requests)


class DayUsed(Used):
    """What was used on a UTC day."""

    day: str


class KeyBudget(BaseModel):
    """What a key may use and used: in all, and on each day of the time asked for."""

    key: str
    name: str
    tenant: str
    caps: CapsShown
    used: Used
    days: list[DayUsed]


class TenantUsed(Used):
    """What all keys of a tenant used in all."""

    tenant: str


class Budgets(BaseModel):
    """What was used, by key and by tenant."""

    object: Literal["budgets"] = "budgets"
    keys: list[KeyBudget]
    tenants: list[TenantUsed]


class ActShown(BaseModel):
    """A row of the audit."""

    number: int
    at: float
    actor: str
    action: str
    target: str
    details: dict[str, object]

    @classmethod
    def of(cls, act: Act) -> "ActShown":
        """Return an act as it is shown."""
        return cls(**{**asdict(act), "details": dict(act.details)})


class ActList(BaseModel):
    """Rows of the audit, newest first."""

    object: Literal["list"] = "list"
    data: list[ActShown]


class EraseRequest(Wire):
    """What is to be forgotten: these runs, or all that fit everything else that is given."""

    runs: Annotated[list[Run], Field(min_length=1, max_length=_MOST_NAMES)] | None = None
    key: Text | None = Field(default=None, description="runs of this key")
    tenant: Text | None = Field(default=None, description="runs of this tenant")
    before: Time | None = Field(default=None, description="runs that began before this (Unix seconds)")
    why: Annotated[str, Field(max_length=1000), AfterValidator(storable)] = ""

    @property
    def by_place(self) -> bool:
        """Whether runs are named by where they belong."""
        return any(each is not None for each in (self.key, self.tenant, self.before))


class Erased(BaseModel):
    """What was forgotten: the runs, how many of their texts are gone, and how many stay as they are other runs' too.

    `more`: there are further runs that fit; ask again.
    """

    object: Literal["erasure"] = "erasure"
    runs: list[str]
    removed: int
    kept: int
    more: bool


def budgets(keys: Iterable[Key], used: Iterable[tuple[str, str, Portion]]) -> Budgets:
    """Return the budgets of these keys, of what was used by key and day ("" for all days)."""
    days: dict[str, dict[str, Portion]] = {}
    for own_id, day, portion in used:
        days.setdefault(own_id, {})[day] = portion
    shown, tenants = [], dict[str, Portion]()
    for key in keys:
        own = days.get(key.id, {})
        total = own.pop("", Portion())
        tenants[key.tenant] = tenants.get(key.tenant, Portion()).plus(total)
        each = [DayUsed(day=day, **Used.of(portion).model_dump()) for day, portion in sorted(own.items())]
        caps = CapsShown.of(key.caps)
        shown.append(KeyBudget(key=key.id, name=key.name, tenant=key.tenant, caps=caps, used=Used.of(total), days=each))
    sums = [TenantUsed(tenant=name, **Used.of(total).model_dump()) for name, total in sorted(tenants.items())]
    return Budgets(keys=shown, tenants=sums)


def _tuple(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)
