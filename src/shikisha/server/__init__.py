"""Serving: one OpenAI-compatible endpoint in front of the pool, watched, governed and resumable. Extra `server`.

Reading order: `principal` (who asks), `orders` (what is asked), `house` (begins runs, goes on with them, ends them),
`live` (a run as it happens), `app` (the routes, put together). Invariant: nothing here decides what the engine decides;
the server adds who may ask, what is told, and that a run outlives its server. Deliberately absent: any import of it
from below; FastAPI and its kin are imported by whoever serves, and by nobody else.
"""
