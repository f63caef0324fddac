"""The simulation: the office, a world of simulated workers in which cards cannot be trusted (`office`).

The pointer conductor is trained and judged there. Everything is a function of seeds, names and words, so any run can be
repeated exactly. What is simulated says so in its name. Only `cli` and `training` import this package.
"""
