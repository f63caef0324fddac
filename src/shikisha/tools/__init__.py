"""Catalogues of tools: read from OpenAPI, MCP and JSONL, pinned by hash, found by words, and called.

`catalogue_entry` is the record and `lock_file` the pinned catalogue; `catalogue_source` reads sources;
`catalogue` is what an agent sees (`engine.pool.ToolSource`) and performs HTTP operations; `tool_judgments` reads from
journals which tools were right.
"""
