"""The names of models: a rolling one, a pinned one, one a conductor, and a cheap one that answers in a single step.

`shikisha` is whoever conducts by default, today and after any change. A pin, `shikisha-DATE-HASH`, is the same with the
hash of everything that its answers hang on (conductor, policy, workers, prices): it is served while that is unchanged,
and refused by name once it is not. `shikisha/NAME` is the conductor of that name, `shikisha-mini` one call to the
cheapest worker, for a chat's titles and tags. Invariant: a name means the same for everyone who may use it, and no name
is guessed. Deliberately absent: workers as models (the pool is the conductor's business), and old configurations.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from shikisha.budget import Usage
from shikisha.call import Card
from shikisha.config.compose import Composition
from shikisha.config.conductors import REHEARSED
from shikisha.config.versions import version
from shikisha.server.principal import Principal
from shikisha.server.problems import Problem

ROLLING = "shikisha"
MINI = "shikisha-mini"
_PIN = re.compile(r"shikisha-(\d{4}-\d{2}-\d{2})-([0-9a-f]{8})")
_SINGLE = "fixed:single"
_TYPICAL = Usage(1000, 300)  # to compare prices by
_MODELS = ("chat", "simulated", "scripted", "replay")  # kinds of workers that answer anything, the likeliest first


@dataclass(frozen=True, slots=True)
class Model:
    """A name, the specification of the conductor that it stands for ("": the cheapest worker alone), and since when."""

    name: str
    conductor: str
    created: int

    def spec(self, cards: Sequence[Card]) -> str:
        """Return the specification of the conductor over these workers."""
        return self.conductor or f"{_SINGLE}?worker={cheapest(cards).name}"


class Catalogue:
    """The models of one configuration, in the order in which they are listed."""

    def __init__(self, composition: Composition, created: int | None = None) -> None:
        settings = composition.settings
        since = _since(composition) if created is None else created
        default = _default(composition)
        names = settings.pool or composition.playing
        self._hash = version(composition, default, names, [settings.budgets.model_dump(mode="json")])[:8]
        self.pin = f"{ROLLING}-{datetime.fromtimestamp(since, UTC):%Y-%m-%d}-{self._hash}"
        specs = {ROLLING: default, self.pin: default, f"{ROLLING}/{default}": default}
        specs |= {f"{ROLLING}/{name}": name for name in settings.conductors}
        specs[MINI] = ""
        self._models = {name: Model(name, spec, since) for name, spec in specs.items()}

    @property
    def models(self) -> Mapping[str, Model]:
        """All models by name."""
        return self._models

    def listed(self, principal: Principal) -> tuple[Model, ...]:
        """Return the models that this principal may use."""
        return tuple(model for model in self._models.values() if _may(principal, model))

    def find(self, name: str, principal: Principal) -> Model:
        """Return the model of this name; a 404 that lists the known ones, or says that a pin is out of date."""
        pinned = _PIN.fullmatch(name)
        if pinned and pinned[2] == self._hash:  # the date says since when, the hash what
            name = self.pin
        model = self._models.get(name)
        if model is not None and _may(principal, model):
            return model
        known = ", ".join(each.name for each in self.listed(principal)) or "none"
        if model is not None:
            raise Problem(
                403, f"this key may not use the model {name!r}; it may use: {known}", "model_not_allowed", param="model"
            )
        why = f"the model {name!r} does not exist"
        if pinned:
            why = f"the model {name!r} is no more: the configuration that it names has changed"
        raise Problem(404, f"{why}; known are: {known}", "model_not_found", param="model")


def cheapest(cards: Sequence[Card]) -> Card:
    """Return the worker that answers anything for the least money: a model, or else whoever is there."""
    kinds = [kind for kind in _MODELS if any(card.kind == kind for card in cards)]
    able = [card for card in cards if card.kind == kinds[0]] if kinds else list(cards)
    return min(able, key=_dollars)


def _dollars(card: Card) -> float:
    return float("inf") if card.price is None else card.price.of(_TYPICAL)


def _may(principal: Principal, model: Model) -> bool:
    allowed = principal.conductors
    return allowed is None or (model.conductor or MINI) in allowed or model.name in allowed


def _default(composition: Composition) -> str:
    """Return who conducts when nobody is named, as `Composition.conductor` finds it."""
    if composition.orchestra is not None and "conductor" not in composition.settings.model_fields_set:
        return REHEARSED
    return composition.settings.conductor


def _since(composition: Composition) -> int:
    """Return when the configuration was last changed; today, where there is none."""
    file = Path(composition.file)
    return int(file.stat().st_mtime if file.is_file() else datetime.now(UTC).timestamp())
