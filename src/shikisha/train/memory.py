"""What training remembers besides weights, as tensors and JSON: the optimizer, and every source of chance.

Invariant: what `recall` is given back leaves the process as it was when `remember` looked, to the bit. Deliberately
absent: files (`keeping`), and objects that only Python can read.
"""

import json
import random
from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np
import torch
from torch import Tensor

from shikisha.errors import ConfigError
from shikisha.train.keeping import State

Generators = Mapping[str, torch.Generator]

_OPTIMIZER, _DICE = "optimizer/", "random/"
_GLOBAL = f"{_DICE}torch"
_CHANCE = ("python", "numpy")  # facts


def remember(optimizer: torch.optim.Optimizer | None, generators: Generators) -> State:
    """Return the state of an optimizer (None: of none), of these generators, and of those that everybody shares."""
    held = {"state": {}, "param_groups": []} if optimizer is None else optimizer.state_dict()
    tensors = {f"{_OPTIMIZER}{place}/{name}": value for place, name, value in _slots(held["state"])}
    tensors |= {f"{_DICE}own/{name}": each.get_state() for name, each in generators.items()}
    tensors[_GLOBAL] = torch.get_rng_state()
    facts = {"optimizer": held["param_groups"], "python": random.getstate(), "numpy": _numpy_state()}
    return State({name: each.detach().clone() for name, each in tensors.items()}, facts)


def recall(state: State, optimizer: torch.optim.Optimizer | None, generators: Generators) -> None:
    """Put everything back as it was; ConfigError where something is missing."""
    try:
        if optimizer is not None:
            _recall_optimizer(state, optimizer)
        for name, each in generators.items():
            each.set_state(state.tensors[f"{_DICE}own/{name}"])
        torch.set_rng_state(state.tensors[_GLOBAL])
        version, numbers, gauss = cast("tuple[int, list[int], float | None]", state.facts["python"])
        random.setstate((version, tuple(numbers), gauss))
        _set_numpy_state(cast("list[object]", state.facts["numpy"]))
    except (KeyError, ValueError, TypeError, RuntimeError, IndexError) as error:
        raise ConfigError(f"a checkpoint's state does not fit this training: {error}") from None


def dice(state: State) -> str:
    """Return the part of a state that each process has its own of, as one line of JSON: its sources of chance."""
    tensors = {name: each.tolist() for name, each in state.tensors.items() if name.startswith(_DICE)}
    return json.dumps({"tensors": tensors, **{name: state.facts[name] for name in _CHANCE}})


def with_dice(state: State, told: str) -> State:
    """Return the state with the sources of chance that `dice` told."""
    held = json.loads(told)
    tensors = {name: torch.tensor(each, dtype=torch.uint8) for name, each in held["tensors"].items()}
    return State({**state.tensors, **tensors}, {**state.facts, **{name: held[name] for name in _CHANCE}})


def _slots(held: Mapping[int, Mapping[str, object]]) -> Iterator[tuple[int, str, Tensor]]:
    """Yield what an optimizer holds of each parameter; whatever is no tensor yet is a number."""
    for place, slots in held.items():
        for name, value in slots.items():
            yield place, name, value if isinstance(value, Tensor) else torch.tensor(value)


def _recall_optimizer(state: State, optimizer: torch.optim.Optimizer) -> None:
    slots: dict[int, dict[str, Tensor]] = {}
    for key, tensor in state.tensors.items():
        if key.startswith(_OPTIMIZER):
            place, _, name = key.removeprefix(_OPTIMIZER).partition("/")
            slots.setdefault(int(place), {})[name] = tensor.clone()
    given = [each for group in optimizer.param_groups for each in group["params"]]
    for number, held in slots.items():
        for name, tensor in held.items():
            if tensor.dim() and tensor.shape != given[number].shape:
                was, found = tuple(tensor.shape), tuple(given[number].shape)
                raise ValueError(f"weights {number} had the shape {was}, and have {found} ({name})")
    groups = cast("list[dict[str, object]]", state.facts["optimizer"])
    optimizer.load_state_dict({"state": slots, "param_groups": [_as_given(group) for group in groups]})


def _as_given(group: Mapping[str, object]) -> dict[str, object]:
    """Return an optimizer's options as they were before JSON, which knows no tuples."""
    return {name: tuple(each) if name == "betas" and isinstance(each, list) else each for name, each in group.items()}


def _numpy_state() -> list[object]:
    name, numbers, place, has_gauss, gauss = np.random.get_state(legacy=True)
    return [name, np.asarray(numbers).tolist(), place, has_gauss, gauss]


def _set_numpy_state(state: list[object]) -> None:
    name, numbers, place, has_gauss, gauss = state
    found = (
        str(name),
        np.asarray(numbers, np.uint32),
        cast("int", place),
        cast("int", has_gauss),
        cast("float", gauss),
    )
    np.random.set_state(found)
