"""The stored plan of a restore of our archive: the plans of its topics."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.source.archive_plan import ArchivePlan, check_same
from kafka_s3_platform.core.restore.source.base import RestorePlan
from kafka_s3_platform.core.restore.source.terms import collect_request_terms, hash_place


@dataclass(frozen=True, kw_only=True)
class TopicsPlan(RestorePlan):
    """The plans of topics, in the order in which they were chosen. They have no `starts`: this plan has them."""

    kind = "archives with an index"

    topics: tuple[ArchivePlan, ...]

    @property
    def begun_topics(self) -> tuple[ArchivePlan, ...]:
        """The plans of the topics. Each has the start of its own target."""
        if self.starts is None:
            return self.topics
        return tuple(replace(plan, starts={plan.to_topic: self.starts[plan.to_topic]}) for plan in self.topics)

    def check_requests(self, request: RestoreRequest, requests: Sequence[RestoreRequest]) -> None:
        """Check that this plan belongs to `request`, and each topic's plan to its own. Raises as `check_same` does."""
        self.check_same(request, collect_request_terms(request), [plan.to_topic for plan in self.topics])
        for plan, topic_request in zip(self.topics, requests, strict=True):
            check_same(topic_request, plan)


def join_plans(request: RestoreRequest, plans: Sequence[ArchivePlan], skipped: Collection[str]) -> TopicsPlan:
    """Make the plan of a whole restore. `skipped` are sentences about chosen topics without a plan.

    Raises:
        ConfigError: two topics have the same name, or the same target.
    """
    for what, names in (
        ("archives of topic", [plan.source.topic for plan in plans]),
        ("topics that would go to", [plan.to_topic for plan in plans]),
    ):
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(
                f"restore {request.restore_id} has several {what} {', '.join(doubled)}. Restore them one by one, or "
                "give each a target of its own: --to-topic with {topic} in it, --rename, --topic-map"
            )
    return TopicsPlan(
        restore_id=request.restore_id,
        terms=collect_request_terms(request),
        created_at=datetime.now(timezone.utc).isoformat(),
        place=hash_place(request.config),
        topics=tuple(plans),
        skipped=tuple(skipped),
        skipped_count=len(skipped),
    )
