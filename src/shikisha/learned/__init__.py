"""What is learned from the journal besides routing policies and notes: step values, prompts, lessons, skills.

`learned_file` is the one form in which all of it is kept: content, its evidence (run ids), labels, what it brought, and
a hash. `step_samples`, `step_encoder`, `fit_step_value` and `step_value` say how likely a worker's answer to a subtask
is right. Nothing here calls a worker, a model or a journal: what is learned is made from runs and acts in conductors.
"""
