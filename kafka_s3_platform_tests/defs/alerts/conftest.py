from collections.abc import Iterator

import pytest

from kafka_s3_platform_tests.defs.alerts.servers import Mailbox, Webhook, mailbox
from kafka_s3_platform_tests.store.http_proxy import running


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    """A webhook that the environment names."""
    with running(Webhook()) as found:
        monkeypatch.setenv("KAFKA_S3_ALERT_WEBHOOK_URL", found.url)
        yield found


@pytest.fixture
def mailed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    """A mail server without TLS that the environment names."""
    with mailbox() as (found, port):
        env = {
            "EMAIL_TO": "one@example.com, two@example.com",
            "EMAIL_FROM": "archive@example.com",
            "SMTP_HOST": "127.0.0.1",
            "SMTP_PORT": str(port),
            "SMTP_SECURITY": "none",
        }
        for name, value in env.items():
            monkeypatch.setenv(f"KAFKA_S3_ALERT_{name}", value)
        yield found
