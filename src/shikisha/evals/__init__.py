"""Evaluating: any conductors over any taskset, from runs to figures that a careful reviewer would believe.

Invariant: every figure is counted from Samples, one for each (entrant, task), which were graded from real runs;
entrants are compared on the tasks that both did, task by task. Deliberately absent: learning, and choosing what to
evaluate (the composition root casts the entrants).
"""
