"""The settings of a connector, from its file and worker.properties, as typed values.

Each part is declared in `config.keys`, beside its keys, and other rooms import it from here. All settings
are immutable and picklable, because Spark tasks carry them. Secrets are `SecretStr`, so no repr, log or page shows
them.
"""

from collections.abc import Iterable

from pydantic import Field, PositiveInt

from kafka_s3_platform.config.keys.archive import ArchiveSettings
from kafka_s3_platform.config.keys.converters import ConverterSettings, RegistrySettings
from kafka_s3_platform.config.keys.credentials import ProviderSettings, RoleSettings
from kafka_s3_platform.config.keys.general import TASKS_MAX, KafkaSettings
from kafka_s3_platform.config.keys.layout import LayoutSettings
from kafka_s3_platform.config.keys.records import ErrorSettings, RecordSettings
from kafka_s3_platform.config.keys.source import THAW_TIERS, SourceSettings, ThawTier
from kafka_s3_platform.config.keys.store import StoreSettings
from kafka_s3_platform.config.keys.table import Settings
from kafka_s3_platform.config.keys.transforms import PredicateSettings, TransformSettings
from kafka_s3_platform.java.regex import compile_java_regex

__all__ = (
    "THAW_TIERS",
    "ArchiveSettings",
    "ConnectorConfig",
    "ConverterSettings",
    "ErrorSettings",
    "KafkaSettings",
    "LayoutSettings",
    "PredicateSettings",
    "ProviderSettings",
    "RecordSettings",
    "RegistrySettings",
    "RoleSettings",
    "Settings",
    "SourceSettings",
    "StoreSettings",
    "ThawTier",
    "TransformSettings",
    "list_letter_topics",
    "match_topics",
)


class ConnectorConfig(Settings):
    """A connector file, resolved. For a source connector, `source` is set, and empty `topics` mean all topics."""

    name: str
    topics: tuple[str, ...]
    topics_regex: str | None = None
    others_dead_letters: frozenset[str] = frozenset()
    """Dead letter topics of the connectors of the folder. `topics_regex` does not match them."""

    tasks_max: PositiveInt = TASKS_MAX.field
    kafka: KafkaSettings
    store: StoreSettings
    layout: LayoutSettings
    records: RecordSettings = Field(default_factory=RecordSettings)
    archive: ArchiveSettings
    source: SourceSettings | None = None
    reader: "ConnectorConfig | None" = None
    """Of a sink whose objects only a listing of the bucket reads back: its file as that of a source. Else None."""

    unreadable: tuple[str, ...] = ()
    """Why the file of such a sink is none of a source, by its keys."""

    unnamed_topics: str = ""
    """Of the reader of a sink: why nothing tells by which topics its routers name its objects. Empty: `topics` do."""

    @property
    def restore_store(self) -> StoreSettings:
        """The store for plans, progress and reports of restores: the archive's bucket, or a bucket of their own."""
        bucket = self.archive.restore_bucket
        if bucket is None:
            return self.store
        return self.store.model_copy(update={"bucket": bucket})


INTERNAL = "__"
"""The start of the names of Kafka's own topics (`__consumer_offsets`). No pattern matches them; `topics` may name them.
"""


def match_topics(config: ConnectorConfig, topics: Iterable[str]) -> tuple[str, ...]:
    """Return the `topics` that fully match the connector's `topics.regex`, sorted. None match without a regex.

    Internal topics and the dead letter topics of all connectors are left out: two connectors archiving each other's
    letters would make letters of letters, for ever.
    """
    return tuple(topic for topic in _match_all(config, topics) if not _is_of_letters(config, topic))


def list_letter_topics(config: ConnectorConfig, topics: Iterable[str]) -> tuple[str, ...]:
    """Return the matching topics left out as dead letter topics."""
    return tuple(topic for topic in _match_all(config, topics) if _is_of_letters(config, topic))


def _match_all(config: ConnectorConfig, topics: Iterable[str]) -> list[str]:
    if config.topics_regex is None:
        return []
    pattern = compile_java_regex(config.topics_regex)
    return sorted(t for t in set(topics) if pattern.fullmatch(t) and not t.startswith(INTERNAL))


def _is_of_letters(config: ConnectorConfig, topic: str) -> bool:
    return topic == config.records.errors.dead_letter_topic or topic in config.others_dead_letters
