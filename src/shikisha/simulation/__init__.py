"""The simulation: workers, questions with known answers, and demo tasks that need no key and no network.

Read in this order. `values` and `vocabulary` hold what there is to know. `question_families`, `question_families_large`
and `questions` hold the kinds of work, and questions as parts and as text. `worker_profiles` and `editions` say who can
do what. `task_generator` draws tasks. `instructions` and `simulated_workers` understand and do subtasks.
`plan_templates`, `chain_of_thought` and `sft_examples` make data for supervised fine-tuning. `baseline_conductors` and
`demo_run` compare conductors.

Everything is a function of seeds, names and words, so any run can be repeated exactly. The shipped model was trained on
these texts: a changed wording, seed or order of draws means training it again. What is simulated says so in its name.
Only `config`, `cli`, `evals.tasksets` and `training`'s callers in `config` import this package.
"""
