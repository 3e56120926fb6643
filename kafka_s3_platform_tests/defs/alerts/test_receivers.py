"""Mail over TLS with a login, and settings that cannot be used. No error tells a secret."""

import html
import os
import re
import socket
import ssl
import traceback
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from kafka_s3_platform.cli import main
from kafka_s3_platform.defs.alerts.message import Message
from kafka_s3_platform.defs.alerts.receivers import make_receivers
from kafka_s3_platform.defs.alerts.settings import read_alert_settings
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform_tests.defs.alerts.servers import Mailbox, Webhook, mailbox
from kafka_s3_platform_tests.tls.authority import Authority, new_authority

EMAIL = {"EMAIL_TO": "one@example.com", "EMAIL_FROM": "archive@example.com", "SMTP_HOST": "localhost"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def secured(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    """A mail server with TLS and a login, whose authority this process trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server.both)
    with mailbox(context) as (found, port):
        own = {"SMTP_HOST": "127.0.0.1", "SMTP_PORT": str(port), "SMTP_USER": "archive", "SMTP_PASSWORD": "right-word"}
        set_alerts(monkeypatch, **{**EMAIL, **own})
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
        yield found


def set_alerts(monkeypatch: pytest.MonkeyPatch, **env: str) -> None:
    for name, value in env.items():
        monkeypatch.setenv(f"KAFKA_S3_ALERT_{name}", value)


def test_the_command_shows_that_each_receiver_takes_a_message(secured: Mailbox, hook: Webhook) -> None:
    told = CliRunner().invoke(main, ["test-alert"])
    # the mail server logs there, too
    said = told.output.splitlines()[-2:]
    assert (told.exit_code, said) == (0, ["webhook: took the test message", "email: took the test message"])
    [mail] = secured.mails
    assert (secured.logins, secured.was_secret) == ([(b"archive", b"right-word")], [True])
    assert (mail["From"], mail["To"]) == ("archive@example.com", "one@example.com")
    assert hook.taken[0]["event"] == "test"
    assert hook.taken[0]["text"].splitlines() == mail.get_content().splitlines()


def test_what_goes_wrong_is_told_without_secrets(
    secured: Mailbox, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.answers_with = 403
    set_alerts(monkeypatch, SMTP_PASSWORD="wrong-word")
    told = CliRunner().invoke(main, ["test-alert"])
    assert told.exit_code == 1
    assert "webhook at 127.0.0.1: answered 403" in told.output
    assert "answered 535 5.7.8 (SMTPAuthenticationError); its own log says why" in told.output
    # as it is, and as AUTH PLAIN and AUTH LOGIN send it
    login = [b64encode(text).decode() for text in (b"\0archive\0wrong-word", b"wrong-word")]
    for secret in ("token-of-the-hook", "wrong-word", *login, "says no"):
        assert secret not in told.output + "".join(traceback.format_exception(told.exception))
    tried = len(secured.logins)
    monkeypatch.delenv("SSL_CERT_FILE")
    assert "CERTIFICATE_VERIFY_FAILED" in CliRunner().invoke(main, ["test-alert"]).output
    assert len(secured.logins) == tried > 0, "no password is sent to a server that nobody knows"


def test_a_reason_phrase_that_is_the_url_is_in_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as threads:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/services/token-of-the-hook"
        set_alerts(monkeypatch, WEBHOOK_URL=url)
        threads.submit(answer, server, f"HTTP/1.1 404 no handler for {url} {'x' * 3000}\r\nContent-Length: 0\r\n\r\n")
        told = CliRunner().invoke(main, ["test-alert"])
    assert "webhook at 127.0.0.1: answered 404 Not Found. Check" in told.output
    trace = "".join(traceback.format_exception(told.exception))
    assert "token-of-the-hook" not in told.output + trace
    assert "xxx" not in told.output + trace


def answer(server: socket.socket, text: str) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(text.encode())


def test_mentions_and_links_of_an_error_do_nothing_in_slack_and_mattermost(hook: Webhook) -> None:
    hostile = "@all x @channel (@here) [a](https://b.example) [a][b] [b]: https://b.example <!channel> kafka@EXAMPLE"
    [receiver] = make_receivers(read_alert_settings(os.environ))
    receiver.send(Message("id", "began", "subject", hostile))
    text = hook.taken[0]["text"]
    assert not re.search(r"@(all|channel|here)|\]\(|\]\[|\]:|<", text)
    assert text.replace("\N{WORD JOINER}", "") == html.escape(hostile)
    assert "kafka@EXAMPLE" in text, "only what is a mention is changed"


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"WEBHOOK_URL": "hooks.example.com/secret-path"}, r"WEBHOOK_URL: .*is no URL"),
        ({"WEBHOOK_URL": "https://me:secret-path@hooks.example.com"}, r"WEBHOOK_URL: .*is no URL"),
        ({"WEBHOOK_URL": "https://hooks.example.com:port/secret-path"}, r"WEBHOOK_URL: .*is no URL"),
        ({"WEBHOOK": "secret-path"}, r"WEBHOOK: is unknown"),
        ({**EMAIL, "EMAIL_TO": "one@example.com, two"}, r"EMAIL_TO: .*'two' is no address"),
        ({**EMAIL, "EMAIL_FROM": ""}, r"set KAFKA_S3_ALERT_EMAIL_FROM"),
        ({**EMAIL, "SMTP_HOST": ""}, r"set KAFKA_S3_ALERT_SMTP_HOST"),
        ({**EMAIL, "SMTP_PORT": "smtp"}, r"SMTP_PORT: "),
        ({**EMAIL, "SMTP_SECURITY": "ssl"}, r"SMTP_SECURITY: .*'starttls', 'tls' or 'none'"),
        ({**EMAIL, "SMTP_PASSWORD": "secret-path"}, r"set both .*SMTP_USER"),
        (
            {**EMAIL, "SMTP_USER": "me", "SMTP_PASSWORD": "secret-path", "SMTP_SECURITY": "none"},
            r"would send the password in clear text",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused(env: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        read_alert_settings({f"KAFKA_S3_ALERT_{name}": value for name, value in env.items()})
    assert "secret-path" not in "".join(traceback.format_exception(raised.value))
