"""Anthropic's Messages API: `/v1/messages` and `/v1/messages/count_tokens` (`routes`, `schema`, `conversation`).

Change it when that API changes. The runs behind it are begun and followed by `chat.completion`. No other package
imports this one.
"""
