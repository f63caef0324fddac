"""The base of all tables of the configuration file: frozen, closed to unknown keys, open to a key's earlier name."""

import warnings
from collections.abc import Mapping
from typing import ClassVar

from pydantic import ConfigDict, Discriminator, Field, model_validator

from shikisha.core.toml import Table


class ConfigTable(Table):
    """A table of the file: frozen, and closed to unknown keys.

    `renamed_keys` maps an earlier key to the present one. The earlier key is still accepted, with a FutureWarning.
    `removed_keys` maps a key that is gone to what to write instead.
    """

    renamed_keys: ClassVar[Mapping[str, str]] = {}
    removed_keys: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _accept_renamed_keys(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        for gone in sorted(cls.removed_keys.keys() & data.keys()):
            raise ValueError(f"{gone} was removed: {cls.removed_keys[gone]}")
        if not cls.renamed_keys.keys() & data.keys():
            return data
        for old, new in cls.renamed_keys.items():
            if old in data and new in data:
                raise ValueError(f"{old} is the earlier name of {new}: expected one of them")
            if old in data:
                warnings.warn(f"the key {old!r} is now {new!r}", FutureWarning, stacklevel=2)
        return {cls.renamed_keys.get(key, key): value for key, value in data.items()}


class PluggedTable(ConfigTable):
    """A table of a kind that a plug-in brings. Its other keys are the kind's; `adapters.read_plugged` checks them."""

    model_config = ConfigDict(extra="allow")

    kind: str = Field(description="a kind that a plug-in brings")


def own_or_plugged(*own: str) -> Discriminator:
    """Return what tells tables of our kinds, which are tagged by their names, from those of plug-ins ("plugged")."""

    def tag(data: object) -> str | None:
        kind = data.get("kind") if isinstance(data, Mapping) else getattr(data, "kind", None)
        return None if not isinstance(kind, str) else kind if kind in own else "plugged"

    return Discriminator(tag)
