"""Sends messages to a webhook and by email. An error names the receiver, but never its URL or password.

It quotes none of a server's words either, because they may repeat the URL or the login. It only tells the numbers of an
answer.
"""

import http.client
import json
import re
import smtplib
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import localtime
from urllib.parse import urlsplit

from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.errors import TransientError
from kafka_s3_platform.core.waits import Waiting
from kafka_s3_platform.operate.alerts.message import Message
from kafka_s3_platform.operate.alerts.settings import AlertSettings

SEND_SECONDS = 10.0
"""The longest wait for an answer. If there is none by then, the message counts as not delivered."""


class PartlyDeliveredError(TransientError):
    """Some addresses were refused, and the others took the message. They would get it twice if it was sent again."""


@dataclass(frozen=True)
class Receiver:
    """A webhook, or mailboxes. `send` raises TransientError if the message may not have arrived."""

    name: str
    send: Callable[[Message], None]


def make_receivers(settings: AlertSettings) -> tuple[Receiver, ...]:
    """Make the receivers named in the settings."""
    receivers = []
    if settings.webhook_url is not None:
        url = settings.webhook_url.get_secret_value()
        receivers.append(Receiver("webhook", lambda message: _send_in_time("webhook", lambda: _post(url, message))))
    if settings.email_to:
        receivers.append(Receiver("email", lambda message: _send_in_time("email", lambda: _mail(settings, message))))
    return tuple(receivers)


def _send_in_time(name: str, send: Callable[[], None]) -> None:
    """Call `send`, for at most SEND_SECONDS. A socket's own limit would start again with each piece of an answer."""
    if not Waiting(send).ended_within(SEND_SECONDS):
        raise TransientError(f"{name}: no answer after {SEND_SECONDS:g} s; it is tried again")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, because a redirected POST becomes a GET and delivers no message."""

    def redirect_request(self, *_: object) -> None:
        return None


def _post(url: str, message: Message) -> None:
    """Send the message to a webhook, in Slack's form. Raise TransientError, without the URL, if it may be lost."""
    # as Slack wants it; Mattermost shows the same, and obeys mentions and links unless something is inside of them
    text = message.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"(?<!\w)@(?=\w)|\](?=[(\[:])", "\\g<0>\N{WORD JOINER}", text)
    body = json.dumps({"text": text, **message.document}).encode()
    server_name = f"webhook at {urlsplit(url).hostname}"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - http or https
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=SEND_SECONDS) as answer:
            answer.read(1)
    except urllib.error.HTTPError as err:
        with err:
            raise TransientError(
                f"{server_name}: answered {err.code} {http.client.responses.get(err.code, '')}. "
                f"Check {environment.ALERT_WEBHOOK_URL}"
            ) from None
    except (OSError, http.client.HTTPException) as err:
        reason = getattr(err, "reason", err)
        if isinstance(reason, TimeoutError):
            raise TransientError(f"{server_name}: no answer after {SEND_SECONDS:g} s; it is tried again") from None
        why = reason.strerror if isinstance(reason, OSError) and reason.strerror else type(reason).__name__
        raise TransientError(f"{server_name}: no answer ({why}). Check that it is up") from None


def _mail(settings: AlertSettings, message: Message) -> None:
    """Send the message by SMTP. Raise TransientError, without the login, if it may be lost.

    If only some of the addresses are refused, raise PartlyDeliveredError.
    """
    server_name = f"SMTP server {settings.smtp_host}:{settings.choose_port()}"
    try:
        with _connect(settings) as server:
            if settings.smtp_user is not None and settings.smtp_password is not None:
                server.login(settings.smtp_user, settings.smtp_password.get_secret_value())
            refused = server.send_message(_make_email(settings, message))
    except smtplib.SMTPRecipientsRefused as err:
        raise TransientError(f"{server_name}: {_describe_refusals(err.recipients)}") from None
    except smtplib.SMTPResponseException as err:
        status = f"{_read_status(err.smtp_code, err.smtp_error)} ({type(err).__name__})"
        raise TransientError(f"{server_name}: answered {status}; its own log says why") from None
    except OSError as err:
        raise TransientError(f"{server_name}: {str(err) or type(err).__name__}") from None
    if refused:
        raise PartlyDeliveredError(f"{server_name}: {_describe_refusals(refused)}. The other addresses got it")


def _describe_refusals(refused: Mapping[str, tuple[int, bytes | str]]) -> str:
    """Return the end of a sentence about the addresses that a server refused."""
    refusals = "; ".join(f"{address} ({_read_status(*answer)})" for address, answer in refused.items())
    return f"takes no mail for {refusals}; its own log says why"


def _connect(settings: AlertSettings) -> smtplib.SMTP:
    """Connect to the SMTP server, with TLS from the start, by STARTTLS, or without TLS."""
    host = settings.smtp_host or ""
    port = settings.choose_port()
    if settings.smtp_security == "tls":
        return smtplib.SMTP_SSL(host, port, timeout=SEND_SECONDS, context=ssl.create_default_context())
    server = smtplib.SMTP(host, port, timeout=SEND_SECONDS)
    if settings.smtp_security == "starttls":
        try:
            server.starttls(context=ssl.create_default_context())
        except BaseException:
            server.close()
            raise
    return server


def _make_email(settings: AlertSettings, message: Message) -> EmailMessage:
    """Make the email of a message. Later emails about an incident are replies to the first one."""
    email = EmailMessage()
    email["Subject"] = f"[kafka-s3] {message.subject}"
    email["From"] = settings.email_from
    email["To"] = ", ".join(settings.email_to)
    email["Date"] = localtime()
    # A message that comes twice has one id. Later ones of an incident answer the first one.
    email["Message-ID"] = f"<{message.id}.{message.stage}@kafka-s3>"
    if message.stage not in {"began", "test"}:
        email["In-Reply-To"] = f"<{message.id}.began@kafka-s3>"
    email["Auto-Submitted"] = "auto-generated"
    email.set_content(message.text)
    return email


def _read_status(code: int, answer: bytes | str) -> str:
    """Return the code of an answer, and the enhanced code (RFC 3463) if its text begins with one."""
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    enhanced = re.match(r"[245]\.[0-9]{1,3}\.[0-9]{1,3}(?![0-9])", text)
    return f"{code} {enhanced[0]}" if enhanced else str(code)
