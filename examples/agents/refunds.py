"""A conductor over three agents with different tools: one reads, one writes, one looks at what was written.

    python examples/agents/refunds.py ["Order 7 arrived broken. Refund it, and tell the customer."]

The tools are real: functions over an SQLite database. The models are simulated, and named so: rules over what an agent
is shown stand for a language model, so that the example runs offline and always in the same way. With endpoints of
your own, each simulated model is a chat worker and each agent a table of `shikisha.toml` (`kind = "agent"`).

The simulated clerk makes two mistakes on purpose. It writes to an address that nothing has shown, which the guard
refuses before the call; and it gives a number as a word, which the tool's schema refuses. It is told both, and mends
them. The trace shows what each agent was offered, called, and was refused.
"""

import asyncio
import json
import re
import sqlite3
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shikisha import Caps, Card, Engine, Member, Plan, Pool, Reply, Request, Run, Step, Task
from shikisha.core.messages import ToolCall
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.pool import Agent
from shikisha.engine.recorder import Recorder
from shikisha.explain import explain_text
from shikisha.explain.explanation import explain
from shikisha.guards.grounded import GroundedGuard
from shikisha.journal import open_journal
from shikisha.workers.function_tools import function_tools, reads

TICKET = "Order 7 arrived broken. Refund it, and tell the customer."


class Shop:
    """The shop's database, and the tools over it."""

    def __init__(self, path: str = ":memory:") -> None:
        self.base = sqlite3.connect(path, check_same_thread=False)
        self.base.executescript(
            """
            create table orders (id integer primary key, customer text, email text, dollars real, status text);
            create table refunds (key text primary key, order_id integer, dollars real);
            create table letters (key text primary key, email text, body text);
            insert into orders values (6, 'Alan T.', 'alan@example.org', 12.0, 'delivered');
            insert into orders values (7, 'Ada L.', 'ada@example.org', 42.5, 'delivered');
            """
        )

    def rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        """Return the rows of a query."""
        return self.base.execute(query, values).fetchall()

    def reading_tools(self) -> Sequence[Callable[..., object]]:
        """Return the tools that only read."""

        @reads
        def find_order(order: int) -> dict[str, object]:
            """Look an order up: customer, e-mail address, dollars, status."""
            found = self.rows("select customer, email, dollars, status from orders where id = ?", order)
            if not found:
                raise LookupError(f"there is no order {order}")
            return dict(zip(("customer", "email", "dollars", "status"), found[0], strict=True))

        @reads
        def find_refunds(order: int) -> list[dict[str, object]]:
            """List the refunds of an order."""
            found = self.rows("select order_id, dollars from refunds where order_id = ?", order)
            return [dict(zip(("order", "dollars"), row, strict=True)) for row in found]

        return find_order, find_refunds

    def writing_tools(self) -> Sequence[Callable[..., object]]:
        """Return the tools that write; the same idempotency key writes once."""

        def refund_order(order: int, dollars: float, idempotency_key: str) -> str:
            """Refund an order."""
            with self.base:
                row = (idempotency_key, order, dollars)
                self.base.execute("insert or ignore into refunds values (?, ?, ?)", row)
            return f"refunded ${dollars:.2f} for order {order}"

        def send_letter(email: str, body: str, idempotency_key: str) -> str:
            """Send an e-mail to a customer."""
            with self.base:
                self.base.execute("insert or ignore into letters values (?, ?, ?)", (idempotency_key, email, body))
            return f"sent to {email}"

        return refund_order, send_letter


@dataclass(frozen=True)
class SimulatedModel:
    """Stands for a language model: a rule says what it answers to what it is shown."""

    rule: Callable[[Request], Reply]

    async def perform(self, request: Request) -> Reply:
        """Answer by the rule."""
        return self.rule(request)


def call(name: str, **arguments: object) -> ToolCall:
    """Return a call of a tool, as a model writes it."""
    return ToolCall("", name, json.dumps(arguments))


def said(request: Request) -> list[str]:
    """Return what tools have answered so far."""
    return [result.content for exchange in request.exchanges for result in exchange.results]


def order_of(request: Request) -> int:
    """Return the number of the order that the task is about."""
    return int(re.findall(r"order (\d+)", request.task.prompt, re.IGNORECASE)[0])


def simulated_reader(request: Request) -> Reply:
    """Look the order and its refunds up at once, then say what was found."""
    order, results = order_of(request), said(request)
    if not results:
        return Reply("", calls=(call("find_order", order=order), call("find_refunds", order=order)))
    found, refunds = json.loads(results[0]), json.loads(results[1])
    done = "not refunded yet" if not refunds else "refunded already"
    return Reply(f"Order {order} of {found['customer']} cost {found['dollars']} dollars; it is {done}.")


def simulated_clerk(request: Request) -> Reply:
    """Refund and write, with two mistakes that are told to it and mended."""
    order, results = order_of(request), said(request)
    letter = "We are sorry. Your money is on its way."
    match len(results):
        case 0:
            return Reply("", calls=(call("refund_order", order=order, dollars="all of it"),))
        case 1:
            return Reply("", calls=(call("find_order", order=order),))
        case 2:
            dollars = json.loads(results[1])["dollars"]
            made_up = call("send_letter", email="customer@example.com", body=letter)
            return Reply("", calls=(call("refund_order", order=order, dollars=dollars), made_up))
        case 4:
            email = json.loads(results[1])["email"]
            return Reply("", calls=(call("send_letter", email=email, body=letter),))
        case _:
            return Reply(f"{results[2]}; {results[4]}.")


def simulated_auditor(request: Request) -> Reply:
    """Look at the state, not at what the clerk said."""
    order, results = order_of(request), said(request)
    if not results:
        return Reply("", calls=(call("find_refunds", order=order), call("find_order", order=order)))
    refunds, found = json.loads(results[0]), json.loads(results[1])
    right = [refund["dollars"] for refund in refunds] == [found["dollars"]]
    verdict = "once, in full" if right else f"wrongly: {refunds}"
    return Reply(f"Order {order} was refunded {verdict}, and {found['customer']} was told.")


class SimulatedConductor:
    """Stands for a conductor that is a language model: picks workers by their cards, never by their names."""

    name = "simulated-conductor"

    async def propose(self, situation: Situation) -> Proposal:
        """Plan three steps in the first round, and ship after it."""
        if situation.rounds:
            return Proposal(Plan())
        reader, clerk, auditor = (self._who(situation, word) for word in ("looks up", "refunds", "audits"))
        return Proposal(
            Plan(
                (
                    Step("Find out what the ticket is about.", reader),
                    Step("Do what the ticket asks for.", clerk, (0,)),
                    Step("Check in the database that it was done.", auditor, (0, 1)),
                )
            ),
            note="reading, writing and checking are for different agents",
            final=True,
        )

    @staticmethod
    def _who(situation: Situation, word: str) -> int:
        return next(place for place, card in enumerate(situation.cards) if word in card.description)


def agents(shop: Shop) -> Pool:
    """Return the pool: three agents, each with tools of its own."""
    read = function_tools(shop.reading_tools(), "shop")
    write = function_tools([shop.reading_tools()[0], *shop.writing_tools()], "desk", guards=[GroundedGuard()])

    def member(name: str, description: str, rule: Callable[[Request], Reply], *sources: object) -> Member:
        card = Card(name, description, kind="agent", tools=True)
        return Member(card, SimulatedModel(rule), agent=Agent(sources, turns=8))  # type: ignore[arg-type]

    return Pool(
        [
            member("simulated-reader", "looks up orders and customers", simulated_reader, read),
            member("simulated-clerk", "refunds orders and writes to customers", simulated_clerk, write),
            member("simulated-auditor", "audits what was done, in the database", simulated_auditor, read),
        ]
    )


async def perform(shop: Shop, ticket: str, journal: Recorder) -> Run:
    """Perform the ticket and return its run."""
    return await Engine(journal).run(
        Task(ticket), agents(shop), SimulatedConductor(), Caps(tool_calls=20, dollars=0.10)
    )


async def main(ticket: str) -> None:
    """Perform a ticket, print the trace, and what is in the database then."""
    shop = Shop()
    async with open_journal("refunds.db") as journal:
        run = await perform(shop, ticket, journal)
    print(explain_text(explain(run)))
    print("refunds in the database:", shop.rows("select order_id, dollars from refunds"))
    print("letters in the database:", shop.rows("select email, body from letters"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else TICKET))
