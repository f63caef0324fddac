"""Training a conductor: warm start by lessons, then reinforcement from finished tasks, performed by the real engine.

Read in this order. `settings`: what a run of training is. `words`, `tiny`: a tokenizer, a model from scratch. `warm`:
lessons. `scoring`: what a plan is worth. `rollout`, `shared`: plans sampled for prompts. `advantage`, `loss`: GRPO as
pure functions. `reference`: the whole of it in one plain loop. Needs the extra `train`; nothing that `import shikisha`
reaches imports from here.
"""
