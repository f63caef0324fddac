"""Catalogues of tools: read from OpenAPI, MCP and JSONL, pinned by hash, found by words, and called.

`catalogue_entry` is the record and `lock_file` the pinned catalogue; `openapi`, `mcp_listing` and `tool_rows` read
sources; `operation` performs an HTTP operation; `catalogue` is what an agent sees (`engine.pool.ToolSource`);
`tool_judgments` reads from journals which tools were right.
"""
