"""Configuration: `shikisha.toml`, validated, and the composition root that wires everything from it.

`settings` holds the keys, `adapters` the registry of workers, checks and extras, `container` reads the file and wires
it, `conductors` makes conductors by name, `preflight` checks them. The `eval_*` modules, `evaluation`, `policy_builder`
and `training_environment` compose evaluations, policies and trainings. Add a kind of worker or check to `adapters`.
Only `cli`, `server` and tests import this package.
"""
