"""The pointer conductor: `task_reader` reads parts, `pointer_network` chooses for each, `part_plans` writes rounds.

It learned from simulated workers: reading from lessons, choosing by GRPO on performed plans. It needs numpy alone.
"""
