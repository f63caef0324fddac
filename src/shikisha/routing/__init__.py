"""Learned routing policies: which worker to ask next for a task, given the answers so far. Data and numpy.

`state` describes tasks and the answers given, `table_rule` and `stopping_rule` decide on a state,
`trade_off` selects the setting that meets a budget, `policy_data` joins them with their evidence, and
`policy_file` and `policy_registry` store them. Invariants: the same state leads to the same action, for one task and
for ten thousand, so what was measured offline is what runs; a policy is data and never code; a worker that is not in
the pool is never asked. Learning lives in `routing.fit`. Only `config`, `cli`, `conductors` and `routing.fit` import
this package.
"""
