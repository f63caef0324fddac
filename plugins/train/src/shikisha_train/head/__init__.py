"""A conductor that learned by reinforcement from real outcomes.

`part_cutter` cuts a task, `head_conductor` says who does what. `head.md` says what `head.safetensors` learned from, and
how to make it again. Needs numpy and onnxruntime, no torch.
"""
