"""The list of runs as it is shown: rows, what it is filtered by, and where the next page begins.

Invariant: a filter is a link: whatever narrows the list stands in its address, so that it can be kept and passed on;
what an address says that no list knows is as if it were not said. Deliberately absent: markup and the search itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from shikisha.events import Status
from shikisha.server.store import Filter, Page, Served, State

SIZE = 50
_LONGEST = 200
STATUSES = tuple(Status)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a list is filtered by, as its form shows it; `after` is the cursor."""

    text: str = ""
    status: str = ""
    model: str = ""
    key: str = ""
    after: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Asked":
        """Read an address's query."""
        given = {name: query.get(name, "").strip()[:_LONGEST] for name in ("text", "status", "model", "key", "after")}
        if given["status"] not in tuple(STATUSES):
            given["status"] = ""
        return cls(**given)

    @property
    def narrows(self) -> bool:
        """Whether it leaves anything out."""
        return any((self.text, self.status, self.model, self.key))

    def query(self, after: str = "") -> str:
        """Return the query of an address that asks the same, from a cursor on."""
        told = {"text": self.text, "status": self.status, "model": self.model, "key": self.key, "after": after}
        return urlencode({name: value for name, value in told.items() if value})

    def filter(self, tenant: str | None, size: int = SIZE) -> Filter:
        """Return it as the store's; a tenant's own runs, or everybody's for None."""
        return Filter(
            tenant=tenant,
            statuses=(Status(self.status),) if self.status else (),
            model=self.model or None,
            key=self.key or None,
            text=self.text,
            after=_cursor(self.after),
            limit=size,
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A run in the list; `dollars` None: nobody can say; `going`: it is not known yet.

    `uncertain` is what it may have cost besides.
    """

    run: str
    excerpt: str
    status: Status
    model: str
    key: str
    tenant: str
    api: str
    began: float
    seconds: float
    tokens: int
    dollars: float | None
    uncertain: float
    labels: tuple[str, ...]
    domain: str
    going: bool


@dataclass(frozen=True, slots=True)
class RunsView:
    """A page of the list. `next` is the query of the next page, or empty."""

    asked: Asked
    rows: tuple[Row, ...]
    next: str
    models: tuple[str, ...]
    keys: Mapping[str, str]
    shown_at: float


def view(asked: Asked, page: Page, names: Mapping[str, str], models: tuple[str, ...], now: float) -> RunsView:
    """Return a page of the list; `names` are the keys' names by id."""
    rows = tuple(_row(served, names, now) for served in page.runs)
    after = "" if page.after is None else f"{page.after[0]!r}~{page.after[1]}"
    return RunsView(asked, rows, asked.query(after) if after else "", models, names, now)


def status_of(served: Served) -> Status:
    """Return where a served run stands: by its row's state, as far as that says more than the last status does."""
    if served.state is State.OPEN:
        return Status.RUNNING
    if served.state is State.WAITING:
        return Status.SUSPENDED
    return served.status


def _row(served: Served, names: Mapping[str, str], now: float) -> Row:
    going = served.state is State.OPEN
    return Row(
        run=served.run,
        excerpt=served.excerpt or ("its texts were erased" if served.erased else ""),
        status=status_of(served),
        model=served.model,
        key=names.get(served.key, served.key),
        tenant=served.tenant,
        api=served.api,
        began=served.created,
        seconds=max(0.0, (now if going else served.updated) - served.created),
        tokens=served.tokens,
        dollars=served.dollars,
        uncertain=served.uncertain_dollars,
        labels=served.labels,
        domain=served.domain,
        going=going,
    )


def _cursor(text: str) -> tuple[float, str] | None:
    at, _, run = text.partition("~")
    try:
        return (float(at), run) if run else None
    except ValueError:
        return None
