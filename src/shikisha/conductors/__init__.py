"""Conductors: each module adapts one way of planning to the `Conductor` port; only `config` and tests import them.

`fixed_conductors` holds fixed topologies, cascades and random plans, built by `topologies`; `rules` reads a TOML file;
`language_model` asks a chat endpoint, or a checkpoint in this process; `learned_policy` acts by policies that were
fitted to outcomes. To add one, write a class with a `name` and an async `propose`, and register it where `config`
builds conductors.
"""
