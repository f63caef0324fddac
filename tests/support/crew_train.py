"""One process of a training with several: python crew_train.py FOLDER; it writes its weights."""

import sys
from pathlib import Path

from safetensors.torch import save_file
from trainings import chat_words, model, settings, stream

from shikisha.evals.reward import RewardWeights
from shikisha_train.environment import TaskCurriculum
from shikisha_train.plan_reward import PlanScorer
from shikisha_train.trl import PlanGRPOTrainer

if __name__ == "__main__":
    folder, begun = Path(sys.argv[1]), model()
    table = settings(grpo={"steps": 2, "kl": 0.0}, second={"share": 0.5})
    trainer = PlanGRPOTrainer(begun, chat_words(), TaskCurriculum(stream), PlanScorer(RewardWeights()), table)
    trainer.run()
    weights = {name: each.contiguous() for name, each in begun.named_parameters()}
    save_file(weights, folder / f"{trainer.accelerator.process_index}.safetensors")
