"""Adapters (LoRA) in checkpoints: weights as anybody loads them, adapters beside them so that training can go on.

Invariant: where there are no adapters, weights are what they are. Deliberately absent: making adapters (`arguments`).
"""

from collections.abc import Mapping
from typing import Protocol, cast

import torch
from torch import Tensor
from torch.nn import Module

from shikisha.errors import ConfigError

_BASE, _ADDED = ".base_layer", ".lora_"
_KEY = "adapters/"


class _Adapted(Protocol):
    """A layer with adapters, as `peft` makes them."""

    active_adapters: list[str]

    def get_delta_weight(self, adapter: str) -> Tensor:
        """Return what an adapter adds to the weights."""
        ...


def merged(model: Module) -> dict[str, Tensor]:
    """Return the model's weights by their own names, with what adapters add to them."""
    found: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if _ADDED in name:
            continue
        if name.endswith(f"{_BASE}.weight"):
            layer = cast("_Adapted", model.get_submodule(name.removesuffix(f"{_BASE}.weight")))
            with torch.no_grad():
                for adapter in layer.active_adapters:
                    tensor = tensor + layer.get_delta_weight(adapter)
        found[name.replace(_BASE, "")] = tensor
    return found


def added(model: Module) -> dict[str, Tensor]:
    """Return the adapters alone."""
    return {f"{_KEY}{name}": each for name, each in model.state_dict().items() if _ADDED in name}


def put_back(model: Module, tensors: Mapping[str, Tensor]) -> None:
    """Put adapters back as they were; ConfigError where they are others."""
    held = {name.removeprefix(_KEY): each for name, each in tensors.items() if name.startswith(_KEY)}
    if {name for name in model.state_dict() if _ADDED in name} != set(held):
        raise ConfigError("a checkpoint's state does not fit this training: it has other adapters (model.lora)")
    model.load_state_dict(held, strict=False)
