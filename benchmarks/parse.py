"""What parsing a plan costs: a 5-step plan in both forms, with and without reasoning before it, and a megabyte.

python benchmarks/parse.py [--json]
"""

from contextlib import suppress
from statistics import median
from time import perf_counter

from common import Figure, report
from shikisha.core.errors import PlanError
from shikisha.core.plan import Plan, Step
from shikisha.core.plan_parser import MAX_CHARACTERS, parse_plan
from shikisha.core.prompts import render_plan_lists

PLAN = Plan(
    (
        Step("Say in three sentences how this is best done and what could go wrong.", 2),
        Step('Try it independently and end with "The answer is ...".', 0),
        Step("Try it another way, and say how sure you are.", 1),
        Step("Look for mistakes in both answers; check every number again.", 3, (1, 2)),
        Step("Choose, and give the final answer only.", 4, (0, 1, 2, 3)),
    )
)
REASONING = "The question has two parts, and the second needs the first one's number. " * 20
TEXTS = {
    "three lists": render_plan_lists(PLAN),
    "three lists after 1,500 characters of reasoning": f"{REASONING}\n\n```python\n{render_plan_lists(PLAN)}\n```\n",
    "JSON twin": PLAN.dumps(),
}


def microseconds(text: str, times: int) -> float:
    """Return the median time to parse this text, or to refuse it."""
    taken = []
    for _ in range(times):
        begun = perf_counter()
        with suppress(PlanError):
            parse_plan(text, 5)
        taken.append(perf_counter() - begun)
    return median(taken) * 1e6


def main() -> None:
    """Measure and print."""
    figures = [
        Figure(f"parse a 5-step plan: {name}", microseconds(text, 5_000), "µs", 100) for name, text in TEXTS.items()
    ]
    drafts = (render_plan_lists(PLAN) + "\n") * (MAX_CHARACTERS // (len(render_plan_lists(PLAN)) + 1))
    figures.append(Figure(f"read {len(drafts):,} characters of drafts", microseconds(drafts, 5), "µs"))
    broken = "model_id = [x " * (MAX_CHARACTERS // 14)
    figures.append(Figure(f"refuse {len(broken):,} characters of broken lists", microseconds(broken, 5), "µs"))
    report("Parsing plans", figures)


if __name__ == "__main__":
    main()
