"""The core: frozen records and pure functions that everything else builds on; it imports nothing above it.

`task`, `plan` and `plan_parser` (the input, and a plan's text), `call` and `messages` (what a worker gets and returns),
`events` and `run` (what is journaled, and a run folded from it), `budget`, `visibility`, `secrets`, `errors` (the error
tree), `json_schema`, `tools`, `prompts`, `text` and `toml`. Events and their defaults are a format on disk: add fields
with defaults, and change none. Every package may import it.
"""
