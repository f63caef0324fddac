"""Workers, one small file each: a pydantic `Settings`, `build(settings, card, vault)`, and the class behind it.

`scripted` is the shipped double. Siblings without a `Settings` hold what two adapters share: `address` (where to, and
headers that carry keys), `wire` (bounded HTTP), `outward` (certificates and proxies), `refusals` (what an HTTP status
means), `arguments` (a subtask as a tool's arguments), `billing` and `hearing` (what a chat reply used and said),
`wording` (words of others in our messages), `mcp_session` and `mcp_http` (a connection that many calls share, and its
HTTP). A worker that holds connections has `aclose()`. Deliberately absent: discovery; `config` names each adapter.
"""
