"""Administration over HTTP: keys, budgets, the audit log, and the erasure of runs' texts.

Invariants: every route needs the scope `admin`; every change writes an audit row; a secret is in the one response to
whoever requested it. The configuration is a file and cannot be changed here, nor can a key's tenant.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from time import time
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import AfterValidator, BaseModel, Field

from shikisha.core.errors import RunStillOpen
from shikisha.core.task import storage_problem
from shikisha.journal import ErasureResult
from shikisha.server.http.api_errors import ApiError, error_responses
from shikisha.server.http.auth import require_scope
from shikisha.server.http.request import RequestModel, read_json, request_body_doc, validate_as
from shikisha.server.keys.grants import BudgetAmount, read_spend
from shikisha.server.keys.key import MAX_COUNT, Key, KeyCaps, KeyScope, KeySpec, Principal, dollars_of
from shikisha.server.keys.key_tables import AuditEntry
from shikisha.server.keys.manager import UnknownKey, UnusableKey
from shikisha.server.lifecycle.service import RunService
from shikisha.server.store import RunFilter

_MAX_TIME = 1e11  # Unix seconds: in the year 5138
_MAX_DOLLARS = 4e9
_MAX_NAMES = 1000


def require_storable(text: str) -> str:
    """Return the text if a store can keep it; ValueError otherwise."""
    if problem := storage_problem(text):
        raise ValueError(f"it holds {problem}")
    return text


def require_future(at: float) -> float:
    """Return the time if it is to come; ValueError otherwise."""
    if at <= time():
        raise ValueError("that time has passed (Unix seconds are expected); a key is ended by revoking it")
    return at


KeyText = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(require_storable)]
RunIdText = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(require_storable)]
NameList = Annotated[list[KeyText], Field(max_length=_MAX_NAMES)]
ScopeList = Annotated[list[Annotated[KeyScope, Field(strict=False)]], Field(min_length=1, max_length=len(KeyScope))]
FutureTime = Annotated[
    float, Field(gt=0, le=_MAX_TIME, description="Unix seconds, not in the past"), AfterValidator(require_future)
]
DollarCap = Annotated[float, Field(ge=0, le=_MAX_DOLLARS)]
CountCap = Annotated[int, Field(ge=0, le=MAX_COUNT)]


class CapsRequest(RequestModel):
    """What a key may use, in all and on a UTC day; null is no cap."""

    dollars: DollarCap | None = None
    tokens: CountCap | None = None
    requests: CountCap | None = None
    dollars_per_day: DollarCap | None = None
    tokens_per_day: CountCap | None = None
    requests_per_day: CountCap | None = None
    requests_per_minute: CountCap | None = None
    runs_at_once: CountCap | None = None

    def over(self, caps: KeyCaps) -> KeyCaps:
        """Return the caps with those that were sent in the place of theirs."""
        return replace(caps, **{name: getattr(self, name) for name in self.model_fields_set})


class KeyRequest(RequestModel):
    """A key to be issued."""

    name: KeyText
    tenant: KeyText = "default"
    scopes: ScopeList = Field(default=[KeyScope.RUN, KeyScope.READ])
    workers: NameList | None = Field(default=None, description="null: all that are configured")
    conductors: NameList | None = Field(default=None, description="null: all that are configured")
    labels: NameList = Field(default=[], description="data labels that all its tasks bear")
    expires: FutureTime | None = None
    caps: CapsRequest = CapsRequest()

    def wanted(self) -> KeySpec:
        """Return it as the manager takes it."""
        return KeySpec(
            self.name,
            self.tenant,
            frozenset(self.scopes),
            _as_tuple(self.workers),
            _as_tuple(self.conductors),
            tuple(self.labels),
            self.expires,
            self.caps.over(KeyCaps()),
        )


class KeyChangeRequest(RequestModel):
    """What is to be changed of a key; what is not sent stays as it is, and so does each cap."""

    name: KeyText = Field(default="", validate_default=False)
    scopes: ScopeList = Field(default=[], validate_default=False)
    workers: NameList | None = None
    conductors: NameList | None = None
    labels: NameList = Field(default=[])
    expires: FutureTime | None = None
    caps: CapsRequest = CapsRequest()

    def over(self, key: Key) -> Key:
        """Return the key as it is to be."""
        sent = {name: getattr(self, name) for name in self.model_fields_set - {"caps", "scopes"}}
        lists = {name: _as_tuple(value) for name, value in sent.items() if name in {"workers", "conductors", "labels"}}
        scopes = frozenset(self.scopes) if "scopes" in self.model_fields_set else key.scopes
        return replace(key, **{**sent, **lists}, scopes=scopes, caps=self.caps.over(key.caps))


class CapsInfo(BaseModel):
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
    def of(cls, caps: KeyCaps) -> "CapsInfo":
        """Return these caps as they are shown."""
        return cls(**asdict(caps))


class KeyInfo(BaseModel):
    """A key, without what opens it; times are Unix seconds."""

    object: Literal["key"] = "key"
    id: str
    name: str
    tenant: str
    scopes: list[KeyScope]
    workers: list[str] | None
    conductors: list[str] | None
    labels: list[str]
    created: float
    created_by: str
    expires: float | None
    revoked: float | None
    caps: CapsInfo

    @classmethod
    def of(cls, key: Key) -> "KeyInfo":
        """Return a key as it is shown."""
        return cls.model_validate(key.shown())


class IssuedKeyInfo(KeyInfo):
    """A key and its secret, which is shown only here."""

    secret: str

    @classmethod
    def told(cls, key: Key, secret: str) -> "IssuedKeyInfo":
        """Return a key and its secret, for whoever requested it."""
        return cls.model_validate(key.shown() | {"secret": secret})


class KeyList(BaseModel):
    """Keys, oldest first."""

    object: Literal["list"] = "list"
    data: list[KeyInfo]


class UsedInfo(BaseModel):
    """What was used."""

    dollars: float
    tokens: int
    requests: int

    @classmethod
    def of(cls, portion: BudgetAmount) -> "UsedInfo":
        """Return a portion as it is shown."""
        return cls(dollars=dollars_of(portion.dollars), tokens=portion.tokens, requests=portion.requests)


class DayUsedInfo(UsedInfo):
    """What was used on a UTC day."""

    day: str


class KeyBudgetInfo(BaseModel):
    """What a key may use and used: in all, and on each day of the time asked for."""

    key: str
    name: str
    tenant: str
    caps: CapsInfo
    used: UsedInfo
    days: list[DayUsedInfo]


class TenantUsedInfo(UsedInfo):
    """What all keys of a tenant used in all."""

    tenant: str


class BudgetsInfo(BaseModel):
    """What was used, by key and by tenant."""

    object: Literal["budgets"] = "budgets"
    keys: list[KeyBudgetInfo]
    tenants: list[TenantUsedInfo]


class AuditEntryInfo(BaseModel):
    """A row of the audit."""

    number: int
    at: float
    actor: str
    action: str
    target: str
    details: dict[str, object]

    @classmethod
    def of(cls, act: AuditEntry) -> "AuditEntryInfo":
        """Return an act as it is shown."""
        return cls(**{**asdict(act), "details": dict(act.details)})


class AuditEntryList(BaseModel):
    """Rows of the audit, newest first."""

    object: Literal["list"] = "list"
    data: list[AuditEntryInfo]


class EraseRequest(RequestModel):
    """What is to be forgotten: these runs, or all that fit everything else that is given."""

    runs: Annotated[list[RunIdText], Field(min_length=1, max_length=_MAX_NAMES)] | None = None
    key: KeyText | None = Field(default=None, description="runs of this key")
    tenant: KeyText | None = Field(default=None, description="runs of this tenant")
    before: FutureTime | None = Field(default=None, description="runs that began before this (Unix seconds)")
    why: Annotated[str, Field(max_length=1000), AfterValidator(require_storable)] = ""

    @property
    def by_place(self) -> bool:
        """Whether runs are named by where they belong."""
        return any(each is not None for each in (self.key, self.tenant, self.before))


class ErasureInfo(BaseModel):
    """What was forgotten: the runs, how many of their texts are gone, and how many stay as they are other runs' too.

    `more`: there are further runs that fit; ask again.
    """

    object: Literal["erasure"] = "erasure"
    runs: list[str]
    removed: int
    kept: int
    more: bool


def budgets_info(keys: Iterable[Key], used: Iterable[tuple[str, str, BudgetAmount]]) -> BudgetsInfo:
    """Return the budgets of these keys, of what was used by key and day ("" for all days)."""
    days: dict[str, dict[str, BudgetAmount]] = {}
    for own_id, day, portion in used:
        days.setdefault(own_id, {})[day] = portion
    shown, tenants = [], dict[str, BudgetAmount]()
    for key in keys:
        own = days.get(key.id, {})
        total = own.pop("", BudgetAmount())
        tenants[key.tenant] = tenants.get(key.tenant, BudgetAmount()).plus(total)
        each = [DayUsedInfo(day=day, **UsedInfo.of(portion).model_dump()) for day, portion in sorted(own.items())]
        caps = CapsInfo.of(key.caps)
        shown.append(
            KeyBudgetInfo(key=key.id, name=key.name, tenant=key.tenant, caps=caps, used=UsedInfo.of(total), days=each)
        )
    sums = [TenantUsedInfo(tenant=name, **UsedInfo.of(total).model_dump()) for name, total in sorted(tenants.items())]
    return BudgetsInfo(keys=shown, tenants=sums)


def _as_tuple(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


router = APIRouter(tags=["admin"])
AdminPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.ADMIN))]
DayQuery = Annotated[str, Query(pattern=r"^\d{4}-\d{2}-\d{2}$", description="a UTC day, as in 2026-11-22")]
_ERASED_AT_ONCE, _MAX_ERASE_BATCHES = (
    50,
    20,
)  # runs that are erased in one transaction, and how often that is done for a request
TenantQuery = Annotated[KeyText | None, Query(description="only of this tenant")]


@router.post(
    "/keys",
    status_code=201,
    summary="Issue a key",
    responses=error_responses(),
    openapi_extra=request_body_doc(KeyRequest),
)
async def issue_key(request: Request, response: Response, by: AdminPrincipal) -> IssuedKeyInfo:
    """Issue a key. Only this response contains its secret."""
    service, asked = _service(request), validate_as(await read_json(request), KeyRequest)
    _check_workers(service, asked.workers)
    made = await service.keys.issue(asked.wanted(), by.key)
    response.headers["Cache-Control"] = "no-store"
    return IssuedKeyInfo.told(made.key, made.secret)


@router.get("/keys", summary="List keys", responses=error_responses())
async def list_keys(request: Request, _: AdminPrincipal, tenant: TenantQuery = None) -> KeyList:
    """List keys, oldest first, including revoked ones."""
    return KeyList(data=[KeyInfo.of(key) for key in await _service(request).keys.keys(tenant)])


@router.get("/keys/{id}", summary="Retrieve a key", responses=error_responses(404))
async def read_key(request: Request, id: str, _: AdminPrincipal) -> KeyInfo:  # noqa: A002 - the parameter's name in the path
    """Return one key."""
    found = await _service(request).keys.get(id)
    if found is None:
        raise _no_such_key()
    return KeyInfo.of(found)


@router.patch(
    "/keys/{id}",
    summary="Change a key",
    responses=error_responses(404),
    openapi_extra=request_body_doc(KeyChangeRequest),
)
async def change_key(request: Request, id: str, by: AdminPrincipal) -> KeyInfo:  # noqa: A002
    """Change what a key may do and use. It applies from the next call on."""
    service, asked = _service(request), validate_as(await read_json(request), KeyChangeRequest)
    if "workers" in asked.model_fields_set:
        _check_workers(service, asked.workers)
    with _key_errors():
        return KeyInfo.of(await service.keys.change(id, asked.over, by.key))


@router.delete("/keys/{id}", summary="Revoke a key", responses=error_responses(404, 409))
async def revoke_key(request: Request, id: str, by: AdminPrincipal) -> KeyInfo:  # noqa: A002
    """Revoke a key: at once on this server, within a second on others. Its runs make no further calls."""
    with _key_errors():
        return KeyInfo.of(await _service(request).keys.revoke(id, by.key))


@router.post("/keys/{id}/rotate", summary="Rotate a key's secret", responses=error_responses(404, 409))
async def rotate_key(request: Request, response: Response, id: str, by: AdminPrincipal) -> IssuedKeyInfo:  # noqa: A002
    """Replace a key's secret. The old one stops working."""
    with _key_errors():
        made = await _service(request).keys.rotate(id, by.key)
    response.headers["Cache-Control"] = "no-store"
    return IssuedKeyInfo.told(made.key, made.secret)


@router.get("/budgets", summary="Report budgets and usage", responses=error_responses(404))
async def read_budgets(
    request: Request,
    _: AdminPrincipal,
    key: str | None = None,
    tenant: TenantQuery = None,
    since: DayQuery = "1970-01-01",
) -> BudgetsInfo:
    """Return the caps and the usage of keys, in total and by day, and the usage of tenants."""
    service = _service(request)
    found = await service.keys.keys(tenant)
    chosen = found if key is None else [each for each in found if each.id == key]
    if key is not None and not chosen:
        raise _no_such_key()
    await service.journal.flush()
    rows = await service.journal.query(partial(read_spend, key=key, since=since))
    return budgets_info(chosen, [(row.key, row.day, row.used) for row in rows])


@router.get("/admin/audit", summary="List the audit log", responses=error_responses())
async def read_audit(
    request: Request,
    _: AdminPrincipal,
    before: Annotated[int | None, Query(ge=0, le=2**62, description="only rows with a smaller number")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> AuditEntryList:
    """Return entries of the audit log, newest first."""
    return AuditEntryList(data=[AuditEntryInfo.of(act) for act in await _service(request).keys.acts(before, limit)])


@router.post(
    "/admin/erase",
    summary="Erase the texts of runs",
    responses=error_responses(404, 409),
    openapi_extra=request_body_doc(EraseRequest),
)
async def erase_runs(request: Request, by: AdminPrincipal) -> ErasureInfo:
    """Erase the texts of runs permanently. Their events, costs and hash chain remain.

    A selection by key, tenant or age skips runs in progress; `more` says whether to send the request again.
    """
    service, asked = _service(request), validate_as(await read_json(request), EraseRequest)
    if (asked.runs is not None) == asked.by_place:
        raise ApiError(400, "expected either runs, or some of key, tenant and before", "invalid_value", param="runs")
    gone, more = await _erase_batches(service, asked, by.key)
    said = {name: value for name, value in asked.model_dump(exclude={"runs"}).items() if value is not None}
    await service.keys.note(by.key, "runs.erased", ", ".join(gone.runs[:20]), runs=len(gone.runs), **said)
    return ErasureInfo(runs=list(gone.runs), removed=gone.removed, kept=gone.kept, more=more)


async def _erase_batches(service: RunService, asked: EraseRequest, by: str) -> tuple[ErasureResult, bool]:
    """Erase what is asked for, a part at a time; return what is gone, and whether there may be more."""
    try:
        if asked.runs is not None:
            return await service.store.erase(asked.runs, actor=by, why=asked.why), False
        gone = ErasureResult()
        filtered = RunFilter(tenant=asked.tenant, key=asked.key, until=asked.before, limit=_ERASED_AT_ONCE)
        for _ in range(_MAX_ERASE_BATCHES):
            part = await service.store.sweep(filtered, actor=by, why=asked.why)
            if not part.runs:
                return gone, False
            gone = ErasureResult(gone.runs + part.runs, gone.removed + part.removed, gone.kept + part.kept)
        return gone, True
    except RunStillOpen as error:
        raise ApiError(409, str(error), "run_open") from None


def _service(request: Request) -> RunService:
    service: RunService = request.app.state.service
    return service


def _check_workers(service: RunService, workers: list[str] | None) -> None:
    """Raise ApiError for workers that are not configured: such a key would fail for no visible reason."""
    for place, name in enumerate(workers or ()):
        if name not in service.container.names:
            known = ", ".join(service.container.names)
            raise ApiError(
                400,
                f"no worker {name!r} is configured; known are: {known}",
                "unknown_worker",
                param=f"workers[{place}]",
            )


@contextmanager
def _key_errors() -> Iterator[None]:
    try:
        yield
    except UnusableKey as error:
        raise ApiError(409, str(error), "key_unusable") from None
    except UnknownKey:
        raise _no_such_key() from None


def _no_such_key() -> ApiError:
    return ApiError(404, "there is no such key", "key_not_found")
