"""The engine: performs plans within hard limits and journals every step; `engine.Engine` is the way in.

From the top down: `engine` (a run's start, end and resume), `rounds` (plan, perform, look, ask again), `scheduler` (the
steps of a plan as a graph), `step` (stand-ins), `attempt` (one call: reserve, journal, call, settle). Its ports are
`worker`, `conductor`, `checker`, `guards`, `tools`, `pool`, `approvals` and `recorder`, each with a fake to test with.
It imports `core` alone, so it knows no adapter, no database and no server.
"""
