"""Fetches Apicurio Registry's application, and checks it against a recorded digest."""

import hashlib
import tarfile
from pathlib import Path

from kafka_s3_platform.local.ivy import Download, hash_files

ORGANISATION = "io.apicurio"
MODULE = "apicurio-registry-app"
# The last release line whose classes Java 17 can load: 3.3 needs Java 21.
VERSION = "3.0.9"
# Of the lines that `find -type f | sort | xargs sha256sum` prints of the unpacked application, without `./`.
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
        IntegrityError: the files differ from the recorded ones.
    """
    return _DOWNLOAD.folder(cache) / f"{MODULE}-{VERSION}-runner.jar"


def _write_ivy_options(folder: Path) -> list[str]:
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
