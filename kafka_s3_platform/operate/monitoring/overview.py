"""All connectors of a folder at one moment: the health of their topics, and the history of their runs."""

import logging
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from kafka_s3_platform.connect.config.files import find_connector, guess_name, load_connectors
from kafka_s3_platform.core.config.folder import find_connectors_folder
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.model.health import ConnectorHealth, RunHistory
from kafka_s3_platform.core.text import escape_unprintable
from kafka_s3_platform.core.waits import Waiting
from kafka_s3_platform.operate.instance.history import NO_INSTANCE, NoInstanceError, RunHistories
from kafka_s3_platform.operate.monitoring.restores import RestoreProgress
from kafka_s3_platform.operate.status.connectors import look_at_connectors

logger = logging.getLogger(__name__)

_Reading = Waiting[Mapping[str, RunHistory]]

PROGRESS_SECONDS = 5.0
"""The time that a look waits for the stores to tell how far restores have come."""


def load_all() -> tuple[list[ConnectorConfig], list[ConnectorHealth]]:
    """Load all connectors. Return the loaded ones, and the health of the broken ones, which has the reasons.

    Raise ConfigError if the folder of connector files does not exist.
    """
    files = load_connectors(find_connectors_folder(os.environ), os.environ)
    now = datetime.now(timezone.utc)
    loaded = {config.name for config in files.connectors}
    problems: dict[str, list[str]] = {}
    for path, problem in files.broken.items():
        # the name guessed for a file that cannot be parsed may be another connector's
        name = guess_name(path)
        problems.setdefault(f"{name} ({path.name})" if name in loaded else name, []).append(problem)
    broken = [
        ConnectorHealth(name, now, error="\n".join(dict.fromkeys(texts)), is_loaded=False)
        for name, texts in problems.items()
    ]
    return [*files.connectors], broken


def load_named(names: Sequence[str]) -> tuple[list[ConnectorConfig], list[ConnectorHealth]]:
    """Return the connectors with these names, and why others of them cannot be looked at."""
    now = datetime.now(timezone.utc)
    configs: list[ConnectorConfig] = []
    failures: list[ConnectorHealth] = []
    for name in dict.fromkeys(names):
        try:
            configs.append(find_connector(name, os.environ))
        except ConfigError as err:
            failures.append(ConnectorHealth(name, now, error=str(err), is_loaded=False))
    return configs, failures


class Overviews:
    """Looks at connectors and their runs, again and again. Facts learned in one look make the next one cheap.

    If it `watches`, it also counts the archived records, and gives a new topic its first minutes before its late hours
    are an alarm.
    """

    def __init__(self, seconds: float, *, watches: bool = False) -> None:
        self._seconds = seconds
        self._first_looks: defaultdict[tuple[str, str], datetime] | None = defaultdict() if watches else None
        self._histories = RunHistories()
        self._progress = RestoreProgress()
        self._reading: _Reading | None = None
        self._read_names: frozenset[str] = frozenset()
        self._restores: _Reading | None = None

    def take(
        self,
        configs: Sequence[ConnectorConfig],
        broken: Sequence[ConnectorHealth] = (),
        declared: Collection[str] | None = None,
    ) -> list[ConnectorHealth]:
        """Return the health of the connectors and their runs, after about the given seconds, and of `broken` ones.

        `declared` are the names of all loaded files. If it is given, other connectors known to Dagster count as
        removed.
        """
        if self._first_looks is not None:
            began = datetime.now(timezone.utc)
            self._first_looks.default_factory = lambda: began
        if self._reading is None or not self._reading.is_under_way:
            names = [config.name for config in configs]
            self._reading = Waiting(lambda: self._histories.read(names))
            self._read_names = frozenset(names)
        reading = self._reading
        healths = look_at_connectors(configs, self._seconds, self._first_looks)
        why = _find_why_unread(reading, self._seconds)
        histories = {} if why else self._add_progress(configs, reading.answer)
        # of other connectors, only the topics are known
        read_histories = {name: histories[name] for name in histories.keys() & self._read_names}
        looked = [_add_history(health, read_histories, why) for health in healths]
        if declared is not None:
            declared = {*declared, *(health.connector for health in broken)}
            present = {(health.connector, topic.topic) for health in looked for topic in health.topics}
            looked += _find_removed(present, declared, histories)
        return sorted([*looked, *broken], key=lambda health: health.connector)

    def _add_progress(
        self, configs: Sequence[ConnectorConfig], histories: Mapping[str, RunHistory]
    ) -> Mapping[str, RunHistory]:
        """Add how far restores have come. It stays unknown if a store does not answer in time."""
        if self._restores is not None and self._restores.is_under_way:
            return histories

        def read() -> Mapping[str, RunHistory]:
            pairs = [(config, histories[config.name]) for config in configs if config.name in histories]
            return {c.name: replace(h, restores=self._progress.add_to(c, h.restores)) for c, h in pairs}

        self._restores = Waiting(read)
        return (
            histories if _find_why_unread(self._restores, PROGRESS_SECONDS) else {**histories, **self._restores.answer}
        )


def _find_why_unread(reading: _Reading, seconds: float) -> str:
    """Wait for histories. Return the reason why they are unknown, or "" if they are known."""
    try:
        return "" if reading.ended_within(seconds) else f"Dagster's storage did not answer in {seconds:g} s"
    except NoInstanceError as err:
        return escape_unprintable(str(err))
    except Exception as err:
        # this is an error of any kind of storage, and its text may hold what the address holds
        logger.debug("Dagster's storage", exc_info=err)
        return f"Dagster's storage does not answer ({type(err).__name__})"


def _add_history(health: ConnectorHealth, histories: Mapping[str, RunHistory], why: str) -> ConnectorHealth:
    """Add to a connector's health its runs, or why they are unknown, and the topics that it no longer archives."""
    if why or health.connector not in histories:
        is_silent = why not in ("", NO_INSTANCE)
        why = why or "it was read before this connector was there"
        return replace(health, history_error=why, is_dagster_silent=is_silent)
    history = histories[health.connector]
    removed = () if health.error else tuple(sorted(history.topics - {topic.topic for topic in health.topics}))
    return replace(health, history=history, removed_topics=removed, removal=_REMOVED.format(_NO_TOPIC))


def _find_removed(
    present: Collection[tuple[str, str]], declared: Collection[str], histories: Mapping[str, RunHistory]
) -> Iterator[ConnectorHealth]:
    """Find connectors that Dagster knows, but no file declares. `present` are the topics of all connectors."""
    now = datetime.now(timezone.utc)
    for name in histories.keys() - declared:
        topics = histories[name].topics
        heirs = sorted({name for name, topic in present if topic in topics})
        renamed = f" If it was renamed to {' or '.join(heirs)}, give it its old name back: a new name begins anew."
        removal = _REMOVED.format(_NO_FILE + (renamed if heirs else ""))
        yield ConnectorHealth(name, now, removed_topics=tuple(sorted(topics)), removal=removal, is_removed=True)


_REMOVED = (
    "It was archived, and is not any more: {} What was archived stays, and can be restored. Once its assets are wiped "
    "in Dagster, it is no longer shown here."
)
_NO_TOPIC = "the connector's file does not name it now, or its pattern finds no such topic at Kafka."
_NO_FILE = "no connector file that loads declares this connector now. To go on, put its file back."
