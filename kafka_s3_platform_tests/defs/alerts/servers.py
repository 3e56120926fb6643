"""A webhook's server and a mail server, which keep what they were sent."""

import json
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from kafka_s3_platform_tests.conftest import free_ports
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, HttpServer


class Webhook(HttpServer):
    """Answers with `answers_with`, after `seconds`. Whoever does not know the path is told nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.answers_with = 200
        self.seconds = 0.0
        self.requests: list[HttpRequest] = []

    @property
    def url(self) -> str:
        return f"{self.endpoint}/services/T0/token-of-the-hook"

    @property
    def taken(self) -> list[dict[str, Any]]:
        """The documents that it took."""
        return [json.loads(request.body) for request in self.requests]

    def answer(self, request: HttpRequest) -> HttpAnswer:
        time.sleep(self.seconds)
        if self.answers_with == 200 and request.method == "POST":
            self.requests.append(request)
        # as a careless server does, which quotes what it was asked
        where = (("Location", self.endpoint),) if self.answers_with == 302 else ()
        return HttpAnswer(self.answers_with, where, f"{request.url} says no".encode())


class Mailbox:
    """Takes mails unless it `refuses`, but for the addresses that are `unknown`."""

    def __init__(self) -> None:
        self.refuses = ""
        self.unknown = ""
        self.mails: list[EmailMessage] = []
        self.logins: list[tuple[bytes, bytes]] = []
        self.was_secret: list[bool] = []

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, _: SMTP, __: Session, envelope: Envelope, address: str, ___: list[str]
    ) -> str:
        if address == self.unknown:
            return "550 5.1.1 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's name
        if self.refuses:
            return self.refuses
        mail = message_from_bytes(envelope.content or b"", _class=EmailMessage, policy=policy.default)  # type: ignore[arg-type]
        self.mails.append(mail)
        self.was_secret.append(session.ssl is not None)
        return "250 taken"

    def log_in(self, *login: object) -> AuthResult:
        *_, given = login
        assert isinstance(given, LoginPassword)
        self.logins.append((given.login, given.password))
        # as a careless server does
        sent = b64encode(b"\0" + given.login + b"\0" + given.password), b64encode(given.password), given.password
        message = None if given.password == b"right-word" else f"535 5.7.8 wrong: {b' '.join(sent).decode()}"
        return AuthResult(success=message is None, handled=False, message=message)


@contextmanager
def mailbox(context: ssl.SSLContext | None = None) -> Iterator[tuple[Mailbox, int]]:
    """A mail server and its port. With a context, it wants TLS and a login."""
    found = Mailbox()
    [port] = free_ports(1)
    secured: Any = {"tls_context": context, "require_starttls": True, "auth_required": True}
    options = {**secured, "authenticator": found.log_in} if context else {}
    controller = Controller(found, "127.0.0.1", port, **options)
    controller.start()
    try:
        yield found, port
    finally:
        controller.stop()
