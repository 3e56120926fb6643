"""Fetches Apicurio Registry's application, and checks it against a recorded digest."""

import hashlib
import tarfile
from pathlib import Path

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.local.ivy import Download

ORGANISATION = "io.apicurio"
MODULE = "apicurio-registry-app"
# The last release line whose classes Java 17 can load: 3.3 needs Java 21.
VERSION = "3.0.9"
DIGEST = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"

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
# The archive holds all that it needs. So POMs are ignored: mirrors may lack those of the parents.
SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


def fetch_registry_app(cache: Path) -> Path:
    """Return the application's jar below `cache`. Fetch it if it is missing.

    Raises:
        TransientError: it could not be fetched.
        IntegrityError: the fetched archive differs from the recorded one.
    """
    return _DOWNLOAD.folder(cache) / f"{MODULE}-{VERSION}-runner.jar"


def _write_ivy_options(folder: Path) -> list[str]:
    ivy = folder / "ivy.xml"
    settings = folder / "ivysettings.xml"
    ivy.write_text(IVY)
    settings.write_text(SETTINGS)
    return ["-settings", str(settings), "-ivy", str(ivy)]


def _unpack_app(libs: Path) -> Path:
    archive = libs / f"{MODULE}-{VERSION}.tar.gz"
    if hashlib.sha256(archive.read_bytes()).hexdigest() != DIGEST:
        raise IntegrityError(
            f"{ORGANISATION}:{MODULE}:{VERSION} differs from what was recorded; a mirror that alters it cannot be used"
        )
    with tarfile.open(archive) as packed:
        packed.extractall(libs / "app", filter="data")
    return libs / "app"


_DOWNLOAD = Download(
    name=f"{MODULE}-{VERSION}",
    title=f"Apicurio Registry {VERSION} (109 MB)",
    coordinates=f"{ORGANISATION}:{MODULE}:{VERSION}",
    ivy_options=_write_ivy_options,
    finish=_unpack_app,
)
