"""Start, stop and look at the embedded stack."""

import logging
import time
from dataclasses import dataclass, field

from kafka_s3_platform.errors import PlatformError, TransientError
from kafka_s3_platform.local.broker import Broker
from kafka_s3_platform.local.processes import locked
from kafka_s3_platform.local.registry import SchemaRegistry
from kafka_s3_platform.local.seaweedfs import SeaweedFS
from kafka_s3_platform.local.settings import StackSettings

logger = logging.getLogger(__name__)

START_SECONDS = 120.0
POLL_SECONDS = 0.2
PROGRESS_SECONDS = 5.0

Server = Broker | SeaweedFS | SchemaRegistry


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One server: its process, and whether it answers as it should; `detail` says what is wrong."""

    name: str
    running: bool
    pid: int | None
    healthy: bool
    detail: str | None


@dataclass(frozen=True, slots=True)
class StackStatus:
    """How to reach the stack, and how its servers are."""

    bootstrap_servers: str
    s3_endpoint: str
    aws_access_key_id: str
    aws_secret_access_key: str = field(repr=False)
    bucket: str
    data_dir: str
    servers: tuple[ServerStatus, ...]
    schema_registry_url: str | None = None
    """None unless it was started."""

    @property
    def healthy(self) -> bool:
        return all(server.healthy for server in self.servers)


def up(settings: StackSettings) -> StackStatus:
    """Start what does not run and wait until all answer. Data of earlier runs is kept.

    Raises:
        ConfigError: a port is taken, Java or `weed` is missing, or the stack runs with other ports.
        PermanentError: a server stopped while starting.
        TransientError: a server did not answer in time, or Kafka could not be fetched.
    """
    with locked(settings.data_dir):
        start(_servers(settings))
        SeaweedFS(settings).create_bucket()
    return status(settings)


def up_registry(settings: StackSettings) -> StackStatus:
    """Start the Schema Registry, which is no part of `up`, and wait until it answers. It forgets when it stops.

    Raises:
        ConfigError: its port is taken, Java is missing, or it runs with another port.
        PermanentError: it stopped while starting.
        TransientError: it did not answer in time, or could not be fetched.
    """
    with locked(settings.data_dir):
        start((SchemaRegistry(settings),))
    return status(settings)


def down(settings: StackSettings) -> tuple[str, ...]:
    """Stop the servers, keep their data. Returns the names of those that ran."""
    with locked(settings.data_dir):
        daemons = [server.daemon for server in (Broker(settings), SeaweedFS(settings), SchemaRegistry(settings))]
        running = [daemon for daemon in daemons if daemon.terminate()]
        for daemon in daemons:
            daemon.await_end()
    return tuple(daemon.name for daemon in running)


def status(settings: StackSettings) -> StackStatus:
    """How the stack is now. Starts and changes nothing."""
    registry = SchemaRegistry(settings)
    return StackStatus(
        bootstrap_servers=settings.bootstrap_servers,
        s3_endpoint=settings.s3_endpoint,
        aws_access_key_id=settings.aws_access_key_id,
        aws_secret_access_key=settings.aws_secret_access_key,
        bucket=settings.bucket,
        data_dir=str(settings.data_dir),
        servers=tuple(_server_status(server) for server in _servers(settings)),
        schema_registry_url=settings.registry_url if registry.daemon.is_wanted else None,
    )


def _servers(settings: StackSettings) -> tuple[Server, ...]:
    """Those that should run: the registry if it was asked for."""
    registry = SchemaRegistry(settings)
    return Broker(settings), SeaweedFS(settings), *([registry] if registry.daemon.is_wanted else [])


def start(servers: tuple[Server, ...]) -> None:
    """Start those that do not run and wait until all answer. Raises as `up`."""
    for server in _to_start(servers):
        logger.info("starting %s in %s", server.daemon.name, server.daemon.folder)
        server.start()
    for server in servers:
        _await(server)


def _to_start(servers: tuple[Server, ...]) -> list[Server]:
    """Those that do not run. Refused as a whole, before any of them starts."""
    stopped = [server for server in servers if server.daemon.process() is None]
    for server in servers:
        if server in stopped:
            server.daemon.refuse_taken_ports()
        else:
            server.daemon.refuse_other_ports()
    return stopped


def _await(server: Server) -> None:
    started = reported = time.monotonic()
    while True:
        try:
            return server.check()
        except TransientError as err:
            server.daemon.refuse_dead()
            now = time.monotonic()
            if now - started > START_SECONDS:
                raise
            if now - reported > PROGRESS_SECONDS:
                logger.info("waiting for %s (%.0f s): %s", server.daemon.name, now - started, err)
                reported = now
        time.sleep(POLL_SECONDS)


def _server_status(server: Server) -> ServerStatus:
    name, process = server.daemon.name, server.daemon.process()
    if process is None:
        return ServerStatus(name, running=False, pid=None, healthy=False, detail="not running")
    try:
        server.daemon.refuse_other_ports()
        server.check()
    except PlatformError as err:
        return ServerStatus(name, running=True, pid=process.pid, healthy=False, detail=str(err))
    return ServerStatus(name, running=True, pid=process.pid, healthy=True, detail=None)
