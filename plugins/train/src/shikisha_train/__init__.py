"""Training a conductor: GRPO by TRL, on plans that the engine really performs; and one that learned from real outcomes.

`grpo` is the algorithm, to be read top to bottom; `trl` calls it in TRL's trainer, `trl_batch` joins what processes
sample. `plan_reward` performs and scores plans. `training_run` drives a run from its settings to its last checkpoint.
The rest is what a run reads (`settings`, `environment`, `model_loader`), keeps (`checkpoint`, `model_card`,
`metrics_log`) and shows (`metrics`, `console`, `metrics_page`); `inference` runs a checkpoint.

`head` is the conductor that learned, and `office` a simulated world for benchmarks and tests; the `*_command` modules
are commands of `shikisha`. `plan_rewards` and `trl_environment` give rewards to other people's trainers.

Settings, checkpoints and `steps.jsonl` are formats that others rely on; everything else may change. This is a plug-in
of Shikisha, which needs its extra `train`: nothing of the package itself imports it.
"""
