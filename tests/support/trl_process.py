"""One process of a training with TRL: python trl_process.py FOLDER OWN; it writes its samples and its weights."""

import json
import sys
from pathlib import Path

from safetensors.torch import save_file
from train_world import foreign, model, scorer, settings, source, tokenizer

from shikisha.training.rollout import RolloutGroup
from shikisha.training.trl import PlanGRPOTrainer


def told(group: RolloutGroup) -> dict[str, object]:
    found = [(one.total,) for one in group.scored]
    tensors = {"tokens": group.tokens, "real": group.mask, "logprobs": group.logprobs}
    return {"prompt": group.prompt, "found": found, "texts": group.texts} | {
        name: each.tolist() for name, each in tensors.items()
    }


if __name__ == "__main__":
    folder, own = Path(sys.argv[1]), sys.argv[2] == "own"
    started = model() if own else foreign()
    table = settings(grpo={"steps": 1}, second={"share": 0.5})
    trainer = PlanGRPOTrainer(started, tokenizer(), source(), scorer(), table)
    trainer.run()
    rank = trainer.accelerator.process_index
    (folder / f"{rank}.json").write_text(json.dumps([told(group) for group in trainer.current.groups]))
    save_file({name: each.contiguous() for name, each in started.named_parameters()}, folder / f"{rank}.safetensors")
