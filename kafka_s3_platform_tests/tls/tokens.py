"""A token endpoint of OAuth 2: whoever asks gets an unsigned token of that name, as Kafka's test handler wants."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def token_endpoint() -> Iterator[str]:
    """Its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        user = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode().partition(":")[0]
        body = json.dumps({"access_token": unsigned(user), "token_type": "Bearer", "expires_in": 300}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def unsigned(user: str) -> str:
    """A JSON web token of RFC 7519 without a signature."""
    now = int(time.time())
    claims = {"sub": user, "iat": now, "exp": now + 300, "scope": ["any"]}
    return ".".join([_encoded({"alg": "none", "typ": "JWT"}), _encoded(claims), ""])


def _encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
