"""Worker notes: what outcomes say about a worker at a kind of subtask, with the runs that say it.

`step_outcomes` reads from runs how likely each step's answer was right. `worker_notes` keeps what that says of each
worker and answers for a new text. `conductors.noted` shows notes to whatever conducts. Notes are data: they are made
from a journal, hold no names and numbers of its tasks, and are made again without a run that was erased.
"""
