"""The web pages under `/ui`: runs, approvals, workers, keys, and a box to try a task.

Reading order: `templates` (rendering, headers), `login` (who looks), then one module per page: its routes and the
frozen records that its template shows, made from folded runs. `plots` draws the charts. Invariants: every text that a
person, a model or a tool wrote is escaped where it is printed and is never a link; a page loads nothing from
elsewhere and runs no script but the files in `static`. There is no build step. Only `app` imports this package.
"""
