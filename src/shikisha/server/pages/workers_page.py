"""`/ui/workers`: what calls to each worker came to lately, and how often the runs that it took part in were right.

Invariants: figures are read from the index, over the newest runs of a month; a login sees those of its own tenant's
runs only. Every share and time stands next to the number that it is of.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from time import time

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shikisha.core.call import Card
from shikisha.core.fast_dataclass import dataclass
from shikisha.server.pages.login import PageRoute, PageSession, ReaderLogin, Service
from shikisha.server.pages.templates import UI_ROOT, render_page
from shikisha.server.store.run_figures import RunFigures, recent_worker_figures, sum_figures

RECENT_DAYS = 30
_INDEX_PAGES = 6  # of new events that a look takes into the index first; the server takes in the others
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker: all its calls, and those of each kind of task. `card` None: it is no longer configured."""

    name: str
    card: Card | None
    all: RunFigures
    by_domain: tuple[tuple[str, RunFigures], ...]


def workers_view(found: Mapping[str, Mapping[str, RunFigures]], cards: Sequence[Card]) -> tuple[WorkerView, ...]:
    """Return the workers that are configured, in their order, and then those that were called and are no more."""
    known = {card.name: card for card in cards}
    names = [*known, *sorted(set(found) - set(known))]
    parts = {name: sorted(found.get(name, {}).items()) for name in names}
    return tuple(
        WorkerView(name, known.get(name), sum_figures(name, (each for _, each in parts[name])), tuple(parts[name]))
        for name in names
    )


router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get(f"{UI_ROOT}/workers")
async def show_workers(request: Request, session: ReaderLogin, service: Service) -> Response:
    """Show what came of the calls to each worker lately."""
    await service.journal.index(_INDEX_PAGES)
    since = int(time() // _DAY) - RECENT_DAYS + 1
    found = await service.journal.query(partial(recent_worker_figures, tenant=session.tenant, since=since))
    shown = {"workers": workers_view(found, visible_cards(service, session)), "days": RECENT_DAYS}
    return render_page(request, "workers.html.jinja", shown)


def visible_cards(service: Service, session: PageSession) -> Sequence[Card]:
    """Return the workers that this login's key may use."""
    cards, own = service.container.cards(), session.by.workers
    return cards if own is None else tuple(card for card in cards if card.name in own)
