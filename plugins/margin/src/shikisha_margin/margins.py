"""Rate plans: what the requests of a key bring, what they may cost, and how the server keeps the difference.

A rate plan (`[plans.NAME]`) says what a thousand requests bring and what share of that is to be left. The rest is an
allowance. Each class of tasks has an account: a request puts its allowance in, and takes out what it costs. While there
is room for it, the plan's best conductor is used, and a cheaper one otherwise. So costs follow the allowance whatever
prices do: where a vendor becomes three times as expensive, the share of its requests falls by itself.

Invariants: an account never saves more than `burst` allowances, so cheap hours do not pay for expensive ones; a request
is charged what its conductor's requests cost on average until its own cost is known, so requests at once do not spend
the same money; classes are those of the configuration, and all others share one account, so a client cannot open fresh
ones. With `over = "refuse"`, no request is accepted that loses money as far as is known. A conductor that a key may not
use, or that its workers do not suffice for, is passed over. Deliberately absent: billing, and sharing accounts among
servers: each server keeps the margin of its own requests, so all together keep it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

from shikisha.core.budget import Amount, format_dollars
from shikisha.core.kinds import Kind
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys.key import Principal
from shikisha.server.store import ServedRun
from shikisha_margin import RatePlanTable

OTHER_CLASSES = ""  # the account of the classes that the configuration does not name
_WEIGHT = 0.1  # of the newest cost in a mean
_MEMORY_SECONDS = 600.0  # a mean without a fresh cost is forgotten, so that what became cheaper is tried again
_MOST_DEBT = 10  # times `burst`: what is beyond is written off, or one outage would be paid for by weeks


@dataclass(frozen=True, slots=True)
class RatePlan:
    """A rate plan. `allowances` has the dollars that a request may cost by class, OTHER_CLASSES for all others.

    `conductors` are specifications, the best first. `refuses`: what would lose money is refused, not served cheaply.
    """

    name: str
    allowances: Mapping[str, float]
    conductors: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    refuses: bool = False
    burst: int = 20

    def fits(self, tenant: str, key: str) -> bool:
        """Whether a key is of this plan; a plan that names nobody is everybody's."""
        return tenant in self.tenants or key in self.keys or not (self.tenants or self.keys)

    def class_of(self, domain: str) -> str:
        """Return the class of a task's domain."""
        return domain if domain in self.allowances else OTHER_CLASSES


def rate_plans(tables: Mapping[str, RatePlanTable]) -> tuple[RatePlan, ...]:
    """Return the rate plans of a configuration, in its order."""
    return tuple(
        RatePlan(
            name, table.allowances(), table.conductors, table.tenants, table.keys, table.over == "refuse", table.burst
        )
        for name, table in tables.items()
    )


@dataclass(slots=True)
class _MeanCost:
    """What requests under one conductor cost on average, and when that was last heard of."""

    dollars: float
    at: float


@dataclass(slots=True)
class MarginAccount:
    """The account of one class: `balance` is what is saved, in dollars; less than nothing is debt."""

    allowance: float
    burst: int = 20
    clock: Callable[[], float] = monotonic
    balance: float = 0.0
    _means: dict[str, _MeanCost] = field(default_factory=dict)

    def choose(self, conductors: Sequence[str]) -> str:
        """Return the first conductor that there is room for, else the last; one of unknown cost takes an allowance."""
        room = min(self.balance + self.allowance, self.burst * self.allowance)
        for conductor in conductors[:-1]:
            cost = self.mean_cost(conductor)
            if room > 0 and (self.allowance if cost is None else cost) <= room * (1 + 1e-9):
                return conductor
        return conductors[-1]

    def loses(self, conductor: str) -> bool:
        """Whether a request under this conductor costs more than it may, and nothing is saved to pay for that."""
        cost = self.mean_cost(conductor)
        return cost is not None and cost > self.allowance and cost > self.balance + self.allowance

    def book(self, conductor: str, before: Amount | None = None) -> "BookedRequest":
        """Take a request in: its allowance is put in, and what it will cost as far as is known is taken out.

        `before` is what a resumed run has used before; it was taken out then.
        """
        cost = self.mean_cost(conductor)
        expected = 0.0 if before is not None else self.allowance if cost is None else cost
        self.balance = min(self.balance + self.allowance, self.burst * self.allowance) - expected
        return BookedRequest(self, conductor, expected, before)

    def mean_cost(self, conductor: str) -> float | None:
        """Return what requests under this conductor cost on average; None where nothing fresh is known."""
        mean = self._means.get(conductor)
        return None if mean is None or self.clock() - mean.at > _MEMORY_SECONDS else mean.dollars

    def settle(self, request: "BookedRequest", dollars: float, *, paid: bool) -> None:
        """Take out what a request cost in place of what was expected; what is not paid for brings no allowance."""
        self.balance += request.expected - dollars - (0.0 if paid else self.allowance)
        self.balance = max(self.balance, -_MOST_DEBT * self.burst * self.allowance)
        if paid and request.before is None:  # what ended early says little of what requests cost
            mean = self.mean_cost(request.conductor)
            mean = dollars if mean is None else mean + _WEIGHT * (dollars - mean)
            self._means[request.conductor] = _MeanCost(mean, self.clock())


@dataclass(slots=True)
class BookedRequest:
    """A request whose cost is not known yet; `before` is what it used before it was resumed here."""

    account: MarginAccount
    conductor: str
    expected: float
    before: Amount | None = None
    settled: bool = False

    def settle(self, used: Amount, *, paid: bool) -> None:
        """Charge what the request used, once; what may have been used counts too, and unknown cost as expected."""
        if not self.settled:
            self.settled = True
            known = self.before.dollars or 0.0 if self.before is not None else 0.0
            dollars = self.expected if used.dollars is None else max(0.0, used.dollars - known)
            self.account.settle(self, dollars, paid=paid)


class PlanMargins:
    """The accounts of all rate plans at this server."""

    def __init__(self, plans: Sequence[RatePlan], clock: Callable[[], float] = monotonic) -> None:
        self._plans = tuple(plans)
        self._accounts = {
            (plan.name, name): MarginAccount(allowance, plan.burst, clock)
            for plan in plans
            for name, allowance in plan.allowances.items()
        }

    def plan_of(self, tenant: str, key: str) -> RatePlan | None:
        """Return the rate plan of a key: the first one that fits; None without any."""
        return next((plan for plan in self._plans if plan.fits(tenant, key)), None)

    def account(self, plan: RatePlan, domain: str) -> MarginAccount:
        """Return the account of a class of tasks."""
        return self._accounts[plan.name, plan.class_of(domain)]

    def rebook(self, served: ServedRun, before: Amount) -> BookedRequest | None:
        """Return the booked rest of a run that is resumed here; None where its key has no rate plan."""
        plan = self.plan_of(served.tenant, served.key)
        return None if plan is None else self.account(plan, served.domain).book(served.conductor, before)

    def admit(
        self, by: Principal, domain: str, conductor: str, usable: Callable[[str], bool] | None
    ) -> BookedRequest | None:
        """Return the booked request, with the conductor that is to be used; None where the key has no rate plan.

        `usable` says whether a conductor of the plan can be used; None: the client asked for this very one. ApiError
        (402) when the plan refuses what would lose money.
        """
        plan = self.plan_of(by.tenant, by.key)
        if plan is None:
            return None
        account = self.account(plan, domain)
        able = [spec for spec in plan.conductors if usable(spec)] if usable is not None else []
        chosen = account.choose(able or [conductor])
        if plan.refuses and account.loses(chosen):
            raise _refusal(plan, account, domain, chosen)
        return account.book(chosen)


def _refusal(plan: RatePlan, account: MarginAccount, domain: str, conductor: str) -> ApiError:
    cost = format_dollars(account.mean_cost(conductor), 6)
    of_class = f" of class {domain!r}" if plan.class_of(domain) else ""
    most = format_dollars(account.allowance, 6)
    said = f"requests{of_class} cost {cost} each at present, and {most} is what they may cost (plans.{plan.name})"
    return ApiError(402, f"the rate plan {plan.name!r} does not cover this request: {said}", "margin")


def build(tables: Mapping[str, RatePlanTable]) -> PlanMargins:
    """Return the accounts of the rate plans of a configuration."""
    return PlanMargins(rate_plans(tables))


KIND = Kind(settings=RatePlanTable, build=build, double=lambda: PlanMargins(()))
