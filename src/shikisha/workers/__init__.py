"""Workers: one module for each kind, with its settings, its class, and `build(settings, card, secret_store)`.

`scripted` is the shipped fake. `chat_reply`, `endpoint`, `http_client` and `mcp_session` hold what several kinds share:
reading a chat reply, addresses and faults of endpoints, bounded HTTP, and MCP connections. A worker that holds
connections has `aclose()`. To add a kind, write such a module and register it in `config.kinds`; only `config` and
tests import this package.
"""
