"""Servers that stand between a client and S3, or beside it: a recording proxy, and a Security Token Service."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qs

import pytest
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.store import client, credentials
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.operate.local.seaweedfs import SeaweedFS
from kafka_s3_platform_tests.conftest import present
from kafka_s3_platform_tests.store.http_proxy import (
    HttpAnswer,
    HttpRequest,
    HttpServer,
    Proxy,
    forwarded,
    refusal,
    running,
    signed_anew,
)


def store_at(endpoint: str, **changes: Any) -> ObjectStore:
    """The bucket `own` of a server that takes every signature."""
    key, secret = SecretStr("a"), SecretStr("s")
    given: dict[str, Any] = {"access_key_id": key, "secret_access_key": secret, **changes}
    return ObjectStore(StoreSettings(bucket="own", endpoint_url=endpoint, **given))


def forget_clients() -> None:
    """Look for credentials anew, as a new process does."""
    credentials._get_session.cache_clear()  # noqa: SLF001
    client._get_client.cache_clear()  # noqa: SLF001
    client.find_bucket_url.cache_clear()


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

    def fault(self, request: HttpRequest) -> str | None:
        """The error that S3 answers to a request of no valid session."""
        token, expiry = self.sessions.get(request.access_key, ("", datetime.min.replace(tzinfo=timezone.utc)))
        if request.access_key not in self.sessions:
            return "InvalidAccessKeyId"
        if request.headers.get("x-amz-security-token") != token:
            return "InvalidToken"
        return "ExpiredToken" if expiry <= datetime.now(timezone.utc) else None


class Recorder(Proxy):
    """Forwards to the S3 server at `upstream`, or as a proxy to wherever a request wants; keeps what it forwards.

    With `sts`, only requests of its valid sessions pass, and are signed anew as `signer`, whom the S3 server knows.
    With `status`, it answers that itself.
    """

    def __init__(
        self,
        upstream: str,
        sts: Sts | None = None,
        signer: tuple[str, str] = ("", ""),
        status: int | None = None,
    ) -> None:
        super().__init__(upstream)
        self.sts, self.signer, self.status = sts, signer, status
        self.requests: list[HttpRequest] = []

    def answer(self, request: HttpRequest) -> HttpAnswer | None:
        self.requests.append(request)
        fault = self.sts.fault(request) if self.sts else None
        if fault:
            return refusal(403, fault)
        if self.status:
            return refusal(self.status, "SlowDown")
        return forwarded(self.upstream, signed_anew(self.upstream, request, self.signer) if self.sts else request)


@contextmanager
def session_gate(store: StoreSettings, sts: Sts) -> Iterator[Recorder]:
    """Before the store of these settings: lets pass what a valid session has signed, with its token."""
    known = present(store.access_key_id).get_secret_value(), present(store.secret_access_key).get_secret_value()
    with running(Recorder(store.endpoint_url or "", sts, known)) as server:
        yield server


class StsServer(HttpServer):
    """Answers AssumeRole, and what a container's and an instance's metadata service is asked for credentials."""

    def __init__(self, sts: Sts) -> None:
        super().__init__()
        self.sts = sts

    def answer(self, request: HttpRequest) -> HttpAnswer:
        if request.method == "POST":
            return self._assume_role(request)
        if request.method == "PUT":
            # the instance's first question
            return HttpAnswer(200, (("x-aws-ec2-metadata-token-ttl-seconds", "21600"),), b"metadata-token")
        if request.path.endswith("security-credentials/"):
            return HttpAnswer(200, (), b"the-instances-role")
        access_key, secret, token, expiry = self.sts.issue(request.path, {})
        given = {"AccessKeyId": access_key, "SecretAccessKey": secret, "Token": token, "Code": "Success"}
        body = {**given, "Expiration": f"{expiry:%Y-%m-%dT%H:%M:%SZ}"}
        return HttpAnswer(200, (("Content-Type", "application/json"),), json.dumps(body).encode())

    def _assume_role(self, request: HttpRequest) -> HttpAnswer:
        asked = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        header = (("Content-Type", "text/xml"),)
        if self.sts.refuse or asked["Action"] != "AssumeRole":
            error = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
            return HttpAnswer(403, header, error.encode())
        access_key, secret, token, expiry = self.sts.issue(request.access_key, asked)
        body = (
            '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
            f"<AccessKeyId>{access_key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
            f"<SessionToken>{token}</SessionToken><Expiration>{expiry.isoformat()}</Expiration></Credentials>"
            "</AssumeRoleResult></AssumeRoleResponse>"
        )
        return HttpAnswer(200, header, body.encode())


class KmsStore(SeaweedFS):
    """An S3 server with a key service, which makes each key that is named, and a key of its own to encrypt with."""

    def start(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("WEED_S3_SSE_KEK", bytes(range(32)).hex())
            super().start()

    def _identities(self) -> dict[str, object]:
        service = {"type": "local", "enableOnDemandCreate": True}
        kms = {"default_provider": "local", "providers": {"local": service}}
        return {**super()._identities(), "kms": kms}


class PlainStore(Recorder):
    """A store that takes bodies only whole: it answers 411 to one in chunks, or with a trailer, as older ones do.

    With `signer`, whom the S3 server knows, each body is damaged on its way and signed anew: its checksum alone tells.
    """

    def answer(self, request: HttpRequest) -> HttpAnswer | None:
        told = " ".join(request.headers.get(name, "") for name in ("content-encoding", "x-amz-content-sha256"))
        if "aws-chunked" in told or "STREAMING-" in told or "x-amz-trailer" in request.headers:
            return refusal(411, "MissingContentLength")
        if request.method == "PUT" and self.signer[0]:
            request = signed_anew(self.upstream, replace(request, body=damaged(request.body)), self.signer)
        return super().answer(request)


def damaged(body: bytes) -> bytes:
    """A body of which one bit is another."""
    return bytes([body[0] ^ 1]) + body[1:]
