"""The server: one OpenAI-compatible endpoint in front of the pool, governed by keys and budgets. Extra `server`.

Start with `app` (all routes), then `chat/routes` and `chat/completion` (a chat request from top to bottom) and
`lifecycle/service` (starts, resumes and stops runs). `http/` holds what all routes share, `responses/`, `anthropic/`,
`mcp/` and `runs/` the other APIs, `keys/` who may ask and for how much, `store/` which server performs which run,
`ops/` metrics, logs, webhooks and the watchdog, and `pages/` the web pages. Nothing here decides what the engine
decides. Only `cli` and tests import this package, because FastAPI and its dependencies are optional.
"""
