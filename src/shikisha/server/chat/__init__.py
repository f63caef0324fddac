"""OpenAI's chat API: `/v1/chat/completions` (`routes`, `schema`, `conversation`) and `/v1/models` (`models`).

Change it when that API changes. `lifecycle` imports `models` for the model names, `responses` imports what both
conversations share; nothing else does.
"""
