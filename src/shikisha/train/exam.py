"""The exam: what the policy comes to on tasks that it does not learn from, by the likeliest plan for each.

Invariants: nothing is drawn by lot, so an exam changes no later sample; a run that a worker spoilt counts as wrong, and
is no valid plan's fault. Deliberately absent: choosing by it; whoever does must say so.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shikisha.taskset import Item
from shikisha.train.batch import Asked
from shikisha.train.progress import Judged
from shikisha.train.rollout import Drawing, sample
from shikisha.train.scoring import Scored, Scorer

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import Qwen2ForCausalLM

_AT_ONCE = 64  # prompts


def likeliest(model: "Qwen2ForCausalLM", tokenizer: "Tokenizer", items: Sequence[Item], longest: int) -> list[str]:
    """Return the likeliest plan of a small model of our own for each item, as text."""
    found: list[str] = []
    for first in range(0, len(items), _AT_ONCE):
        prompts = [tokenizer.encode(Asked(item).prompt()).ids for item in items[first : first + _AT_ONCE]]
        drawn = sample(model, prompts, 1, longest, drawing=Drawing(temperature=0.0))
        found += [tokenizer.decode(rows[0], skip_special_tokens=False) for rows in drawn.rows()]
    return found


async def examined(texts: Sequence[str], scorer: Scorer, items: Sequence[Item], beside: Mapping[str, float]) -> Judged:
    """Return what the texts come to, one for each item; `beside` is what others came to on the same tasks."""
    scored = await scorer.scores([[text] for text in texts], items)
    return judged([one for (one,) in scored], beside)


def judged(found: Sequence[Scored], beside: Mapping[str, float]) -> Judged:
    """Return the figures of what was scored, one plan a task."""
    count = len(found)
    shapes = Counter(one.shape for one in found)
    return Judged(
        count,
        right=sum(one.right for one in found) / count,
        valid=sum(one.valid for one in found) / count,
        dollars=sum(one.dollars for one in found) / count,
        shapes={name: times / count for name, times in shapes.most_common()},
        beside=dict(beside),
    )
