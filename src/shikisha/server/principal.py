"""Who asks: a virtual key's holder, with what the key allows. Frozen data; keys themselves never get here.

Invariant: whatever a request says can only narrow what its principal may do. Deliberately absent: how a key is checked
(`keys`) and where its budget is kept.
"""

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a key may be used for."""

    RUN = "run"  # begin runs, and see, cancel and judge those of its own tenant
    READ = "read"  # see the runs, workers and costs of its own tenant
    APPROVE = "approve"  # answer what runs of its own tenant wait for
    ADMIN = "admin"  # everything, for every tenant: keys, budgets, erasure


@dataclass(frozen=True, slots=True)
class Principal:
    """A key's holder. `workers` and `conductors` None: all that are configured; `labels` are put on all its tasks."""

    key: str  # the key's id, which is no secret
    name: str
    tenant: str
    scopes: frozenset[Scope]
    workers: tuple[str, ...] | None = None
    conductors: tuple[str, ...] | None = None
    labels: tuple[str, ...] = ()

    def may(self, scope: Scope) -> bool:
        """Whether the key has this scope; admin has them all."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def owns(self, tenant: str) -> bool:
        """Whether what belongs to this tenant may be seen."""
        return tenant == self.tenant or Scope.ADMIN in self.scopes
