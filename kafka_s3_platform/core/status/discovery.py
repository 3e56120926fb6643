"""Asks Kafka for the topics of connectors with `topics.regex`, and remembers them in files in Dagster's home.

Every process of Dagster loads the definitions, even if Kafka does not answer. So loading only reads a file. The topics
sensor and the commands ask Kafka and write it. For a source connector, the folder sensor writes the topics with
objects.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from kafka_s3_platform.core.config.settings import (
    ConnectorConfig,
    compile_topic_filter,
    list_letter_topics,
    match_topics,
)
from kafka_s3_platform.core.errors import PlatformError, TransientError
from kafka_s3_platform.core.folders import replace_file
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.store.index import ConnectorIndex

logger = logging.getLogger(__name__)

R = TypeVar("R")


def find_memory(name: str, env: Mapping[str, str] = os.environ) -> Path:
    """Return the folder `name` for this platform's remembered files, in Dagster's home or in `.dagster`."""
    return Path(env.get("DAGSTER_HOME") or ".dagster") / name


def write_remembered(path: Path, document: Any) -> None:
    """Write a JSON file as a whole or not at all, since other processes may read it at any time. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(document, indent=2))


def read_remembered(path: Path, parse: Callable[[Any], R], consequence: str) -> R | None:
    """Return the result of `parse` on the JSON in a file of `write_remembered`, or None if there is no such file.

    A damaged file counts as none: a warning says so, with the `consequence`.
    """
    try:
        return parse(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as err:
        logger.warning("%s cannot be read, so %s: %s", path, consequence, err)
        return None


BROKER_SECONDS = 5.0
FIRST_LOOK_SECONDS = 0.5
"""Time for Kafka's answer if no topic is remembered yet. A later answer is remembered for the next load."""


@dataclass(frozen=True)
class FoundTopics:
    """Topics that the connector's pattern has ever matched. Kafka no longer has those in `gone`.

    A gone topic stays in the list, since its archive stays too. `letters` are matching dead letter topics. They are
    left out.
    """

    topics: tuple[str, ...]
    gone: tuple[str, ...] = ()
    letters: tuple[str, ...] = ()

    @property
    def letters_note(self) -> str:
        """The end of a message, naming the dead letter topics left out."""
        if not self.letters:
            return ""
        return f" (left out, as dead letter topics: {', '.join(self.letters)}; a file can name them in topics)"


def find_topics_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of remembered topics."""
    return find_memory("kafka_s3_topics", env)


def look_for_topics(config: ConnectorConfig, folder: Path) -> FoundTopics:
    """Ask Kafka for matching topics, and the store for archived ones. Remember the answer.

    Raises the errors of the `kafka` package, and OSError if the answer cannot be written.
    """
    with ClusterAdmin(config.kafka, BROKER_SECONDS) as admin:
        all_topics = admin.list_topics()
    present = match_topics(config, all_topics)
    topics = match_topics(config, {*present, *recall_topics(config, folder).topics, *_find_archived(config)})
    gone_topics = tuple(t for t in topics if t not in present)
    matching = FoundTopics(topics, gone_topics, list_letter_topics(config, all_topics))
    if matching != recall_topics(config, folder):
        write_remembered(_name_file(folder, config), asdict(matching))
    return matching


def recall_topics(config: ConnectorConfig, folder: Path) -> FoundTopics:
    """Read the remembered topics. Leave out those that no longer match the pattern."""

    def parse(document: Any) -> FoundTopics:
        topics, gone = (match_topics(config, document[name]) for name in ("topics", "gone"))
        return FoundTopics(topics, gone, list_letter_topics(config, document["letters"]))

    return read_remembered(_name_file(folder, config), parse, "its topics are looked up anew") or FoundTopics(())


def recall_listed_topics(config: ConnectorConfig, folder: Path) -> tuple[str, ...]:
    """Return the topics that a source connector's file names, or else the remembered topics with objects."""
    if config.topics:
        return config.topics

    def parse(document: Any) -> tuple[str, ...]:
        return tuple(filter(compile_topic_filter(config, ()), document["topics"]))

    return read_remembered(_name_file(folder, config), parse, "its topics are found anew") or ()


def remember_listed_topics(config: ConnectorConfig, topics: Iterable[str], folder: Path) -> None:
    """Remember the topics of a source connector's objects. Raises OSError."""
    write_remembered(_name_file(folder, config), asdict(FoundTopics(tuple(sorted(topics)))))


def resolve_from_memory(connectors: Sequence[ConnectorConfig], folder: Path) -> tuple[ConnectorConfig, ...]:
    """Return connectors with their remembered topics. Ask Kafka about those without a file of topics.

    That waits FIRST_LOOK_SECONDS at most. Without an answer, the connector has no topics until the sensor finds some.
    """
    _look_for_first_topics(
        [c for c in connectors if c.topics_regex is not None and not _name_file(folder, c).exists()], folder
    )
    return tuple(
        give_topics(c, recall_topics(c, folder).topics) if c.topics_regex is not None else c for c in connectors
    )


def resolve_now(config: ConnectorConfig, folder: Path) -> ConnectorConfig:
    """Return a command's connector with its matching topics, or the remembered ones if Kafka does not answer.

    Raises the errors of the `kafka` package if none is remembered.
    """
    if config.topics_regex is None:
        return config
    try:
        matching = look_for_topics(config, folder)
        if matching.letters:
            logger.info("connector %s: topics of its pattern%s", config.name, matching.letters_note)
    except TransientError as err:
        matching = recall_topics(config, folder)
        if not matching.topics:
            raise
        logger.warning("connector %s: its topics are the remembered ones: %s", config.name, err)
    return give_topics(config, matching.topics)


def find_gone_topics(config: ConnectorConfig, folder: Path) -> frozenset[str]:
    """Return the topics missing from Kafka's last answer, or none for a connector with a list of topics."""
    return frozenset(recall_topics(config, folder).gone if config.topics_regex is not None else ())


def give_topics(config: ConnectorConfig, topics: Iterable[str]) -> ConnectorConfig:
    """Return the connector as if it named these topics."""
    return config.model_copy(update={"topics": tuple(topics)})


def _look_for_first_topics(connectors: Sequence[ConnectorConfig], folder: Path) -> None:
    """Ask Kafka for the connectors' topics, in threads that may go on. Wait at most FIRST_LOOK_SECONDS."""

    def try_to_look(config: ConnectorConfig) -> None:
        try:
            look_for_topics(config, folder)
        except (PlatformError, OSError) as err:
            logger.warning("connector %s: its topics are not known yet: %s", config.name, err)
        except Exception:
            logger.exception("connector %s: its topics are not known yet", config.name)

    deadline = time.monotonic() + FIRST_LOOK_SECONDS
    threads = [threading.Thread(target=try_to_look, args=(config,), daemon=True) for config in connectors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _find_archived(config: ConnectorConfig) -> list[str]:
    """Return the topics with an index, since the file of remembered topics may be lost with its machine."""
    try:
        snapshot = ConnectorIndex.of(config).peek()
        return list(snapshot.topics) if snapshot else []
    except PlatformError as err:
        logger.warning("connector %s: its archived topics are not known: %s", config.name, err)
        return []


def _name_file(folder: Path, config: ConnectorConfig) -> Path:
    return folder / f"{config.name}.json"
