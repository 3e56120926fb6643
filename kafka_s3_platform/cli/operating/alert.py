"""`kafka-s3 test-alert`."""

import os
from datetime import datetime, timezone

import click

from kafka_s3_platform.cli.messages import Verdict, print_result
from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.errors import ConfigError, TransientError


@click.command
@click.pass_context
def test_alert(ctx: click.Context) -> None:
    """Send a test message to each receiver of alerts in the environment. Exit status 1 if one does not take it."""
    from kafka_s3_platform.operate.alerts.message import make_test_message
    from kafka_s3_platform.operate.alerts.receivers import make_receivers
    from kafka_s3_platform.operate.alerts.settings import read_alert_settings

    receivers = make_receivers(read_alert_settings(os.environ))
    if not receivers:
        raise ConfigError(
            f"no receiver is set: set {environment.ALERT_WEBHOOK_URL} or {environment.ALERT_EMAIL_TO}, here "
            "and for the code location"
        )
    message = make_test_message(datetime.now(timezone.utc))
    lines = []
    for receiver in receivers:
        try:
            receiver.send(message)
            lines.append(Verdict(f"{receiver.name}: took the test message", is_good=True))
        except TransientError as err:
            lines.append(Verdict(str(err), is_good=False))
    print_result(None, as_json=False, lines=lines)
    ctx.exit(0 if all(line.is_good for line in lines) else 1)
