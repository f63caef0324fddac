"""Tasksets: tasks with checkers and a fixed split, one small file a set.

`load` has the registry and the names; `rows` and `files` read, `splits` and `contamination` keep parts apart, `wording`
puts questions. A new set is a file with `HUB` and `item(row, tools)`, and a line in `load.SETS`. Deliberately absent:
the sets themselves, which are read from local files or, when a name says so, by the `datasets` library.
"""
