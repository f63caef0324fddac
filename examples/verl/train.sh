#!/usr/bin/env bash
# The setting of recipes/conductor-7b.toml by verl, on Ray: 4 tasks x 64 plans a step, 200 steps, no KL, clip 0.2.
# Not run: nobody here had the GPUs. Keys are those since verl 0.7.1, when reward.* got these names; 0.9.1 is the newest release.
# Meant for one machine of 4 GPUs of 80 GB, sampler (vLLM) and training on the same ones; NODES of them for more.
#     pip install 'verl[vllm]' 'shikisha[logs]' shikisha-train
#     examples/verl/train.sh recipes/conductor-7b.toml
# Steps, rates and tasks stand here and in the training file: verl reads these, the rewards read that file.
set -euo pipefail
cd "$(dirname "$0")/../.."

file=$(realpath "${1:?a training file, as for shikisha train}")
shift
data=${DATA:-data/verl}
workers=${REWARD_WORKERS:-8}
python examples/verl/dataset.py "$file" --count 800 --out "$data"

export SHIKISHA_TRAINING=$file SHIKISHA_REWARDS=$PWD/$data/rewards SHIKISHA_REWARD_WORKERS=$workers
export SHIKISHA_CONFIG=${SHIKISHA_CONFIG:-$PWD/shikisha.toml} # on every machine of the Ray cluster, as the files are

python -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    algorithm.norm_adv_by_std_in_grpo=True \
    algorithm.use_kl_in_reward=False \
    data.train_files="$data/train.parquet" \
    data.val_files="$data/val.parquet" \
    data.train_batch_size=4 \
    data.max_prompt_length=4096 \
    data.max_response_length=1024 \
    data.filter_overlong_prompts=True \
    data.truncation=error \
    actor_rollout_ref.model.path="${MODEL:-Qwen/Qwen2.5-7B-Instruct}" \
    actor_rollout_ref.model.enable_gradient_checkpointing=True \
    actor_rollout_ref.actor.strategy=fsdp2 \
    actor_rollout_ref.actor.ppo_mini_batch_size=4 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \
    actor_rollout_ref.actor.clip_ratio_low=0.2 \
    actor_rollout_ref.actor.clip_ratio_high=0.2 \
    actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean \
    actor_rollout_ref.actor.use_kl_loss=False \
    actor_rollout_ref.actor.entropy_coeff=0 \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.optim.lr_scheduler_type=cosine \
    actor_rollout_ref.actor.optim.lr_warmup_steps_ratio=0.03 \
    actor_rollout_ref.actor.optim.weight_decay=0.0 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=64 \
    actor_rollout_ref.rollout.temperature=1.0 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.4 \
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 \
    reward.num_workers="$workers" \
    reward.custom_reward_function.path="$PWD/examples/verl/reward.py" \
    reward.custom_reward_function.name=compute_score \
    trainer.total_training_steps=200 \
    trainer.total_epochs=1 \
    trainer.n_gpus_per_node="${GPUS:-4}" \
    trainer.nnodes="${NODES:-1}" \
    trainer.save_freq=20 \
    trainer.test_freq=25 \
    trainer.logger='["console"]' \
    trainer.project_name=shikisha \
    trainer.experiment_name=conductor-7b \
    "$@"
