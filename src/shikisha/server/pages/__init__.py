"""The pages: what a person sees of runs, approvals, workers, budgets, with a browser, on a desk or a telephone.

Reading order: `rendering` (templates, headers), `doors` (who looks), then one `view_NAME` (what is shown, as frozen
records made of folded runs) and one `NAME` (its routes) a page; `graph`, `timeline` and `spark` draw. Invariants: every
text that a person, a model or a tool wrote is escaped where it is printed and is never a link; a page loads nothing
from outside and runs no script but the two files vendored in `static`. Deliberately absent: a build step, a script of
our own, and any figure that the journal does not hold.
"""
