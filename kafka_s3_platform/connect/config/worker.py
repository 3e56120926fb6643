"""Reads worker.properties: the cluster, and how its clients connect, read and write."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from kafka_s3_platform.connect.config.config_providers import DECLARATION, ConfigProviders
from kafka_s3_platform.connect.config.keys.clients import CLIENT_KEYS, Scope, translate_properties
from kafka_s3_platform.connect.config.keys.config_file import ConfigFile, KeyFinding
from kafka_s3_platform.connect.config.keys.converters import is_known_option
from kafka_s3_platform.connect.config.keys.table import (
    REQUIRED,
    Key,
    KeyTable,
    Support,
    declare_honoured,
    declare_key,
    declare_without_meaning,
)
from kafka_s3_platform.connect.config.keys.values import parse_bootstrap_servers
from kafka_s3_platform.core.config.parse import read_properties


@dataclass(frozen=True)
class Worker:
    """The content of worker.properties. `properties` are librdkafka's, by scope; `common` is for every client.

    `converters` are the keys of the default converters. They are judged when a connector uses them. `providers` replace
    the variables in the files of its connectors.
    """

    path: Path
    exists: bool
    bootstrap_servers: str
    properties: Mapping[Scope, Mapping[str, SecretStr]]
    findings: tuple[KeyFinding, ...]
    converters: Mapping[str, SecretStr] = field(default_factory=dict)
    providers: ConfigProviders = field(default_factory=lambda: ConfigProviders({}))


NO_LICENCE = "No licence is needed, and no topic that stores one."

BOOTSTRAP_SERVERS = declare_key(
    "bootstrap.servers",
    parse_bootstrap_servers,
    "The cluster's brokers as `host:port`, separated by commas.",
    default="",
    shown=REQUIRED,
)

WORKER_HONOURED_KEYS = (
    BOOTSTRAP_SERVERS,
    declare_honoured("value.converter", "Value converter of connectors that name none."),
    declare_honoured("key.converter", "Key converter of connectors that name none."),
    *(
        declare_honoured(
            f"{side}.converter.*",
            "An option of that converter. As in Connect, it does not apply to connectors that name a converter"
            " themselves.",
        )
        for side in ("value", "key")
    ),
    declare_honoured("header.converter", "Header converter of source connectors that name none."),
    declare_honoured(
        DECLARATION,
        "Names of [config providers](#secrets), separated by commas: `${name:path:key}` in a value is replaced by one."
        " `${env:NAME}` needs none.",
    ),
    declare_honoured(f"{DECLARATION}.*", "`<name>.class` is the class of a provider, `<name>.param.*` its parameters."),
    declare_honoured("consumer.*", "A property of the consumers that read topics."),
    declare_honoured("producer.*", "A property of the producers that restore topics."),
    declare_honoured("admin.*", "A property of the admin clients that look up offsets and create topics."),
)

WORKER_WITHOUT_MEANING_KEYS = (
    *declare_without_meaning(
        "Workers form no group here: the index holds the state, and Dagster runs the work.",
        """group.id session.timeout.ms heartbeat.interval.ms rebalance.timeout.ms worker.sync.timeout.ms
        worker.unsync.backoff.ms scheduled.rebalance.max.delay.ms connect.protocol inter.worker.*
        config.storage.* offset.storage.* status.storage.* offset.flush.* task.shutdown.graceful.timeout.ms
        exactly.once.source.support topic.tracking.enable topic.tracking.allow.reset""",
    ),
    *declare_without_meaning("A restore creates its topic only with `--create-topic`.", "topic.creation.enable"),
    *declare_without_meaning(
        "There is no Connect REST interface here.",
        """listeners listeners.https.* rest.* admin.listeners admin.listeners.* access.control.allow.origin
        access.control.allow.methods response.http.headers.config""",
    ),
    *declare_without_meaning("No Java plugin is loaded.", "plugin.path plugin.discovery"),
    *declare_without_meaning("No converter reads header values: each comes back with its bytes.", "header.converter.*"),
    *declare_without_meaning(
        "Connect's own state is not kept.",
        "internal.key.converter internal.value.converter internal.key.converter.* internal.value.converter.*",
    ),
    *declare_without_meaning(
        "Connectors may override any property that is honoured.", "connector.client.config.override.policy"
    ),
    *declare_without_meaning(NO_LICENCE, "confluent.*"),
    *declare_without_meaning(
        "Metrics of a Java client.",
        "metric.reporters metrics.context.* metrics.num.samples metrics.recording.level metrics.sample.window.ms",
    ),
)


class _WorkerKeys(KeyTable):
    """The worker's own keys. Every other key is a property of all clients."""

    def find(self, name: str) -> Key | None:
        """Return the worker's own key of this name. Any other key is a client property, if Kafka's clients have it."""
        key = super().find(name)
        if key is None and CLIENT_KEYS.find(name) is not None:
            return Key(name, Support.HONOURED, "A property of every client.")
        return key

    def nearest(self, name: str) -> str | None:
        return super().nearest(name) or CLIENT_KEYS.nearest(name)


WORKER_KEYS = _WorkerKeys((*WORKER_HONOURED_KEYS, *WORKER_WITHOUT_MEANING_KEYS))

_PREFIXES: Mapping[Scope, str] = {"consumer": "consumer.", "producer": "producer.", "admin": "admin."}
_CONVERTERS = ("key.converter", "value.converter", "header.converter")


def load_worker(path: Path, env: Mapping[str, str]) -> Worker:
    """Read worker.properties. If there is no such file, no cluster is set. Refused keys are findings, not errors.

    Raises:
        ConfigError: the file cannot be read or parsed.
    """
    exists = path.exists()
    entries = read_properties(path) if exists else {}
    providers = ConfigProviders(env, entries)
    file = ConfigFile(WORKER_KEYS, entries, providers)
    for name, reason in providers.refusals.items():
        file.refuse(name, reason)
    file.mark_known(providers.known_keys)
    servers = file.value(BOOTSTRAP_SERVERS)
    properties: dict[Scope, dict[str, SecretStr]] = {}
    for scope, prefix in _PREFIXES.items():
        properties[scope] = read_scope(file, scope, prefix)
    properties["common"] = _read_common(file)
    converters = _read_converters(file)
    return Worker(path, exists, servers, properties, tuple(file.findings()), converters, providers)


def _read_converters(file: ConfigFile) -> dict[str, SecretStr]:
    """Read the default converters and their options without judging them, as each connector judges the ones it uses."""
    entries = {name: value for name, value in file.read_prefix("").items() if name.startswith(_CONVERTERS)}
    file.mark_known(name for name in entries if is_known_option(name.split(".converter.")[-1]))
    return {name: SecretStr(value) for name, value in entries.items()}


def read_scope(file: ConfigFile, scope: Scope, prefix: str) -> dict[str, SecretStr]:
    """Read librdkafka's properties of one kind of client, from the keys with this prefix."""
    outcome = translate_properties(file.read_prefix(prefix), scope)
    file.add_outcome(prefix, outcome)
    return {name: SecretStr(value) for name, value in outcome.properties.items()}


def _read_common(file: ConfigFile) -> dict[str, SecretStr]:
    """Read the properties of every client: the keys that have no prefix and are not the worker's own."""
    prefixes = (*_PREFIXES.values(), *_CONVERTERS, DECLARATION)
    entries = {
        name: value
        for name, value in file.read_prefix("").items()
        if name != BOOTSTRAP_SERVERS.name and not name.startswith(prefixes)
    }
    outcome = translate_properties(entries, "common")
    file.add_outcome("", outcome)
    return {name: SecretStr(value) for name, value in outcome.properties.items()}
