"""A served run from its request to its end: authorize, start, execute, follow, ask, resume, maintain, stop.

`service` is the entry point for all APIs. Nothing here knows HTTP beyond `ApiError` and request options; the APIs and
the pages import it.
"""
