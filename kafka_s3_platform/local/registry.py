"""One Apicurio Registry, which offers the API of Confluent's Schema Registry. It keeps schemas in memory only."""

import http.client
import json
from contextlib import closing
from dataclasses import dataclass

from kafka_s3_platform.errors import RegistryUnavailableError
from kafka_s3_platform.java.runtime import find_java
from kafka_s3_platform.local.processes import Daemon, make_private_folder
from kafka_s3_platform.local.registry_app import fetch_registry_app
from kafka_s3_platform.local.settings import HOST, REGISTRY_PATH, StackSettings

# It stores nothing, so killing it loses nothing.
STOP_SECONDS = 5.0
CHECK_SECONDS = 5.0
JVM_OPTIONS = (
    "-Xmx160m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
)


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """The registry with its log in `<data dir>/registry`."""

    settings: StackSettings

    @property
    def daemon(self) -> Daemon:
        ports = {"registry_port": self.settings.registry_port}
        return Daemon("registry", self.settings.data_dir / "registry", ports, STOP_SECONDS)

    def start(self) -> None:
        """Fetch the registry if it is missing, and start it. Do not wait for it."""
        folder = make_private_folder(self.daemon.folder)
        quarkus = {
            "http.host": HOST,
            "http.port": self.settings.registry_port,
            "http.access-log.enabled": "false",
            "log.level": "WARN",
        }
        options = [f"-Dquarkus.{name}={value}" for name, value in quarkus.items()]
        java = [str(find_java()), *JVM_OPTIONS, f"-Djava.io.tmpdir={folder}", *options]
        self.daemon.start([*java, "-jar", fetch_registry_app(self.settings.cache)], env={})

    def check(self) -> None:
        """Request the subjects.

        Raises:
            RegistryUnavailableError: there is no answer, or it is not the answer of a registry.
        """
        where = f"Schema Registry at {self.settings.registry_url}"
        try:
            with closing(http.client.HTTPConnection(HOST, self.settings.registry_port, timeout=CHECK_SECONDS)) as asked:
                asked.request("GET", f"{REGISTRY_PATH}/subjects")
                answer = asked.getresponse()
                subjects = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as err:
            raise RegistryUnavailableError(f"{where} does not answer: {err}") from err
        if answer.status != http.client.OK or not isinstance(subjects, list):
            raise RegistryUnavailableError(f"{where} answers with HTTP status {answer.status}")
