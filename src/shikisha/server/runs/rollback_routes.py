"""`POST /runs/{run}/rollback`: undo the effects of a run's calls, by the compensating workers of the configuration.

Invariants: it needs the scope `approve`, is journaled call by call, undoes nothing twice, and is paid by the key that
asks for it (the run's own key may be revoked). This server owns the run meanwhile; a run that is being performed or
rolled back elsewhere is a 409.
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
    service: RunService = request.app.state.service
    said = validate_as(await read_json(request), RollbackRequest)
    past = await _own_run(service, by, run)
    requested = RollbackOrder(actor_name(by), service.container.vault.scrub(said.remark), again=True)
    return rollback_info(await roll_back_run(service, by, past, requested, said.dollars))


async def roll_back_run(
    service: RunService, by: Principal, past: Run, requested: RollbackOrder, dollars: float | None = None
) -> Run:
    """Roll a served run back that is over, waits or was stopped; ApiError (409) when it is still performed."""
    served = await service.find_served(past.id)
    if past.id in service.running or not await service.store.take(past.id, ended=True):
        raise ApiError(409, f"run {past.id} is being performed or rolled back: cancel it, or wait", "run_open")
    caps = past.started.caps
    caps = caps if dollars is None else caps.narrowed(replace(caps, dollars=dollars))
    budget = service.key_budgets.budget_of_key(by.key)
    try:
        pool = service.container.pool(past.started.pool)
        run = await service.engine.lent(purse=budget).undo(past.id, pool, requested, caps)
    except (ConfigError, RunErased) as error:
        service.store.mark(past.id, served.state)
        await service.journal.flush()
        raise ApiError(409, f"run {past.id} cannot be rolled back: {error}", "not_possible") from None
    except BaseException:
        with suppress(JournalUnavailable):
            service.store.mark(past.id, served.state)  # it rests as it did, and can be tried again
        raise
    finally:
        budget.release()
    service.store.mark(past.id, ServedState.ENDED, status=run.status, used=served.used, uncertain=served.uncertain)
    await service.journal.flush()
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


async def _own_run(service: RunService, by: Principal, run: str) -> Run:
    try:
        check_tenant(by, (await service.find_served(root_run_id(run))).tenant, f"run {run}")
        past = await service.read_run(run)
    except UnknownRun:
        raise ApiError(404, f"there is no run {run}", "not_found") from None
    if run != root_run_id(run):
        raise ApiError(409, f"{run} is a child run of {root_run_id(run)}: roll that one back", "child_run")
    return past
