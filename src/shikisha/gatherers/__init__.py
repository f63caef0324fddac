"""Gatherers: adapters of `engine.gatherer`, one file each, and `context_budget`, which puts their pieces together.

`file_gatherer` looks into a folder, `history_gatherer` into a repository's commits; the
resources of MCP servers are read by `workers.mcp_resources`. `config` and the command line may import this package.
"""
