"""The office: a simulated world in plain sentences, in which descriptions of workers cannot be trusted.

Read in this order. `company` has people, rooms, invoices, meters and policies, and what can be asked of them.
`questions` composes parts into a question and writes it in the sentences of several authors (`wordings.toml`). `staff`
says what each simulated worker can do, what it wants to be told, and what its card claims (`cards.toml`).
`simulated_staff` performs subtasks. `office_tasks` draws tasks with their pools. `best_plan` computes the optimum.
`office_conductors` turns choices into plans, and has the policies that a learned one is compared with.

What a worker can do is in `staff` alone. Nothing of the plug-in that teaches a conductor may import it: a test looks.
Everything is a function of seeds and texts. What is simulated says so in its name.
"""
