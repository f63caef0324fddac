"""The Agent2Agent protocol (A2A 1.0, JSON-RPC): this server as an agent for other agents.

New methods may be added. Invariant: a task is a run, whose id is enough; no state is kept beside it.
"""
