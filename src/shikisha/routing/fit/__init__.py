"""Fitting routing policies from outcome logs: numpy and scikit-learn, minutes on a CPU.

`outcome_matrix` turns a log into arrays, the `fit_*` modules fit one decision rule each, `log_replay` runs a rule on a
log, and `model_selection` fits all candidates and selects the best one that the evidence supports; `verdict` says what
to do. `partial_logs` does the same for logs in which few workers were asked. Invariant: no figure is reported for a
task that its rule was fitted or chosen on. Only `config`, `cli`, `plots` and benchmarks import this package.
"""
