"""The folder of connector files: where it is, and which files are in it."""

import hashlib
import os
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.extensions import load_extensions

FOLDER_VARIABLE = environment.CONNECTORS
WORKER_FILE = "worker.properties"
FOLDER_OF_RUNS = "restore"
"""A folder inside the folder of connector files. It holds properties files that the config of a run may name."""


def find_connectors_folder(env: Mapping[str, str]) -> Path:
    """Return the folder of connector files: `./connectors`, or the value of `KAFKA_S3_CONNECTORS`."""
    return Path(env.get(FOLDER_VARIABLE) or "connectors")


def list_connector_files(folder: Path) -> tuple[Path, ...]:
    """Return the connector files of a folder, by the ends of their names, but not worker.properties or hidden files."""
    return tuple(
        path
        for path in sorted(folder.iterdir())
        if path.suffix in {".json", ".yaml", ".yml", ".properties"}
        and path.name != WORKER_FILE
        and not path.name.startswith(".")
    )


def hash_connector_files(folder: Path) -> str:
    """Return a digest of the names and contents of the connector files and of worker.properties, as far as they exist.

    Content that they name elsewhere, such as a secret, counts too.
    """
    digest = hashlib.sha256()
    listers = [open_lister(folder) for open_lister in load_extensions("list_outside_values")]
    try:
        files = list_connector_files(folder)
    except OSError:
        # a mount that comes and goes; the code location says that the folder is missing
        files = ()
    for path in [*files, folder / WORKER_FILE]:
        try:
            content = path.read_bytes()
        except OSError:
            # gone since it was listed, or not there at all
            continue
        # a name need not be UTF-8
        digest.update(b"%b\0%d\0" % (os.fsencode(path.name), len(content)))
        digest.update(content)
        text = content.decode(errors="replace")
        for value in chain.from_iterable(list_values(text) for list_values in listers):
            digest.update(hashlib.sha256(value.encode()).digest())
    return digest.hexdigest()


def find_run_file(name: str, key: str, env: Mapping[str, str]) -> Path:
    """Return the properties file named by `key` of a run's config, from the folder `restore` of connector files.

    Users of the UI may choose a file of that folder, and cannot read any other file.

    Raises:
        ConfigError: the name is a path, or there is no such file, or it is a link out of the folder.
    """
    folder = find_connectors_folder(env) / FOLDER_OF_RUNS
    names = sorted(path.name for path in folder.glob("*.properties") if _is_run_file(path, folder))
    if name not in names:
        raise ConfigError(
            f"{key} {name!r} is no file of {folder}: a run may name one of its *.properties files, without a path "
            f"(there are: {', '.join(names) or 'none'}). Put the file there, or run `kafka-s3 restore` on the machine, "
            f"which takes paths"
        )
    return folder / name


def _is_run_file(path: Path, folder: Path) -> bool:
    """Return True if a run may name the file. It may be a link, as in a ConfigMap, but not one out of the folder."""
    return path.is_file() and not path.name.startswith(".") and path.resolve().is_relative_to(folder.resolve())
