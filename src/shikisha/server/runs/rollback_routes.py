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

from shikisha.core.errors import ConfigError, JournalUnavailable, RunErased, UnknownRun
from shikisha.core.events import EffectKept, EffectUndone
from shikisha.core.run import Run
from shikisha.engine.compensation import RollbackOrder
from shikisha.server.http.api_errors import ApiError, error_responses
from shikisha.server.http.auth import check_tenant, require_scope
from shikisha.server.http.request import read_json, request_body_doc, validate_as
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.questions import actor_name
from shikisha.server.lifecycle.service import RunService, root_run_id
from shikisha.server.runs.schema import EffectInfo, RollbackInfo, RollbackRequest
from shikisha.server.store import ServedState

router = APIRouter(prefix="/runs", tags=["runs"])
ApproverPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.APPROVE))]
RunIdPath = Annotated[str, Path(min_length=1, max_length=256)]


@router.post(
    "/{run}/rollback",
    summary="Undo what a run did",
    openapi_extra=request_body_doc(RollbackRequest),
    responses=error_responses(404, 409),
)
async def roll_back(request: Request, run: RunIdPath, by: ApproverPrincipal) -> RollbackInfo:
    """Make the compensating calls, newest first, and return what became of every effect."""
    house: RunService = request.app.state.house
    said = validate_as(await read_json(request), RollbackRequest)
    past = await _own_run(house, by, run)
    wish = RollbackOrder(actor_name(by), house.composition.vault.scrub(said.remark), again=True)
    return rollback_info(await roll_back_run(house, by, past, wish, said.dollars))


async def roll_back_run(
    house: RunService, by: Principal, past: Run, wish: RollbackOrder, dollars: float | None = None
) -> Run:
    """Roll a served run back that is over, waits or was stopped; Problem (409) when it is still performed."""
    served = await house.served(past.id)
    if past.id in house.running or not await house.store.take(past.id, ended=True):
        raise ApiError(409, f"run {past.id} is being performed or rolled back: cancel it, or wait", "run_open")
    caps = past.started.caps
    caps = caps if dollars is None else caps.narrowed(replace(caps, dollars=dollars))
    purse = house.purses.of_key(by.key)
    try:
        pool = house.composition.pool(past.started.pool)
        run = await house.engine.lent(purse=purse).undo(past.id, pool, wish, caps)
    except (ConfigError, RunErased) as error:
        house.store.mark(past.id, served.state)
        await house.journal.flush()
        raise ApiError(409, f"run {past.id} cannot be rolled back: {error}", "not_possible") from None
    except BaseException:
        with suppress(JournalUnavailable):
            house.store.mark(past.id, served.state)  # it rests as it did, and can be tried again
        raise
    finally:
        purse.over()
    house.store.mark(past.id, ServedState.ENDED, status=run.status, used=served.used, uncertain=served.uncertain)
    await house.journal.flush()
    return run


def rollback_info(run: Run) -> RollbackInfo:
    """Return what became of a run's effects, as clients see it."""
    return RollbackInfo(run=run.id, status=run.status, effects=[_effect_info(event) for event in run.effects.values()])


def _effect_info(event: EffectUndone | EffectKept) -> EffectInfo:
    kept = event if isinstance(event, EffectKept) else None
    return EffectInfo(
        call=event.effect,
        worker=event.worker,
        by=event.by,
        undone=kept is None,
        fault=kept.fault if kept else None,
        message=kept.message if kept else "",
    )


async def _own_run(house: RunService, by: Principal, run: str) -> Run:
    try:
        check_tenant(by, (await house.served(root_run_id(run))).tenant, f"run {run}")
        past = await house.past(run)
    except UnknownRun:
        raise ApiError(404, f"there is no run {run}", "not_found") from None
    if run != root_run_id(run):
        raise ApiError(409, f"{run} is a child run of {root_run_id(run)}: roll that one back", "child_run")
    return past
