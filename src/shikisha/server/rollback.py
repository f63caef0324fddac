"""`/runs/{run}/rollback`: undo what the calls of a run did, by the compensating workers of the configuration.

Invariants: a rollback needs the scope to approve, is journaled call by call, undoes nothing twice, and is paid from the
budget of whoever wants it (the run's own key may be revoked). The run is this server's meanwhile, as one that it
performs: one that somebody else performs or rolls back is not rolled back (409). Deliberately absent: choosing among
effects.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request

from shikisha.errors import ConfigError, JournalUnavailable, RunErased, UnknownRun
from shikisha.events import EffectKept, EffectUndone
from shikisha.run import Run
from shikisha.server.asking import actor
from shikisha.server.doors import asker, owned
from shikisha.server.house import House, root_of
from shikisha.server.principal import Principal, Scope
from shikisha.server.problems import Problem
from shikisha.server.refusals import refusals
from shikisha.server.store import State
from shikisha.server.wire.approvals import EffectShown, RollbackRequest, RollbackShown
from shikisha.server.wire.reading import documented, fit, read
from shikisha.undo import Wish

router = APIRouter(prefix="/runs", tags=["runs"])
Approver = Annotated[Principal, Depends(asker(Scope.APPROVE))]
Named = Annotated[str, Path(min_length=1, max_length=256)]


@router.post(
    "/{run}/rollback",
    summary="Undo what a run did",
    openapi_extra=documented(RollbackRequest),
    responses=refusals(404, 409),
)
async def rollback(request: Request, run: Named, by: Approver) -> RollbackShown:
    """Make the compensating calls, newest first, and return what became of every effect."""
    house: House = request.app.state.house
    said = fit(await read(request), RollbackRequest)
    past = await _own(house, by, run)
    wish = Wish(actor(by), house.composition.vault.scrub(said.remark), again=True)
    return shown(await rolled_back(house, by, past, wish, said.dollars))


async def rolled_back(house: House, by: Principal, past: Run, wish: Wish, dollars: float | None = None) -> Run:
    """Roll a served run back that is over, waits or was stopped; Problem (409) when it is still performed."""
    served = await house.served(past.id)
    if past.id in house.running or not await house.store.take(past.id, ended=True):
        raise Problem(409, f"run {past.id} is being performed or rolled back: cancel it, or wait", "run_open")
    caps = past.started.caps
    caps = caps if dollars is None else caps.narrowed(replace(caps, dollars=dollars))
    purse = house.purses.of_key(by.key)
    try:
        pool = house.composition.pool(past.started.pool)
        run = await house.engine.lent(purse=purse).undo(past.id, pool, wish, caps)
    except (ConfigError, RunErased) as error:
        house.store.mark(past.id, served.state)
        await house.journal.flush()
        raise Problem(409, f"run {past.id} cannot be rolled back: {error}", "not_possible") from None
    except BaseException:
        with suppress(JournalUnavailable):
            house.store.mark(past.id, served.state)  # it rests as it did, and can be tried again
        raise
    finally:
        purse.over()
    house.store.mark(past.id, State.ENDED, status=run.status, used=served.used, uncertain=served.uncertain)
    await house.journal.flush()
    return run


def shown(run: Run) -> RollbackShown:
    """Return what became of a run's effects, as clients see it."""
    return RollbackShown(run=run.id, status=run.status, effects=[_effect(event) for event in run.effects.values()])


def _effect(event: EffectUndone | EffectKept) -> EffectShown:
    kept = event if isinstance(event, EffectKept) else None
    return EffectShown(
        call=event.effect,
        worker=event.worker,
        by=event.by,
        undone=kept is None,
        fault=kept.fault if kept else None,
        message=kept.message if kept else "",
    )


async def _own(house: House, by: Principal, run: str) -> Run:
    try:
        owned(by, (await house.served(root_of(run))).tenant, f"run {run}")
        past = await house.past(run)
    except UnknownRun:
        raise Problem(404, f"there is no run {run}", "not_found") from None
    if run != root_of(run):
        raise Problem(409, f"{run} is a child run of {root_of(run)}: roll that one back", "child_run")
    return past
