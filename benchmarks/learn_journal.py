"""What `learn --from-journal` makes of a journal whose runs were conducted by plans of several steps.

    python benchmarks/learn_journal.py [--json]

Rehearsal questions by the hand-written rules over the embedded orchestra, each answer graded by its checker; then
`learn` on that journal, and, where it writes a policy, that policy on other questions beside the rules. Before a
journal's conductor was compared with, the worker of a plan's last step was credited with the whole task.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from common import Figure, report
from shikisha.conduct import Engine
from shikisha.conductor import Conductor
from shikisha.config.learning import Order, learn
from shikisha.config.load import load
from shikisha.errors import ConfigError
from shikisha.grade import Given
from shikisha.journal import open_journal
from shikisha.orchestra.tasks import Item, items
from shikisha.orchestra.wording import Split
from shikisha.orchestra.yardsticks import RULES
from shikisha.policy.file import save
from shikisha.pool import Pool
from shikisha.recorder import MemoryRecorder
from shikisha.reward import events

LEARNED, OTHERS = 400, 300


async def conducted(questions: list[Item], pool: Pool, conductor: Conductor, journal: str = "") -> float:
    """Return the share of right answers; with a journal, runs and grades are kept there."""
    right = 0
    if not journal:
        for item in questions:
            run = await Engine(MemoryRecorder()).run(item.task, pool, conductor)
            right += item.grade(run.answer)
        return right / len(questions)
    async with open_journal(journal) as kept:
        for item in questions:
            run = await Engine(kept).run(item.task, pool, conductor)
            good = item.grade(run.answer)
            right += good
            for event in events(run.id, await Given({run.answer or "": float(good)}).grade(run.answer or ""), None):
                kept.add(event)
        await kept.flush()
    return right / len(questions)


def main() -> None:
    """Measure and print."""
    composition = load()
    pool = composition.pool()
    first, others = list(items(Split.TRAIN, 21, count=LEARNED)), list(items(Split.TRAIN, 22, count=OTHERS))
    with tempfile.TemporaryDirectory() as folder:
        journal, file = f"{folder}/runs.db", Path(folder) / "new.policy"
        made = asyncio.run(conducted(first, pool, RULES, journal))
        found = [Figure(f"rules, {LEARNED} questions, as journaled: right", 100 * made, "%")]
        try:
            policy = learn(Order(journal=journal), lambda _: None)
        except ConfigError as refusal:
            print(refusal, file=sys.stderr)
            found.append(Figure("a policy was written", 0, "", 0))
        else:
            save(policy, file)
            conductor = composition.conductor(f"policy:{file}", pool)
            found += [
                Figure("a policy was written", 1, "", 0),
                Figure("promised at its most accurate", 100 * policy.rung().dial.points[-1].accuracy, "%"),
                Figure(f"rules, {OTHERS} others: right", 100 * asyncio.run(conducted(others, pool, RULES)), "%"),
                Figure(
                    f"the policy, {OTHERS} others: right", 100 * asyncio.run(conducted(others, pool, conductor)), "%"
                ),
            ]
    report("Learning from a journal of plans", found)


if __name__ == "__main__":
    main()
