"""Outcome logs: which worker answered what to which task, how good that was and what it cost.

`log_reader` reads a log, `log_writer` makes one, `table_files` is the parquet or JSONL beneath, and `importers` bring
other people's records over. The format is in the design and may only grow. `routing`, `evals`, `workers` and `config`
may import this package; it imports `core` and, for journals, `journal` and `evals.graders`.
"""
