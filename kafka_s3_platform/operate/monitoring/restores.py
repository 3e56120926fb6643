"""The progress of restores under way, from their plans and checkpoints in the bucket."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.model.health import RunningRestore
from kafka_s3_platform.core.store.objects import ObjectStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Planned:
    """The facts in a restore's plan. They do not change after the plan is stored."""

    topic: str
    to_topic: str
    records: int
    checkpoints: tuple[str, ...]


class RestoreProgress:
    """Reads the plan of each restore once, and the checkpoints at each look."""

    def __init__(self) -> None:
        self._plans: dict[tuple[str, str], _Planned] = {}

    def add_to(self, config: ConnectorConfig, restores: Sequence[RunningRestore]) -> tuple[RunningRestore, ...]:
        """Return the restores with their progress, as far as it is known."""
        return tuple(self._look_at(config, restore) for restore in restores)

    def _look_at(self, config: ConnectorConfig, restore: RunningRestore) -> RunningRestore:
        """Return the restore with the numbers of planned and sent records, or unchanged if these are unknown."""
        # only where a restore is under way
        from kafka_s3_platform.core.restore.replay.checkpoint import read_positions

        store = ObjectStore(config.restore_store)
        place = (config.name, restore.restore_id)
        try:
            if place not in self._plans:
                self._plans[place] = _read_plan(config, store, restore.restore_id)
            plan = self._plans[place]
            positions = read_positions(store, plan.checkpoints)
        except PlatformError as err:
            # it has no plan yet, or one of foreign objects; a store that does not answer is reported elsewhere
            logger.debug("restore %s: %s", restore.restore_id, err)
            return restore
        sent_count = sum(position.record_count for position in positions if position is not None)
        return replace(
            restore, topic=plan.topic, to_topic=plan.to_topic, planned_records=plan.records, sent_records=sent_count
        )


def _read_plan(config: ConnectorConfig, store: ObjectStore, restore_id: str) -> _Planned:
    """Read a restore's plan from the bucket, for its topics, its records, and the keys of its checkpoints."""
    from kafka_s3_platform.core.restore.documents import RestoreDocuments
    from kafka_s3_platform.core.restore.source.topics_plan import TopicsPlan

    documents = RestoreDocuments(config.archive.restore_dir, restore_id)
    plan = TopicsPlan.from_json(store.get(documents.plan), documents.plan)
    is_alone = len(plan.topics) == 1
    checkpoints: list[str] = []
    for topic in plan.topics:
        name = "" if is_alone else topic.source.topic
        checkpoints += (documents.stream(p, name).checkpoint for p in topic.kafka_partitions)
    topics = ", ".join(topic.source.topic for topic in plan.topics)
    to_topics = ", ".join(topic.to_topic for topic in plan.topics)
    return _Planned(topics, to_topics, sum(topic.record_count for topic in plan.topics), tuple(checkpoints))
