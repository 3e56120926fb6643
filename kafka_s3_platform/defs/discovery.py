"""Topics of connectors with `topics.regex`: found at Kafka, remembered in a file, recalled when definitions load.

Definitions are loaded by every process of Dagster, whether or not Kafka answers, so that they only read the file. The
topics sensor and the commands ask Kafka and write it.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.config.topics import matching
from kafka_s3_platform.errors import PlatformError, TransientError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.store.objects import ObjectStore

logger = logging.getLogger(__name__)

BROKER_SECONDS = 5.0
FIRST_LOOK_SECONDS = 0.5
"""How long loading waits for Kafka where no topic is remembered yet; what comes later is remembered for the next."""


@dataclass(frozen=True)
class FoundTopics:
    """Topics that the connector's pattern matches: all that were ever found, and those of them not at Kafka any more.

    A topic that is gone stays, since its archive does.
    """

    topics: tuple[str, ...]
    gone: tuple[str, ...] = ()


def topics_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Where found topics are remembered: in Dagster's home, or in the `.dagster` here that is used without one."""
    return Path(env.get("DAGSTER_HOME") or ".dagster") / "kafka_s3_topics"


def look(config: ConnectorConfig, folder: Path) -> FoundTopics:
    """Ask Kafka which topics match now, and the store which ones were archived; remember the answer.

    Raises the errors of Kafka's room, and OSError where the answer cannot be remembered.
    """
    with ClusterAdmin(config.kafka, BROKER_SECONDS) as admin:
        present = matching(config, admin.topics())
    topics = matching(config, {*present, *recall(config, folder).topics, *_archived(config)})
    found = FoundTopics(topics, tuple(t for t in topics if t not in present))
    if found != recall(config, folder):
        _write(folder, config, found)
    return found


def recall(config: ConnectorConfig, folder: Path) -> FoundTopics:
    """What is remembered, as far as the pattern of now matches it; nothing where nothing is."""
    try:
        known = json.loads(_file(folder, config).read_text())
        topics, gone = matching(config, known["topics"]), matching(config, known["gone"])
    except FileNotFoundError:
        return FoundTopics(())
    except (OSError, ValueError, KeyError, TypeError) as err:
        logger.warning("%s cannot be read, so its topics are looked up anew: %s", _file(folder, config), err)
        return FoundTopics(())
    return FoundTopics(topics, gone)


def resolved_from_memory(connectors: Sequence[ConnectorConfig], folder: Path) -> tuple[ConnectorConfig, ...]:
    """The connectors with their remembered topics. Waits FIRST_LOOK_SECONDS at most, and only for the very first look.

    A connector whose topics are not known stays without any: the topics sensor goes on looking.
    """
    _look_first([c for c in connectors if c.topics_regex is not None and not _file(folder, c).exists()], folder)
    return tuple(with_topics(c, recall(c, folder).topics) if c.topics_regex is not None else c for c in connectors)


def resolved_now(config: ConnectorConfig, folder: Path) -> ConnectorConfig:
    """The connector with the topics that match now, for a command. Those remembered where Kafka does not answer.

    Raises the errors of Kafka's room where none is remembered.
    """
    if config.topics_regex is None:
        return config
    try:
        found = look(config, folder)
    except TransientError as err:
        found = recall(config, folder)
        if not found.topics:
            raise
        logger.warning("connector %s: its topics are those known from before: %s", config.name, err)
    return with_topics(config, found.topics)


def gone_topics(config: ConnectorConfig, folder: Path) -> frozenset[str]:
    """Topics that were not at Kafka any more when it was last asked; none of a connector that names its topics."""
    return frozenset(recall(config, folder).gone) if config.topics_regex is not None else frozenset()


def with_topics(config: ConnectorConfig, topics: Iterable[str]) -> ConnectorConfig:
    """The connector as if it named these topics."""
    return config.model_copy(update={"topics": tuple(topics)})


def _look_first(connectors: Sequence[ConnectorConfig], folder: Path) -> None:
    deadline = time.monotonic() + FIRST_LOOK_SECONDS
    threads = [threading.Thread(target=_try_look, args=(c, folder), daemon=True) for c in connectors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _try_look(config: ConnectorConfig, folder: Path) -> None:
    try:
        look(config, folder)
    except (PlatformError, OSError) as err:
        logger.warning("connector %s: its topics are not known yet: %s", config.name, err)
    except Exception:
        logger.exception("connector %s: its topics are not known yet", config.name)


def _archived(config: ConnectorConfig) -> list[str]:
    """Topics that have an index: what is remembered may have been lost with the machine it was on."""
    prefix = f"{config.archive.index_dir}/{config.name}/"
    try:
        return [p.removeprefix(prefix).rstrip("/") for p in ObjectStore(config.store).list_prefixes(prefix)]
    except PlatformError as err:
        logger.warning("connector %s: which topics it has archived is not known: %s", config.name, err)
        return []


def _file(folder: Path, config: ConnectorConfig) -> Path:
    return folder / f"{config.name}.json"


def _write(folder: Path, config: ConnectorConfig, found: FoundTopics) -> None:
    """Whole or not at all: others may read at any time."""
    folder.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=folder, suffix=".tmp", delete=False) as file:
        json.dump(asdict(found), file, indent=2)
    Path(file.name).replace(_file(folder, config))
