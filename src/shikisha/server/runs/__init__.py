"""Shikisha's own API: `/runs`, `/runs/{run}/rollback`, `/approvals` and `/feedback`.

It exposes what OpenAI's APIs cannot: a run with its explanation, its events, its open questions and its effects. No
other package imports it, except `pages`, which shares the rollback and the feedback event.
"""
