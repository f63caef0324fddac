"""Model names and `/v1/models`: a rolling name, a pinned one, one for each conductor, and a cheap single-call model.

`shikisha` is the default conductor, whatever it becomes. `shikisha-DATE-HASH` pins everything that its answers depend
on (conductor, policy, workers, prices): the server refuses it once any of that has changed. `shikisha/NAME` is the
conductor of that name. `shikisha-mini` is one call to the cheapest worker, for a chat's titles and tags. Invariant: a
name means the same for all keys that may use it. Workers are no models, since the conductor chooses among them, but
for those that embed texts: no conductor plans for them, and they are listed for clients that look for them.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from shikisha.config.container import Container
from shikisha.config.entrant_version import entrant_version
from shikisha.core.budget import Usage
from shikisha.core.call import Card
from shikisha.core.fast_dataclass import dataclass
from shikisha.server.http.api_errors import ApiError, error_responses
from shikisha.server.http.auth import require_scope
from shikisha.server.keys.key import KeyScope, Principal

ROLLING_MODEL = "shikisha"
MINI_MODEL = "shikisha-mini"
_PINNED_NAME = re.compile(r"shikisha-(\d{4}-\d{2}-\d{2})-([0-9a-f]{8})")
_SINGLE_CONDUCTOR = "fixed:single"
_TYPICAL_USAGE = Usage(1000, 300)  # to compare prices by
_MODEL_KINDS = ("chat", "simulated", "scripted", "replay")  # kinds of workers that answer anything, the likeliest first


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A name, the specification of the conductor that it stands for ("": the cheapest worker alone), and since when."""

    name: str
    conductor: str
    created: int

    def spec(self, cards: Sequence[Card]) -> str:
        """Return the specification of the conductor over these workers."""
        return self.conductor or f"{_SINGLE_CONDUCTOR}?worker={cheapest_worker(cards).name}"


class ModelCatalog:
    """The models of one configuration, in the order in which they are listed."""

    def __init__(self, container: Container, created: int | None = None) -> None:
        settings = container.settings
        if created is None:
            # When the configuration was last changed; today, where there is none
            file = Path(container.file)
            since = int(file.stat().st_mtime if file.is_file() else datetime.now(UTC).timestamp())
        else:
            since = created
        default = container.settings.conductor
        names = container.team_pool(default) or settings.pool or container.default_pool
        self._hash = entrant_version(container, default, names, [settings.budgets.model_dump(mode="json")])[:8]
        self.pin = f"{ROLLING_MODEL}-{datetime.fromtimestamp(since, UTC):%Y-%m-%d}-{self._hash}"
        specs = {ROLLING_MODEL: default, self.pin: default, f"{ROLLING_MODEL}/{default}": default}
        specs |= {f"{ROLLING_MODEL}/{name}": name for name in settings.conductors}
        specs |= {f"{ROLLING_MODEL}/team:{name}": f"team:{name}" for name in settings.teams}
        specs[MINI_MODEL] = ""
        self._models = {name: ServedModel(name, spec, since) for name, spec in specs.items()}

    @property
    def models(self) -> Mapping[str, ServedModel]:
        """All models by name."""
        return self._models

    def listed(self, principal: Principal) -> tuple[ServedModel, ...]:
        """Return the models that this principal may use."""
        return tuple(model for model in self._models.values() if _may_use(principal, model))

    def find(self, name: str, principal: Principal) -> ServedModel:
        """Return the model of this name; a 404 that lists the known ones, or says that a pin is out of date."""
        pinned = _PINNED_NAME.fullmatch(name)
        if pinned and pinned[2] == self._hash:  # the date says since when, the hash what
            name = self.pin
        model = self._models.get(name)
        if model is not None and _may_use(principal, model):
            return model
        known = ", ".join(each.name for each in self.listed(principal)) or "none"
        if model is not None:
            raise ApiError(
                403, f"this key may not use the model {name!r}; it may use: {known}", "model_not_allowed", param="model"
            )
        why = f"the model {name!r} does not exist"
        if pinned:
            why = f"the model {name!r} is no more: the configuration that it names has changed"
        raise ApiError(404, f"{why}; known are: {known}", "model_not_found", param="model")


def cheapest_worker(cards: Sequence[Card]) -> Card:
    """Return the cheapest worker that answers anything: a model if there is one."""
    kinds = [kind for kind in _MODEL_KINDS if any(card.kind == kind for card in cards)]
    able = [card for card in cards if card.kind == kinds[0]] if kinds else list(cards)
    return min(able, key=_typical_price)


def embedding_workers(container: Container, principal: Principal) -> list[Card]:
    """Return the workers that embed texts, of those that this principal may use."""
    allowed = principal.workers
    tables = container.workers.items()
    names = [name for name, table in tables if table.kind == "embedding" and (allowed is None or name in allowed)]
    return list(container.cards(names)) if names else []


def _typical_price(card: Card) -> float:
    return float("inf") if card.price is None else card.price.of(_TYPICAL_USAGE)


def _may_use(principal: Principal, model: ServedModel) -> bool:
    allowed = principal.conductors
    return allowed is None or (model.conductor or MINI_MODEL) in allowed or model.name in allowed


router = APIRouter(tags=["models"])
RunPrincipal = Annotated[Principal, Depends(require_scope(KeyScope.RUN))]


@router.get("/v1/models", summary="List the models", responses=error_responses())
async def list_models(request: Request, by: RunPrincipal) -> dict[str, object]:
    """List the models that this key may use."""
    return {"object": "list", "data": [_model_fields(model) for model in _listed(request, by)]}


@router.get("/v1/models/{name:path}", summary="Retrieve a model", responses=error_responses(404))
async def read_model(request: Request, name: str, by: RunPrincipal) -> dict[str, object]:
    """Return one model that this key may use."""
    found = next((model for model in _listed(request, by) if model.name == name), None)
    return _model_fields(found or request.app.state.service.catalogue.find(name, by))


def _listed(request: Request, by: Principal) -> list[ServedModel]:
    service = request.app.state.service
    models: tuple[ServedModel, ...] = service.catalogue.listed(by)
    since = service.catalogue.models[ROLLING_MODEL].created
    return [*models, *(ServedModel(card.name, "", since) for card in embedding_workers(service.container, by))]


def _model_fields(model: ServedModel) -> dict[str, object]:
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "shikisha"}
