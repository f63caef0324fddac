"""An OpenAI-compatible chat server inside the repository: scripted answers, real protocol, real faults.

Tests, demos and kill tests put it on loopback and drive it with the same SDK that talks to paid endpoints. Invariant:
an answer that is no mishap is exactly what the protocol allows (it is built from the SDK's own types), and a mishap is
acted out on the socket, not simulated in a client. Deliberately absent: a model, TLS, and any use outside loopback.

    async with chat_server([Answer(text="42")]) as url: ...
"""

from shikisha.chatserver.ledger import Entry, Ledger
from shikisha.chatserver.mishaps import Mishap, black_hole, closed_port
from shikisha.chatserver.script import Answer, Asked, Calling, Chooser, Script
from shikisha.chatserver.server import chat_server

__all__ = [
    "Answer",
    "Asked",
    "Calling",
    "Chooser",
    "Entry",
    "Ledger",
    "Mishap",
    "Script",
    "black_hole",
    "chat_server",
    "closed_port",
]
