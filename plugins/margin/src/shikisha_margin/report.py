"""`margin`: what the requests of each key brought and cost, by rate plan and task class.

Invariants: the figures are read off the rows of the server's runs, so they hold for all servers of a database, also for
runs whose texts are erased. A request brings something where it has an answer; a run that failed costs all the same.
What may have been used by calls of unknown outcome counts as cost, and a cost that nobody knows is counted apart.
Deliberately absent: invoices, and revenue that is not per request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from time import time
from typing import Annotated

import typer
from rich.table import Table
from sqlalchemy import Connection, case, func, select

from shikisha.cli import output, session
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import SharedOptions
from shikisha.config.container import load_config
from shikisha.core.budget import format_dollars
from shikisha.core.errors import ConfigError, TaskError
from shikisha.core.events import RunStatus
from shikisha.core.text import one_line
from shikisha.journal.schema import SERVED
from shikisha.server.keys.key_tables import read_keys
from shikisha_margin import RatePlanTable
from shikisha_margin.margins import OTHER_CLASSES, PlanMargins, rate_plans

_DAY = 86400.0
_OTHER = "(other)"


@dataclass(frozen=True, slots=True)
class MarginRow:
    """The requests of a key in one class: how many there were, how many have an answer, what they brought and cost.

    `unknown` requests have a cost that nobody knows.
    """

    plan: str
    key: str
    name: str
    task_class: str
    requests: int
    answered: int
    revenue: float
    cost: float
    unknown: int
    target: float

    @property
    def margin(self) -> float | None:
        """The share of the revenue that is left; None where there is no revenue."""
        return 1 - self.cost / self.revenue if self.revenue > 0 else None


def margin(
    shared: SharedOptions,
    days: Annotated[float, typer.Option("--days", min=0, help="Only requests of the last so many days.")] = 30.0,
    plan: Annotated[str, typer.Option("--plan", help="Only this rate plan.")] = "",
) -> ExitCode:
    """Show what requests brought and cost, by rate plan, key and class."""
    given = load_config(shared.config).settings.plans
    tables = {name: RatePlanTable.model_validate(table) for name, table in given.items()}
    if not tables:
        raise ConfigError("no rate plan is configured: write a table [plans.NAME] with revenue_per_1k")
    if plan and plan not in tables:
        raise TaskError(f"--plan: no rate plan {plan!r} is configured; known are {', '.join(tables)}")

    async def read() -> list[MarginRow]:
        async with session.open_existing_journal(shared) as journal:
            return await journal.query(lambda connection: read_margins(connection, tables, time() - days * _DAY))

    found = [row for row in session.run_async(read) if plan in {"", row.plan}]
    if shared.json:
        output.print_json([asdict(row) | {"margin": row.margin} for row in found])
    elif not found:
        output.print_report(f"no key of a rate plan had a request in the last {days:g} days")
    else:
        output.make_console(to_stdout=True).print(_table(found))
    return ExitCode.OK


def read_margins(connection: Connection, tables: Mapping[str, RatePlanTable], since: float) -> list[MarginRow]:
    """Return a row for each plan, key and class that had a request since then (Unix time)."""
    margins, names = PlanMargins(rate_plans(tables)), {key.id: key.name for key in read_keys(connection)}
    cost = func.coalesce(SERVED.c.dollars, 0.0) + SERVED.c.uncertain_dollars
    figures = (
        func.count(),
        func.sum(case((SERVED.c.status == str(RunStatus.DONE), 1), else_=0)),
        func.sum(cost),
        func.sum(case((SERVED.c.dollars.is_(None), 1), else_=0)),
    )
    place = (SERVED.c.tenant, SERVED.c.key, SERVED.c.domain)
    asked = select(*place, *figures).where(SERVED.c.created >= since).group_by(*place).order_by(*place)
    rows: dict[tuple[str, str, str], MarginRow] = {}
    for tenant, key, domain, requests, answered, dollars, unknown in connection.execute(asked):
        plan = margins.plan_of(tenant, key)
        if plan is None:
            continue
        table, task_class = tables[plan.name], plan.class_of(domain)
        own = table.classes.get(task_class)
        row = rows.get((plan.name, key, task_class)) or MarginRow(
            plan.name,
            key,
            names.get(key, ""),
            _OTHER if task_class == OTHER_CLASSES else task_class,
            *(0, 0, 0.0, 0.0, 0),
            table.margin if own is None or own.margin is None else own.margin,
        )
        rows[plan.name, key, task_class] = replace(
            row,
            requests=row.requests + int(requests),
            answered=row.answered + int(answered),
            revenue=row.revenue + int(answered) * table.revenue(task_class),
            cost=row.cost + float(dollars),
            unknown=row.unknown + int(unknown),
        )
    order = list(tables)
    return sorted(rows.values(), key=lambda row: (order.index(row.plan), row.name, row.key, row.task_class))


def _table(rows: Sequence[MarginRow]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("plan", "key", "class"):
        table.add_column(name)
    for name in ("requests", "answered", "revenue", "cost", "margin", "target"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row.plan,
            one_line(f"{row.name} {row.key}".strip(), 40),
            one_line(row.task_class, 30),
            f"{row.requests:,}",
            f"{row.answered:,}",
            format_dollars(row.revenue),
            format_dollars(row.cost) + (f" and {row.unknown:,} unknown" if row.unknown else ""),
            "–" if row.margin is None else f"{row.margin:.1%}",
            f"{row.target:.1%}",
        )
    return table
