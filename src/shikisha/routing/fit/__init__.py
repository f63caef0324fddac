"""Learning policies from outcome logs: numpy and scikit-learn, minutes on a CPU, no graphics card.

`panel` turns a log into arrays, `scoring`, `inducing`, `tabling`, `cascading` fit parts, `play` performs a part on a
panel, `ladder` fits every rung and keeps the best that can be defended. Invariant: nothing is reported on a task that
it was fitted or chosen on. Deliberately absent: language models (those are trained elsewhere), and the engine.
"""
