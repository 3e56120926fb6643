"""Reloads the code location whenever a connector file changes: the code server reads the files only when it loads.

    python -m kafka_s3_platform.instance.watch SOCKET

SOCKET is that of `dagster code-server start`. Runs under way go on. The webserver asks the code server each
second whether it was reloaded, the daemon each minute.
"""

import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._grpc.client import DagsterGrpcClient

from kafka_s3_platform.config.files import find_connectors_folder, hash_connector_files

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
RELOAD_SECONDS = 300
"""How long loading may take: each connector with `topics.regex` may ask Kafka, and files may be many."""


@dataclass
class Watch:
    """Looks at the files of a folder. `reload` raises OSError if the code server does not answer."""

    folder: Path
    reload: Callable[[], None]
    _loaded: str | None = None
    """What the code server has read. Not known at first."""

    _seen: str | None = None

    def look(self) -> None:
        """Reload if the files differ from what was loaded, and are the same as at the last look.

        Files that somebody is still copying are left for the next look.
        """
        now = hash_connector_files(self.folder)
        settled = now == self._seen
        self._seen = now
        if not settled or now == self._loaded:
            return
        try:
            self.reload()
        except OSError as err:
            logger.warning("the connector files changed, but the code server cannot be told; trying again: %s", err)
            return
        logger.info("the code server has read %s", self.folder)
        self._loaded = now


def reload_server(socket: str) -> None:
    """Let the code server read everything again.

    Raises:
        ConnectionError: it does not answer.
    """
    try:
        DagsterGrpcClient(socket=socket).reload_code(timeout=RELOAD_SECONDS)
    except (DagsterUserCodeUnreachableError, grpc.RpcError) as err:
        raise ConnectionError(f"{socket}: {err}") from err


def main() -> None:
    """Watch the folder for ever."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    [socket] = sys.argv[1:]
    watch = Watch(find_connectors_folder(os.environ), lambda: reload_server(socket))
    while True:
        watch.look()
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main()
