"""Training a conductor: supervised fine-tuning (SFT), then GRPO on plans that the engine really performs.

`grpo` is the algorithm, to be read top to bottom; `trl` takes the same steps by TRL, on several GPUs. `rollout`,
`decoder` and `qwen2` sample plans and read them again; `plan_reward` performs and scores them. `training_run` drives a
run from its settings to its last checkpoint. The rest is what a run reads (`settings`, `environment`, `sft_data`,
`model_loader`), keeps (`checkpoint`, `model_card`, `metrics_log`), shows (`metrics`, `console`, `metrics_page`) and
leaves for others (`onnx_export`, `inference`).

Settings, checkpoints and `steps.jsonl` are formats that others rely on; everything else may change. Only `config` and
`cli` import this package, and nothing that `import shikisha` reaches: it needs the extra `train`.
"""
