"""Starts and stops the embedded stack, and reads its status."""

import logging
import time
from dataclasses import dataclass, field

from kafka_s3_platform.core.errors import ConfigError, PlatformError, TransientError
from kafka_s3_platform.core.folders import lock_folder
from kafka_s3_platform.operate.local.broker import Broker
from kafka_s3_platform.operate.local.processes import Daemon
from kafka_s3_platform.operate.local.registry import SchemaRegistry
from kafka_s3_platform.operate.local.seaweedfs import SeaweedFS, find_weed
from kafka_s3_platform.operate.local.settings import HOST, StackSettings

logger = logging.getLogger(__name__)

# Java starts slowly on a busy machine. If a server stops, this is noticed at once, without this wait.
START_SECONDS = 120.0
POLL_SECONDS = 0.2
PROGRESS_SECONDS = 5.0

Server = Broker | SeaweedFS | SchemaRegistry


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One server: its process and its health. `detail` describes the fault, if there is one."""

    name: str
    running: bool
    pid: int | None
    healthy: bool
    detail: str | None


@dataclass(frozen=True, slots=True)
class StackStatus:
    """The addresses and credentials of the stack, and the status of its servers."""

    bootstrap_servers: str
    s3_endpoint: str
    aws_access_key_id: str
    aws_secret_access_key: str = field(repr=False)
    bucket: str
    data_dir: str
    servers: tuple[ServerStatus, ...]
    schema_registry_url: str | None = None
    """None if the registry was not started."""

    @property
    def healthy(self) -> bool:
        """True if all servers that should run answer correctly."""
        return all(server.healthy for server in self.servers)


def start_stack(settings: StackSettings) -> StackStatus:
    """Start the servers that do not run, and wait until all answer. Keep the data of earlier runs.

    Raises:
        ConfigError: a port is in use, Java or `weed` is missing, or the stack runs with other ports.
        PermanentError: a server stopped while starting.
        TransientError: a server did not answer in time, or Kafka could not be fetched.
    """
    # Before Kafka is fetched and started.
    find_weed()
    with lock_folder(settings.data_dir):
        start_servers(_list_servers(settings))
        SeaweedFS(settings).create_bucket()
    return read_stack_status(settings)


def start_registry(settings: StackSettings) -> StackStatus:
    """Start the Schema Registry, which `start_stack` leaves out, and wait for its answer. It stores nothing on disk.

    Raises the same errors as `start_stack`.
    """
    with lock_folder(settings.data_dir):
        start_servers((SchemaRegistry(settings),))
    return read_stack_status(settings)


def stop_stack(settings: StackSettings) -> tuple[str, ...]:
    """Stop the running servers and keep their data. Return their names."""
    with lock_folder(settings.data_dir):
        daemons = list_daemons(settings)
        # All get SIGTERM before the first wait, so that they end at the same time.
        running = [daemon for daemon in daemons if daemon.terminate()]
        for daemon in daemons:
            daemon.await_end()
    return tuple(daemon.name for daemon in running)


def read_stack_status(settings: StackSettings) -> StackStatus:
    """Read the status of the stack. Start and change nothing."""
    registry = SchemaRegistry(settings)
    return StackStatus(
        bootstrap_servers=settings.bootstrap_servers,
        s3_endpoint=settings.s3_endpoint,
        aws_access_key_id=settings.aws_access_key_id,
        aws_secret_access_key=settings.aws_secret_access_key,
        bucket=settings.bucket,
        data_dir=str(settings.data_dir),
        servers=tuple(_read_server_status(server) for server in _list_servers(settings)),
        schema_registry_url=settings.registry_url if registry.daemon.is_wanted else None,
    )


def list_daemons(settings: StackSettings) -> list[Daemon]:
    """List all processes the stack may have, including the registry's. Start nothing."""
    return [server.daemon for server in (Broker(settings), SeaweedFS(settings), SchemaRegistry(settings))]


def _list_servers(settings: StackSettings) -> tuple[Server, ...]:
    """List the servers that should run. The registry is one of them if it was started."""
    registry = SchemaRegistry(settings)
    return Broker(settings), SeaweedFS(settings), *([registry] if registry.daemon.is_wanted else [])


def start_servers(servers: tuple[Server, ...]) -> None:
    """Start the servers that do not run, and wait until all answer. Raise the same errors as `start_stack`."""
    stopped = [server for server in servers if server.daemon.process() is None]
    taken_ports: list[str] = []
    for server in servers:
        if server in stopped:
            taken_ports += server.daemon.find_taken_ports()
        else:
            server.daemon.refuse_other_ports()
    if taken_ports:
        raise ConfigError(
            f"cannot start: other processes use ports of {HOST}: {', '.join(taken_ports)}. End them, or choose other "
            f"ports with these variables; `kafka-s3 doctor` names the processes"
        )
    for server in stopped:
        logger.info("starting %s in %s", server.daemon.name, server.daemon.folder)
        server.start()
    for server in servers:
        await_server(server)


def await_server(server: Server) -> None:
    """Wait until the server answers. Raise PermanentError if it has stopped, TransientError if it takes too long."""
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


def _read_server_status(server: Server) -> ServerStatus:
    """Read the state of the server's process, and check its answers. Change nothing."""
    name = server.daemon.name
    process = server.daemon.process()
    if process is None:
        return ServerStatus(name, running=False, pid=None, healthy=False, detail="not running")
    try:
        server.daemon.refuse_other_ports()
        server.check()
    except PlatformError as err:
        return ServerStatus(name, running=True, pid=process.pid, healthy=False, detail=str(err))
    return ServerStatus(name, running=True, pid=process.pid, healthy=True, detail=None)
