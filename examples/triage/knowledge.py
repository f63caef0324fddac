"""A knowledge base as a JSON tool: POST /search {"query": ...} gives the articles that share most words with it.

python knowledge.py [PORT]
"""

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ARTICLES = Path(__file__).parent / "articles"


def words(text: str) -> set[str]:
    """Return the words of a text that tell something, without their endings."""
    return {word.rstrip("sed") for word in re.findall(r"[a-z]{4,}", text.lower())}


def search(query: str, most: int = 2) -> str:
    """Return the articles that fit best, best first."""
    asked = words(query)
    texts = [path.read_text() for path in sorted(ARTICLES.glob("*.md"))]
    found = sorted(((len(asked & words(text)), text) for text in texts), key=lambda pair: -pair[0])
    return "\n\n".join(text for shared, text in found[:most] if shared) or "Nothing is known about this."


class Handler(BaseHTTPRequestHandler):
    """Answers searches."""

    def do_POST(self) -> None:
        """Search."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"found": search(str(asked["query"]))}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the standard library's name
        """Say nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8200), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}/search", flush=True)
    server.serve_forever()
