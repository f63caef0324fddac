"""OpenAI's Responses API, `/v1/responses`: `routes`, `schema`, `stream_events`, `delivery`, `stored_response`.

A run that waits for its client is several responses, its turns. Everything that a response holds is a pure function
of its run's events, so every server gives the same one. No other package imports this one.
"""
