"""Kinds of checks on a step's output, for `[checks.NAME]` in the configuration; `config.adapters` registers them.

`text_checks` look at the text alone, `opinion` asks another worker. A new kind is a settings model, a class with the
one method of `engine.checker.Check`, and a `build_...` function, in a file of its own or in one of these.
"""
