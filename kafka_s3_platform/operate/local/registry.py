"""Runs one Apicurio Registry, with the API of Confluent's Schema Registry. It keeps schemas only in memory.

The application is fetched once, and checked against a recorded digest.
"""

import hashlib
import http.client
import json
import tarfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kafka_s3_platform.core.errors import RegistryUnavailableError
from kafka_s3_platform.core.folders import make_private_folder
from kafka_s3_platform.core.java.runtime import find_java
from kafka_s3_platform.operate.local.ivy import Download, hash_files
from kafka_s3_platform.operate.local.processes import Daemon
from kafka_s3_platform.operate.local.settings import HOST, REGISTRY_PATH, StackSettings

ORGANISATION = "io.apicurio"
MODULE = "apicurio-registry-app"
# The last release line whose classes Java 17 can load: 3.3 needs Java 21.
VERSION = "3.0.9"
# The digest of the lines `find -type f | sort | xargs sha256sum` prints for the unpacked application, without `./`.
DIGEST = "3a7ddf6944bff83e0d2cfc2b7fcf15f8c57db41759ddba457718253ccc258807"

# A file, because Ivy's command line cannot name a classifier.
IVY = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="kafka-s3-platform" module="registry"/>
  <dependencies>
    <dependency org="{ORGANISATION}" name="{MODULE}" rev="{VERSION}" transitive="false">
      <artifact name="{MODULE}" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
# The archive holds everything it needs. So POMs are ignored, because mirrors may lack the parents' POMs.
SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


def fetch_registry_app(cache: Path) -> Path:
    """Return the application's jar below `cache`, fetched if missing. IntegrityError: it is not the expected one."""
    return _DOWNLOAD.folder(cache) / f"{MODULE}-{VERSION}-runner.jar"


def _write_ivy_options(folder: Path) -> list[str]:
    """Write Ivy's settings and its list of files to fetch. Return the options that name both files."""
    ivy = folder / "ivy.xml"
    settings = folder / "ivysettings.xml"
    ivy.write_text(IVY)
    settings.write_text(SETTINGS)
    return ["-settings", str(settings), "-ivy", str(ivy)]


def _unpack_app(libs: Path) -> Path:
    with tarfile.open(libs / f"{MODULE}-{VERSION}.tar.gz") as packed:
        packed.extractall(libs / "app", filter="data")
    return libs / "app"


def _compare_digest(app: Path) -> list[str]:
    files = "".join(f"{digest}  {name}\n" for name, digest in sorted(hash_files(app).items()))
    return [] if hashlib.sha256(files.encode()).hexdigest() == DIGEST else ["some of the application"]


_DOWNLOAD = Download(
    name=f"{MODULE}-{VERSION}",
    title=f"Apicurio Registry {VERSION} (109 MB)",
    coordinates=f"{ORGANISATION}:{MODULE}:{VERSION}",
    ivy_options=_write_ivy_options,
    list_differences=_compare_digest,
    unpack=_unpack_app,
)


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
        """Ask for the subjects. Raise RegistryUnavailableError if no registry answers."""
        where = f"Schema Registry at {self.settings.registry_url}"
        try:
            with closing(
                http.client.HTTPConnection(HOST, self.settings.registry_port, timeout=CHECK_SECONDS)
            ) as connection:
                connection.request("GET", f"{REGISTRY_PATH}/subjects")
                answer = connection.getresponse()
                subjects = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as err:
            raise RegistryUnavailableError(f"{where} does not answer: {err}") from err
        if answer.status != http.client.OK or not isinstance(subjects, list):
            raise RegistryUnavailableError(f"{where} answers with HTTP status {answer.status}")
