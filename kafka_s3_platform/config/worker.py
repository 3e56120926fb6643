"""worker.properties: the cluster, and how its clients connect, read and write."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from kafka_s3_platform.config.clients import CLIENT_KEYS, Scope, client_properties, security_of
from kafka_s3_platform.config.converter_options import is_known
from kafka_s3_platform.config.keys import (
    WORKER_HONOURED_KEYS,
    WORKER_WITHOUT_MEANING_KEYS,
)
from kafka_s3_platform.config.parse import read_properties
from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.config.sheet import Finding, Sheet
from kafka_s3_platform.config.table import Key, KeyTable, Support
from kafka_s3_platform.config.values import bootstrap_servers


@dataclass(frozen=True)
class Worker:
    """What worker.properties says. `properties` holds librdkafka's, by scope; `common` are those of every client.

    `converters` are the keys of the converters for connectors that name none, judged where they are used.
    """

    path: Path
    exists: bool
    bootstrap_servers: str
    properties: Mapping[Scope, Mapping[str, SecretStr]]
    findings: tuple[Finding, ...]
    converters: Mapping[str, SecretStr] = field(default_factory=dict)


def cluster_of(worker: Worker) -> KafkaSettings:
    """The cluster that a worker file by itself declares. Admin clients connect as consumers do."""
    own = worker.properties
    return KafkaSettings(
        bootstrap_servers=worker.bootstrap_servers,
        common=own["common"],
        consumer=own["consumer"],
        producer=own["producer"],
        admin={**security_of(own["consumer"]), **own["admin"]},
    )


class _WorkerKeys(KeyTable):
    """The worker's own keys; every other key is a property of all clients."""

    def find(self, name: str) -> Key | None:
        found = super().find(name)
        if found is None and CLIENT_KEYS.find(name) is not None:
            return Key(name, Support.HONOURED, "A property of every client.")
        return found

    def nearest(self, name: str) -> str | None:
        return super().nearest(name) or CLIENT_KEYS.nearest(name)


WORKER_KEYS = _WorkerKeys((*WORKER_HONOURED_KEYS, *WORKER_WITHOUT_MEANING_KEYS))

_PREFIXES: Mapping[Scope, str] = {"consumer": "consumer.", "producer": "producer.", "admin": "admin."}
_CONVERTERS = ("key.converter", "value.converter", "header.converter")


def load_worker(path: Path, env: Mapping[str, str]) -> Worker:
    """Reads worker.properties. A file that is not there declares no cluster; refused keys are findings, not errors.

    Raises:
        ConfigError: the file cannot be read or parsed.
    """
    exists = path.exists()
    entries = read_properties(path) if exists else {}
    sheet = Sheet(WORKER_KEYS, entries, env)
    servers = sheet.read("bootstrap.servers", bootstrap_servers, "")
    properties: dict[Scope, dict[str, SecretStr]] = {}
    for scope, prefix in _PREFIXES.items():
        properties[scope] = _scope(sheet, scope, prefix)
    properties["common"] = _common(sheet)
    converters = _converters(sheet)
    return Worker(path, exists, servers, properties, tuple(sheet.findings()), converters)


def _converters(sheet: Sheet) -> dict[str, SecretStr]:
    entries = {name: value for name, value in sheet.under("").items() if name.startswith(_CONVERTERS)}
    sheet.show(name for name in entries if is_known(name.split(".converter.")[-1]))
    return {name: SecretStr(value) for name, value in entries.items()}


def _scope(sheet: Sheet, scope: Scope, prefix: str) -> dict[str, SecretStr]:
    outcome = client_properties(sheet.under(prefix), scope)
    sheet.take(prefix, outcome)
    return {name: SecretStr(value) for name, value in outcome.properties.items()}


def _common(sheet: Sheet) -> dict[str, SecretStr]:
    prefixes = (*_PREFIXES.values(), *_CONVERTERS)
    entries = {
        name: value
        for name, value in sheet.under("").items()
        if name != "bootstrap.servers" and not name.startswith(prefixes)
    }
    outcome = client_properties(entries, "common")
    sheet.take("", outcome)
    return {name: SecretStr(value) for name, value in outcome.properties.items()}
