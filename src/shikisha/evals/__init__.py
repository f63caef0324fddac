"""Evaluation: conductors over tasksets, from runs to figures with intervals.

`runner` plays tasks and keeps one `Sample` for each (entrant, task); everything else counts samples: `entrant_metrics`,
`report` computes, `html_report` and `terminal_report` show. Entrants are compared task by task, on
the tasks that both did. Formats on disk (samples, replies, reports) may only grow. The command line and `config` import
this package; the engine, the workers and the conductors must not.
"""
