"""Doubles for tests, yours and ours: an OpenAI-compatible chat server with scripted answers and real faults.

It listens on loopback and speaks the protocol of the SDK that calls paid endpoints. No other package imports this one;
new doubles may be added here. Invariant: an answer without a fault is exactly what the protocol allows: it is built
from the SDK's own types. A fault happens on the socket, not in a patched client. Deliberately absent: a model, TLS, and
any use outside loopback.

    async with chat_server([ScriptedAnswer(text="42")]) as url: ...
"""

from shikisha.testing.chat_script import (
    AnswerChooser,
    AnswerScript,
    ChargeLedger,
    InjectedFault,
    LedgerEntry,
    ReceivedChatRequest,
    ScriptedAnswer,
    ScriptedToolCall,
    black_hole,
    closed_port,
)
from shikisha.testing.chat_server import chat_server

__all__ = [
    "AnswerChooser",
    "AnswerScript",
    "ChargeLedger",
    "InjectedFault",
    "LedgerEntry",
    "ReceivedChatRequest",
    "ScriptedAnswer",
    "ScriptedToolCall",
    "black_hole",
    "chat_server",
    "closed_port",
]
