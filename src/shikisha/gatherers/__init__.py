"""Gatherers: adapters of `engine.gatherer`, one file each.

`file_gatherer` looks into a folder and puts the pieces of all together, `history_gatherer` into a repository's commits;
the resources of MCP servers are read by `workers.mcp_resources`. `config` and the command line may import this package.
"""
