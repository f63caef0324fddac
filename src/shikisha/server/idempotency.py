"""The same request twice is one run: `Idempotency-Key` on whatever begins runs.

A route reads the key with `key_of(headers)`, puts it into its order (`Order.idempotency`), and begins with `begun`
instead of `house.begin`. What comes back names the run, and whether it is a new one: if it is not, the route answers
from that run, waiting for it if it still goes on, and streams it again from the journal if a stream is asked for; a
client that leaves then takes nobody's run with it. Invariant: a key means one run of its key's holder, on all servers
of a journal (the store's unique index decides), and another request under it is refused; nothing is begun or charged
for either. Headers are no part of what is compared, and neither is whether a stream is wanted. Deliberately absent:
keys that expire (they are kept as long as their run's row).
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

from shikisha.errors import Conflict, UnknownRun
from shikisha.server.house import House
from shikisha.server.orders import Order
from shikisha.server.problems import Problem

HEADER = "Idempotency-Key"
LONGEST = 255
_LOOKS, _PAUSE = 20, 0.1  # how often, and after how many seconds, a run that is about to begin is looked for


@dataclass(frozen=True, slots=True)
class Begun:
    """The run of a request; `fresh`: this request began it."""

    run: str
    fresh: bool = True


def key_of(headers: Mapping[str, str]) -> str | None:
    """Return the hash of the client's key for this request; None without one, 400 for one that cannot be a key.

    Its hash is all that is needed, and all that is kept: who knows what clients take for such a key.
    """
    key = headers.get(HEADER.lower())
    if key is None:
        return None
    if not 1 <= len(key) <= LONGEST or not (key.isascii() and key.isprintable()):
        said = f"{HEADER}: expected 1 to {LONGEST} printable ASCII characters"
        raise Problem(400, said, "invalid_idempotency_key", param=HEADER)
    return sha256(key.encode()).hexdigest()


async def begun(house: House, order: Order) -> Begun:
    """Begin the order's run, or return the one that its key stands for; 409 when that is another request's."""
    if order.idempotency is None:
        return Begun((await house.begin(order)).run)
    order = replace(order, request_hash=order.request_hash or hashed(order))
    for _ in range(_LOOKS):
        known = await house.store.recall(order.by.key, order.idempotency or "")
        try:
            if known is None:
                return Begun((await house.begin(order)).run)
            run, same = known.run, known.request_hash == order.request_hash
        except Conflict as conflict:
            run, same = conflict.run, conflict.same
        if not same:
            said = f"{HEADER}: another request was made under this key: run {run}"
            raise Problem(409, said, "idempotency_mismatch", param=HEADER)
        if await _acknowledged(house, run, order):
            return Begun(run, fresh=False)
        await asyncio.sleep(_PAUSE)
    raise Problem(409, f"{HEADER}: the run under this key is about to begin", "idempotency_in_progress", wait=1)


def hashed(order: Order) -> str:
    """Return the hash of what a request asks for: the task with everything that belongs to it, and the API's own."""
    task = order.task
    parts = [order.api, order.model, task.prompt, task.context, task.domain, sorted(task.labels), task.bodies()]
    more = [task.parallel_tool_calls, order.detached, order.wire, dict(order.metadata)]
    return sha256(json.dumps([*parts, *more], sort_keys=True).encode()).hexdigest()


async def _acknowledged(house: House, run: str, order: Order) -> bool:
    """Whether the run under a key is there; another server may have written its row and not yet its first event.

    One that was refused as it began has lost the key by then: the request is a new one.
    """
    try:
        await house.journal.read(run)
    except UnknownRun:
        return False
    known = await house.store.recall(order.by.key, order.idempotency or "")
    return known is not None and known.run == run
