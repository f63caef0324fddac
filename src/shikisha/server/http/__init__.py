"""What clients send, as pydantic models: strict about names and types, and about what cannot be honoured.

Invariant: a field is honoured, or refused with its name, or it can change no answer; which of these is in a table
beside the model. Deliberately absent: what is done with it (`ordering` and the routes).
"""
