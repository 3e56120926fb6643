"""The archive of a Schema Registry: numbered documents beside the index, a new one whenever something has changed.

They are not rows of the index, because its rows are read with the plan of each hour, and a registry has many schemas
that no record names (docs/adr/0064).
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from kafka_s3_platform.connect.config.config_providers import replace_variables
from kafka_s3_platform.connect.config.keys.converters import read_converter
from kafka_s3_platform.connect.converters.registry import open_registry
from kafka_s3_platform.connect.converters.registry_contents import RegistryContents, name_registry
from kafka_s3_platform.connect.registries.read import read_contents
from kafka_s3_platform.core.config.parse import read_properties
from kafka_s3_platform.core.config.settings import ConnectorConfig, RegistrySettings
from kafka_s3_platform.core.errors import ConfigError, IntegrityError
from kafka_s3_platform.core.store.errors import PreconditionError
from kafka_s3_platform.core.store.objects import ObjectStore

FORMAT = 1
_NAME = re.compile(r"(\d{6,})\.json")


@dataclass(frozen=True)
class RegistryDocument:
    """A registry as it was first seen at `observed_at`. It did not change until the next document.

    `gone` are versions of earlier documents that this one lacks, even as deleted versions, each with the number of the
    last document that has it. The reason is unknown: somebody deleted them permanently, the login sees fewer subjects,
    or the registry has lost them.
    """

    key: str
    number: int
    observed_at: datetime
    contents: RegistryContents
    gone: tuple[tuple[str, int, int], ...] = ()


class RegistryArchive:
    """The documents of one registry of a connector, in a folder beside the connector's index.

    `url` is the registry's address, now or when its documents were written, or its name in their keys.
    """

    def __init__(self, config: ConnectorConfig, url: str) -> None:
        self._store = ObjectStore(config.store)
        self._parent = f"{config.archive.index_dir}/registry={config.name}/"
        self.folder = f"{self._parent}{name_registry(url)}/"

    def list_names(self) -> list[str]:
        """List the names of all registries whose documents the connector has."""
        return [prefix.removeprefix(self._parent).rstrip("/") for prefix in self._store.list_prefixes(self._parent)]

    def list_numbers(self) -> list[int]:
        """List the numbers of the documents, ascending."""
        names = (info.key.removeprefix(self.folder) for info in self._store.list(self.folder))
        return sorted(int(match[1]) for match in map(_NAME.fullmatch, names) if match)

    def write(self, contents: RegistryContents) -> tuple[RegistryDocument, bool]:
        """Return the document of the contents, and True if it is new. Unchanged contents keep their document."""
        while True:
            number = max(self.list_numbers(), default=0)
            newest = self.read(number) if number else None
            if newest and newest.contents == contents:
                return newest, False
            gone = _find_gone(newest, contents) if newest else ()
            document = RegistryDocument(self._key(number + 1), number + 1, datetime.now(timezone.utc), contents, gone)
            try:
                self._store.put_new(document.key, _encode(document))
            except PreconditionError:
                # Another run was quicker, and may have seen the same contents.
                continue
            return document, True

    def read(self, number: int) -> RegistryDocument:
        """Return the document with this number.

        Raises:
            NotFoundError: there is no such document.
            IntegrityError: somebody has changed it, or it was written by another version of the platform.
        """
        key = self._key(number)
        try:
            values = json.loads(self._store.get(key))
            digest = values.pop("digest")
            if values["format"] != FORMAT or digest != _digest(values):
                raise ValueError("its digest or its format is another one")
            contents = msgspec.convert(values["contents"], RegistryContents)
            gone = msgspec.convert(values["gone"], tuple[tuple[str, int, int], ...])
            return RegistryDocument(key, number, datetime.fromisoformat(values["observed_at"]), contents, gone)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as err:
            raise IntegrityError(
                f"{self._store.uri(key)} is no archived registry of this version: {err}. Somebody changed it, or"
                " another version wrote it. Delete it: the one before it counts then, and archiving writes a new one"
            ) from err

    def _key(self, number: int) -> str:
        """Return the key of the document with this number."""
        return f"{self.folder}{number:06}.json"


def archive_registry(config: ConnectorConfig, settings: RegistrySettings) -> tuple[RegistryDocument, bool]:
    """Read a registry, and archive its contents. Raise the errors of `read_contents` and of the store."""
    registry = open_registry(settings)
    return RegistryArchive(config, registry.url).write(read_contents(registry))


def choose_registry(config: ConnectorConfig, url: str | None) -> RegistrySettings:
    """Return the registry of a connector, or the one at this URL if the connector names several.

    Raises:
        ConfigError: the connector names none, none at this URL, or several and `url` is None.
    """
    registries: dict[str, RegistrySettings] = {
        open_registry(settings).url: settings for settings in config.records.registries
    }
    if not registries:
        raise ConfigError(
            f"connector {config.name} names no Schema Registry: its file says where one is by"
            " value.converter.schema.registry.url"
        )
    if url is None and len(registries) == 1:
        return next(iter(registries.values()))
    if url not in registries:
        raise ConfigError(f"connector {config.name} names {' and '.join(registries)}: choose one by --registry URL")
    return registries[url]


def read_registry_file(path: Path, env: Mapping[str, str]) -> RegistrySettings:
    """Read the address of a registry, its login and TLS, from a properties file with the keys of a converter.

    Raises:
        ConfigError: the file cannot be read, names a missing variable, has another key, or has no address.
    """
    properties = replace_variables(path, read_properties(path), env)
    settings, outcome = read_converter("AVRO", properties, schemas_enable=False)
    if outcome.refused or settings.registry is None:
        problems = "; ".join(f"{name}: {reason}" for name, reason in outcome.refused.items())
        raise ConfigError(f"{path} names no Schema Registry to restore to: {problems}")
    return settings.registry


def _find_gone(newest: RegistryDocument, contents: RegistryContents) -> tuple[tuple[str, int, int], ...]:
    """Return the versions of the newest document, or of earlier ones, that the contents lack."""
    numbers = {(subject, version): number for subject, version, number in newest.gone}
    numbers |= dict.fromkeys(newest.contents.versions, newest.number)
    present = contents.versions.keys() | {*contents.unreadable}
    return tuple((*place, numbers[place]) for place in sorted(numbers.keys() - present))


def _encode(document: RegistryDocument) -> bytes:
    """Return a document as JSON for the store, with a digest of its other values."""
    values = {
        "format": FORMAT,
        "observed_at": document.observed_at.isoformat(),
        "gone": document.gone,
        "contents": asdict(document.contents),
    }
    return json.dumps({"digest": _digest(values), **values}, indent=1).encode()


def _digest(values: object) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
