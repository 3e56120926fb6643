"""Servers that stand between a client and S3, or beside it: a recording proxy, and a Security Token Service."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_hex
from typing import TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

_HOP_BY_HOP = frozenset(
    {"connection", "expect", "keep-alive", "transfer-encoding", "content-length", "proxy-connection"}
)
_RESIGNED = frozenset({"authorization", "x-amz-security-token", "x-amz-date", "host"})

S = TypeVar("S", bound=ThreadingHTTPServer)


@dataclass(frozen=True)
class Request:
    """One request as a client sent it. `target` is its decoded path and query; header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    url: str

    @property
    def access_key(self) -> str:
        """Whose signature it carries."""
        return self.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]

    @property
    def key(self) -> str:
        """The object's key, for addresses that name the bucket in the path."""
        return self.target.partition("?")[0].removeprefix("/").partition("/")[2]


@dataclass
class Sts:
    """What a Security Token Service has issued. Sessions last `lifetime`."""

    lifetime: timedelta = timedelta(hours=1)
    refuse: bool = False
    calls: list[dict[str, str]] = field(default_factory=list)
    sessions: dict[str, tuple[str, datetime]] = field(default_factory=dict)

    def issue(self, caller: str, asked: dict[str, str]) -> tuple[str, str, str, datetime]:
        """A new session's access key, secret, token and expiry."""
        self.calls.append({**asked, "caller": caller})
        access_key, token = f"ASIA{token_hex(8).upper()}", token_hex(16)
        expiry = datetime.now(timezone.utc) + self.lifetime
        self.sessions[access_key] = token, expiry
        return access_key, token_hex(16), token, expiry

    def fault(self, request: Request) -> str | None:
        """The error that S3 answers to a request of no valid session."""
        token, expiry = self.sessions.get(request.access_key, ("", datetime.min.replace(tzinfo=timezone.utc)))
        if request.access_key not in self.sessions:
            return "InvalidAccessKeyId"
        if request.headers.get("x-amz-security-token") != token:
            return "InvalidToken"
        return "ExpiredToken" if expiry <= datetime.now(timezone.utc) else None


class Recorder(ThreadingHTTPServer):
    """Forwards to the S3 server at `upstream`, or as a proxy to wherever a request wants; keeps what it forwards.

    With `sts`, only requests of its valid sessions pass, and are signed anew as `signer`, whom the S3 server knows.
    With `status`, it answers that itself.
    """

    daemon_threads = True
    # delta-rs opens many connections at once.
    request_queue_size = 128

    def __init__(
        self,
        upstream: str,
        sts: Sts | None = None,
        signer: tuple[str, str] = ("", ""),
        status: int | None = None,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Recording)
        self.upstream, self.sts, self.signer, self.status = urlsplit(upstream).netloc, sts, signer, status
        self.requests: list[Request] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def received(self) -> Request:
        parts = urlsplit(self.path)
        query = f"?{parts.query}" if parts.query else ""
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Request(self.command, unquote(parts.path + query), headers, self.path)

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body)


class _Recording(_Handler):
    server: Recorder

    def __getattr__(self, name: str) -> object:
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def _serve(self) -> None:
        body, request = self.body(), self.received()
        self.server.requests.append(request)
        fault = self.server.sts.fault(request) if self.server.sts else None
        if fault or self.server.status:
            text = f"<Error><Code>{fault or 'SlowDown'}</Code><Message>by the test</Message></Error>"
            self.answer(403 if fault else self.server.status or 0, [("Content-Type", "application/xml")], text.encode())
            return
        self.answer(*self._forward(body))

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        parts = urlsplit(self.path)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        host = parts.netloc or self.server.upstream
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        if self.server.sts:
            url = f"http://{self.server.upstream}{path}"
            headers = signed_anew(self.command, url, headers, body, self.server.signer)
        with closing(http.client.HTTPConnection(host, timeout=60)) as upstream:
            upstream.putrequest(self.command, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                upstream.putheader(name, value)
            upstream.putheader("Content-Length", str(len(body)))
            upstream.endheaders(body)
            response = upstream.getresponse()
            return response.status, response.getheaders(), response.read()


class StsServer(ThreadingHTTPServer):
    """Answers AssumeRole, and what a container's and an instance's metadata service is asked for credentials."""

    daemon_threads = True

    def __init__(self, sts: Sts) -> None:
        super().__init__(("127.0.0.1", 0), _AssumeRole)
        self.sts = sts

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _AssumeRole(_Handler):
    server: StsServer

    def do_PUT(self) -> None:
        """The instance's first question."""
        self.answer(200, [("x-aws-ec2-metadata-token-ttl-seconds", "21600")], b"metadata-token")

    def do_GET(self) -> None:
        if self.path.endswith("security-credentials/"):
            self.answer(200, [], b"the-instances-role")
            return
        access_key, secret, token, expiry = self.server.sts.issue(self.path, {})
        given = {"AccessKeyId": access_key, "SecretAccessKey": secret, "Token": token, "Code": "Success"}
        body = {**given, "Expiration": f"{expiry:%Y-%m-%dT%H:%M:%SZ}"}
        self.answer(200, [("Content-Type", "application/json")], json.dumps(body).encode())

    def do_POST(self) -> None:
        asked = {name: values[0] for name, values in parse_qs(self.body().decode()).items()}
        header = [("Content-Type", "text/xml")]
        if self.server.sts.refuse or asked["Action"] != "AssumeRole":
            error = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
            self.answer(403, header, error.encode())
            return
        access_key, secret, token, expiry = self.server.sts.issue(self.received().access_key, asked)
        self.answer(
            200,
            header,
            (
                '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
                f"<AccessKeyId>{access_key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
                f"<SessionToken>{token}</SessionToken><Expiration>{expiry.isoformat()}</Expiration></Credentials>"
                "</AssumeRoleResult></AssumeRoleResponse>"
            ).encode(),
        )


def signed_anew(method: str, url: str, headers: dict[str, str], body: bytes, signer: tuple[str, str]) -> dict[str, str]:
    """The headers of a request to `url`, signed by the access key `signer` instead of by whom it was."""
    kept = {name: value for name, value in headers.items() if name.lower() not in _RESIGNED}
    request = AWSRequest(method, url, kept, body)
    S3SigV4Auth(Credentials(*signer), "s3", "us-east-1").add_auth(request)
    return {**dict(request.headers.items()), "Host": urlsplit(url).netloc}


@contextmanager
def running(server: S) -> Iterator[S]:
    """The server, at work until the end."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
