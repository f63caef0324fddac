"""The office: a simulated world in plain sentences, in which descriptions of workers cannot be trusted.

Read in this order. `company` has people, rooms, invoices, meters and policies, and what can be asked of them. `questions`
composes parts into a question and writes it in sentences of several authors (`wordings.toml`, `cards.toml`). `staff` says
what each simulated worker can do, what it wants to be told, and what its card claims. `simulated_staff` performs subtasks.
`office_tasks` draws tasks with their pools. `best_plan` computes the optimum and the best policy of simpler classes.

What a worker can do is in `staff` alone. Nothing that a conductor is taught from may import it: a test walks the imports.
Everything is a function of seeds and texts. What is simulated says so in its name.
"""
