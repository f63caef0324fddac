"""An OpenAI-compatible chat server inside the repository: scripted answers, real protocol, real faults.

Tests, demos and kill tests put it on loopback and drive it with the same SDK that talks to paid endpoints. Invariant:
an answer that is no mishap is exactly what the protocol allows (it is built from the SDK's own types), and a mishap is
acted out on the socket, not simulated in a client. Deliberately absent: a model, TLS, and any use outside loopback.

    async with chat_server([Answer(text="42")]) as url: ...
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
