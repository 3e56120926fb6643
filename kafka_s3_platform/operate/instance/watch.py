"""Reloads the code location when a connector file changes, because the code server reads the files only when it loads.

    python -m kafka_s3_platform.operate.instance.watch SOCKET

SOCKET is the socket of `dagster code-server start`. Runs under way go on. The webserver notices a reload within a
second, the daemon within a minute.
"""

import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import grpc
from dagster._grpc.client import DagsterGrpcClient

from kafka_s3_platform.core.config.folder import find_connectors_folder, hash_connector_files

logger = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
RELOAD_SECONDS = 300
"""The longest time of loading. Each connector with `topics.regex` may ask Kafka, and there may be many files."""


@dataclass
class Watch:
    """Watches the files of a folder. `reload` raises OSError if the code server does not answer."""

    folder: Path
    reload: Callable[[], None]
    _loaded: str | None = None
    """The hash of the files the code server has read. It is unknown at first."""

    _last_hash: str | None = None

    def check(self) -> None:
        """Reload if the files differ from the loaded ones, and have not changed since the last check.

        Files still being copied are left for the next check.
        """
        current_hash = hash_connector_files(self.folder)
        is_stable = current_hash == self._last_hash
        self._last_hash = current_hash
        if not is_stable or current_hash == self._loaded:
            return
        try:
            self.reload()
        except OSError as err:
            logger.warning("the connector files changed, but the code server does not answer; trying again: %s", err)
            return
        logger.info("the code server has read %s", self.folder)
        self._loaded = current_hash


def reload_server(socket: str) -> None:
    """Make the code server read everything again. Raise ConnectionError if it does not answer."""
    try:
        DagsterGrpcClient(socket=socket).reload_code(timeout=RELOAD_SECONDS)
    except (dg.DagsterError, grpc.RpcError) as err:
        raise ConnectionError(f"{socket}: {err}") from err


def main() -> None:
    """Watch the folder for ever."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    [socket] = sys.argv[1:]
    watch = Watch(find_connectors_folder(os.environ), lambda: reload_server(socket))
    while True:
        watch.check()
        time.sleep(CHECK_SECONDS)


if __name__ == "__main__":
    main()
