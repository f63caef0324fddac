"""Learned policies: what to do next for a task, decided from what its workers have said so far. Data, and numpy.

`batch` holds the state of many tasks at once (a run is a batch of one), `parts` what can act on it, `dial` which of
the settings meets a budget, `policy` the whole with its evidence, `file` how it is kept. Invariants: the same state
leads to the same act, on one task and on ten thousand, so that what was measured offline is what is performed; a policy
is data and never code; a worker that is not there is never asked. Deliberately absent: learning (`learn`).
"""
