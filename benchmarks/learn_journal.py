"""What `learn --from-journal` makes of a journal whose runs were conducted by plans of several steps.

    python benchmarks/learn_journal.py [--json]

Rehearsal questions by the hand-written rules over the embedded orchestra, each answer graded by its grader; then
`learn` on that journal, and, where it writes a policy, that policy on other questions beside the rules. Before a
journal's conductor was compared with, the worker of a plan's last step was credited with the whole task.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from common import Figure, report
from shikisha.config.container import load_config
from shikisha.config.policy_builder import LearnRequest, learn_policy
from shikisha.core.errors import ConfigError
from shikisha.engine.conductor import Conductor
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.evals.graders import ScriptedGrader
from shikisha.evals.reward import grade_events
from shikisha.journal import open_journal
from shikisha.routing.policy_file import save_policy
from shikisha.simulation.baseline_conductors import RULES
from shikisha.simulation.task_generator import SimulatedTask, generate_tasks
from shikisha.simulation.vocabulary import WordingSplit

LEARNED, OTHERS = 400, 300


async def conducted(questions: list[SimulatedTask], pool: Pool, conductor: Conductor, journal: str = "") -> float:
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
            for event in grade_events(
                run.id, await ScriptedGrader({run.answer or "": float(good)}).grade(run.answer or ""), None
            ):
                kept.add(event)
        await kept.flush()
    return right / len(questions)


def main() -> None:
    """Measure and print."""
    composition = load_config()
    pool = composition.pool()
    first, others = (
        list(generate_tasks(WordingSplit.TRAIN, 21, count=LEARNED)),
        list(generate_tasks(WordingSplit.TRAIN, 22, count=OTHERS)),
    )
    with tempfile.TemporaryDirectory() as folder:
        journal, file = f"{folder}/runs.db", Path(folder) / "new.policy"
        made = asyncio.run(conducted(first, pool, RULES, journal))
        found = [Figure(f"rules, {LEARNED} questions, as journaled: right", 100 * made, "%")]
        try:
            policy = learn_policy(LearnRequest(journal=journal), lambda _: None)
        except ConfigError as refusal:
            print(refusal, file=sys.stderr)
            found.append(Figure("a policy was written", 0, "", 0))
        else:
            save_policy(policy, file)
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
