"""A run as a notebook shows it: its answer and cost, the plan as a graph, what each step saw, said and cost.

Invariant: whatever a model, a tool or a person wrote is escaped, and the piece of HTML loads nothing: it has no script,
and its colors are those of the page that it stands in.
"""

from collections.abc import Iterator
from html import escape

from shikisha.core.budget import format_dollars
from shikisha.core.text import one_line
from shikisha.explain.explanation import Explanation, RoundExplanation, StepExplanation
from shikisha.explain.text_report import explain_text
from shikisha.plots.run_charts import wide_plan_graph

_LABEL, _CELL = 24, 300  # characters
_BOX = "fill='none' stroke='currentColor' stroke-width='1.5'"


def run_html(answer: str, summary: str, explanation: Explanation) -> str:
    """Return the run as a piece of HTML."""
    rounds = "".join(_round_html(each) for each in explanation.rounds if each.steps)
    return (
        f"<div><p style='white-space:pre-wrap'>{escape(answer)}</p><p><small>{escape(summary)}</small></p>{rounds}"
        f"<details><summary>Who did what</summary><pre>{escape(explain_text(explanation))}</pre></details></div>"
    )


def _round_html(round_: RoundExplanation) -> str:
    rows = "".join(
        f"<tr><td>{step.step}</td><td>{escape(_worker(step))}</td><td>{escape(one_line(step.subtask, _CELL))}</td>"
        f"<td>{', '.join(str(seen.step) for seen in step.seen) or '–'}</td>"
        f"<td>{escape(one_line(step.answer or step.fault or '', _CELL))}</td><td>{_cost(step)}</td></tr>"
        for step in round_.steps
    )
    heads = "".join(f"<th>{head}</th>" for head in ("step", "worker", "subtask", "saw", "result", "cost"))
    return f"{_graph(round_)}<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _worker(step: StepExplanation) -> str:
    return step.worker or step.planned


def _cost(step: StepExplanation) -> str:
    known = [call.dollars for call in step.calls]
    return "?" if any(each is None for each in known) else format_dollars(sum(each or 0.0 for each in known))


def _graph(round_: RoundExplanation) -> str:
    """Return the plan as an SVG: a box for each step, an arrow from each result to a step that may see it."""
    graph = wide_plan_graph([[seen.step for seen in step.seen] for step in round_.steps])
    parts = []
    for box, step in zip(graph.boxes, round_.steps, strict=True):
        x, y = box.x + 10, box.y + 24
        weight = "bold" if box.answers else "normal"
        parts += [
            f"<rect x='{box.x:g}' y='{box.y:g}' width='{graph.box_width:g}' height='{graph.box_height:g}' {_BOX}/>",
            f"<text x='{x:g}' y='{y:g}' font-weight='{weight}'>{escape(one_line(_worker(step), _LABEL))}</text>",
            f"<text x='{x:g}' y='{y + 20:g}' opacity='.7'>{escape(one_line(step.subtask, _LABEL))}</text>",
        ]
    parts += [
        f"<path d='{each.path}' {_BOX}/><circle cx='{each.tip[0]:g}' cy='{each.tip[1]:g}' r='3' fill='currentColor'/>"
        for each in graph.arrows
    ]
    return (
        f"<svg role='img' aria-label='{escape(_in_words(round_))}' width='{graph.width:g}' height='{graph.height:g}' "
        f"viewBox='0 0 {graph.width:g} {graph.height:g}' font-family='sans-serif' font-size='13' fill='currentColor'>"
        f"{''.join(parts)}</svg>"
    )


def _in_words(round_: RoundExplanation) -> str:
    return "; ".join(_words(round_))


def _words(round_: RoundExplanation) -> Iterator[str]:
    for step in round_.steps:
        seen = ", ".join(str(each.step) for each in step.seen)
        yield f"step {step.step}: {one_line(_worker(step), _LABEL)}{f' sees {seen}' if seen else ''}"
