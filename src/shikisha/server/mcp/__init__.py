"""An MCP server: tools that run tasks, explain runs and answer questions, over HTTP (`/mcp`) and on stdio.

`messages` speaks the protocol to anybody, `tools` does what is asked, `routes` and `stdio` carry the messages. Written
without the SDK, which the server does not need otherwise: the protocol's handshake, tools and tasks are small, and
every message is authorized by its own key. The SDK's client is in the tests. Only `app` and `cli` import this package.
"""
