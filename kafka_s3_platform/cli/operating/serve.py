"""`kafka-s3 serve`."""

from collections.abc import Sequence

import click

from kafka_s3_platform.cli.messages import MESSAGES
from kafka_s3_platform.core.config.environment import SERVE_PREFIX, read_dagster_url
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.model.health import ConnectorHealth

LOOK_SECONDS = 20.0
"""Time for one look at all connectors. Servers that have not answered by then are shown as unknown."""

PATIENCE_SECONDS = 120.0
"""The longest time for a look. One that takes longer counts as failed."""


def _check_path(ctx: click.Context, param: click.Parameter, value: str) -> str:  # noqa: ARG001 - click's signature
    """Return the path of a page. Raises BadParameter if it is none."""
    if not value.startswith("/") or any(character in value for character in "{}?#"):
        raise click.BadParameter(f"{value!r} is no path: it begins with /, and has no ?, #, {{ or }}")
    return value


@click.command(context_settings={"auto_envvar_prefix": SERVE_PREFIX, "show_default": True})
@click.option("--host", default="127.0.0.1", help="The address to listen on. The pages have no login.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which people reach it, besides localhost. Requests for other names are refused, as on 127.0.0.1. "
    "May be repeated.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=9000, help="The port to listen on; 0: any free one.")
@click.option("--page-path", default="/", callback=_check_path, help="The path of the status page.")
@click.option("--health-path", default="/health", callback=_check_path, help="The path of the health check.")
@click.option("--metrics-path", default="/metrics", callback=_check_path, help="The path of the metrics.")
@click.option(
    "--interval",
    type=click.FloatRange(1.0, 3600.0),
    default=30.0,
    help="Seconds from one look at Kafka and the stores to the next. All who ask in between get what it found.",
)
@click.option(
    "--healthy-lag",
    type=click.IntRange(0),
    help="Offsets that a topic may be behind its latest one. More is not healthy. Not set: the age of hours counts "
    "alone, since an archive by hours is always an hour behind.",
)
@click.option(
    "--check",
    "checks",
    multiple=True,
    metavar="CLASS",
    help="A further health check: a class by its dotted name, which the installation allows. May be repeated.",
)
def serve(
    host: str,
    allowed_hosts: Sequence[str],
    port: int,
    page_path: str,
    health_path: str,
    metrics_path: str,
    interval: float,
    healthy_lag: int | None,
    checks: Sequence[str],
) -> None:
    """Serve a status page, a health check and metrics of Prometheus, until Ctrl-C or SIGTERM.

    Looks at all connectors of the folder every --interval seconds. Connector files are read anew each time. Each option
    can be set in the environment: --port is KAFKA_S3_SERVE_PORT. Links to Dagster begin with KAFKA_S3_DAGSTER_URL
    (http://127.0.0.1:3000).
    """
    # what the server needs is needed by no other command
    from kafka_s3_platform.operate.monitoring.checks import make_checks
    from kafka_s3_platform.operate.monitoring.lookout import Lookout
    from kafka_s3_platform.operate.monitoring.overview import Overviews, load_all
    from kafka_s3_platform.operate.monitoring.server import ServerPaths, is_loopback, make_app, open_socket, run_server

    paths = ServerPaths(page_path, health_path, metrics_path)
    if len({page_path, health_path, metrics_path}) < 3:
        raise ConfigError(f"two of the paths {page_path}, {health_path} and {metrics_path} are the same")
    overviews = Overviews(LOOK_SECONDS, watches=True)

    def read_health() -> list[ConnectorHealth]:
        configs, broken = load_all()
        return overviews.take(configs, broken, {config.name for config in configs})

    lookout = Lookout(read_health, make_checks(healthy_lag, checks), interval, PATIENCE_SECONDS)
    dagster = read_dagster_url() or "http://127.0.0.1:3000"
    names = allowed_hosts if allowed_hosts or is_loopback(host) else None
    app = make_app(lookout, paths, dagster, interval, names=names)
    with open_socket(host, port) as listening:
        shown_host = f"[{host}]" if ":" in host else host
        lookout.start()
        MESSAGES.end()
        if not MESSAGES.is_verbose:
            # else each look would print its messages again
            MESSAGES.set_verbosity("quiet")
        click.echo(f"http://{shown_host}:{listening.getsockname()[1]}{page_path}", err=True)
        try:
            run_server(app, listening)
        finally:
            lookout.stop()
