"""A topic's assets, with their keys, hours and days, and one op for the assets, or for the checks, of many topics.

A run may pick any of the assets. Dagster's decorators would give `a.b` and `a_b` the same name for an input or an
output, while the names made here differ.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import Any, Literal, TypeVar

import dagster as dg

from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.failures import join_errors
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.instance.names import make_name, make_op_name
from kafka_s3_platform.core.instance.windows import Days, Hours, define_days, define_hours
from kafka_s3_platform.core.status.topic import ArchivedTopic, find_local_day, find_start_day

Group = Literal["kafka", "hourly", "daily", "objects", "restored"]

ASSET_TAG = "kafka_s3/asset"
"""Tag of an asset with the `Group` in its key, to select assets by, as in `tag:kafka_s3/asset=hourly`."""


@dataclass(frozen=True)
class TopicAssets(ArchivedTopic):
    """A connector's archived topic, and its assets."""

    first_hour: datetime | None = None
    """The connector's earliest hour, if it is known. It only limits the hours that Dagster offers."""

    def key(self, group: Group) -> dg.AssetKey:
        """Return the asset key `<connector>/<group>/<topic>`."""
        return dg.AssetKey([self.config.name, group, self.topic])

    def make_spec(self, group: Group, **fields: Any) -> dg.AssetSpec:
        """Define the topic's asset of the group, with further `fields` of an `AssetSpec`.

        In the UI, its group is inside a group for its connector, because the graph names an asset by its topic alone.
        """
        place = {"group_name": f"{make_name(self.config.name)}/{group}", "owners": self.config.archive.owners}
        return dg.AssetSpec(**{"key": self.key(group), **place, "tags": {ASSET_TAG: group}, **fields})

    @property
    def kinds(self) -> set[str]:
        """Dagster's kind tags of the asset: the store, the engine that writes, and the objects' format."""
        layout = self.config.layout
        return {"s3", "spark", *find_format(layout.format).kinds(layout.codec)}

    @cached_property
    def hours(self) -> Hours:
        return Hours(self.config)

    @cached_property
    def days(self) -> Days:
        return Days(self.config)

    @property
    def offered_hours(self) -> dg.TimeWindowPartitionsDefinition:
        """The hours Dagster offers, from the day of `first_hour` on."""
        return define_hours(self._offered_from, self.config.layout.timezone)

    @property
    def offered_days(self) -> dg.TimeWindowPartitionsDefinition:
        """The days Dagster offers, from the day of `first_hour` on."""
        return define_days(self._offered_from, self.config.layout.timezone)

    @property
    def first_offered(self) -> datetime:
        """The start (UTC) of the first hour Dagster offers. Dagster refuses runs of earlier hours."""
        return self.offered_hours.start.astimezone(timezone.utc)

    @property
    def _offered_from(self) -> datetime:
        start = find_start_day(self.config)
        return start if self.first_hour is None else max(start, find_local_day(self.first_hour, self.config))


def list_topic_assets(connectors: Iterable[ConnectorConfig]) -> list[TopicAssets]:
    """Return every topic of every sink connector. A source connector archives no topic."""
    sinks = (config for config in connectors if config.source is None)
    return [TopicAssets(config, topic) for config in sinks for topic in config.topics]


R = TypeVar("R")


def make_topic_assets(
    body: Callable[..., Any],
    *,
    name: str,
    specs: Sequence[dg.AssetSpec],
    pool: str | None,
    checks: Sequence[dg.AssetCheckSpec] = (),
    config_schema: Mapping[str, dg.Field] | None = None,
) -> dg.AssetsDefinition:
    """Make assets that share a partitions definition, and their checks. The op `body` evaluates both.

    A backfill makes one run for each contiguous range of partition keys, whatever the number of topics.
    """
    outputs = {make_op_name(*spec.key.path): spec for spec in specs}
    evaluated = _name_checks(checks)
    inputs = {make_op_name(*dep.asset_key.path): dep.asset_key for spec in specs for dep in spec.deps}
    op = dg.op(
        name=name,
        ins=dict.fromkeys(inputs, dg.In(dg.Nothing)),
        out={
            **dict.fromkeys(outputs, dg.Out(dg.Nothing, is_required=False)),
            **dict.fromkeys(evaluated, dg.Out(is_required=False)),
        },
        config_schema=config_schema,
        pool=pool,
    )(body)
    return dg.AssetsDefinition(
        keys_by_input_name=inputs,
        keys_by_output_name={output: spec.key for output, spec in outputs.items()},
        node_def=op,
        specs=specs,
        check_specs_by_output_name=evaluated,
        can_subset=True,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )


def make_topic_checks(
    body: Callable[..., Any],
    *,
    name: str,
    checks: Sequence[dg.AssetCheckSpec],
    config_schema: Mapping[str, dg.Field] | None = None,
) -> dg.AssetChecksDefinition:
    """Make checks that an op of their own, `body`, evaluates apart from the run of their assets."""
    evaluated = _name_checks(checks)
    inputs = {make_op_name(*spec.asset_key.path): spec.asset_key for spec in checks}
    op = dg.op(
        name=name,
        ins=dict.fromkeys(inputs, dg.In(dg.Nothing)),
        out=dict.fromkeys(evaluated, dg.Out(is_required=False)),
        config_schema=config_schema,
    )(body)
    made_checks: dg.AssetChecksDefinition = dg.AssetChecksDefinition.create(
        keys_by_input_name=inputs, node_def=op, check_specs_by_output_name=evaluated, can_subset=True
    )
    return made_checks


def pick_topics(
    context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, topics: Sequence[TopicAssets], group: Group
) -> list[TopicAssets]:
    """Return the topics for which a check on the asset of the group is selected."""
    selected = {key.asset_key for key in context.selected_asset_check_keys}
    return [topic for topic in topics if topic.key(group) in selected]


def check_each(topics: Sequence[TopicAssets], check: Callable[[TopicAssets], R]) -> Iterator[R]:
    """Yield the result of `check` for each topic.

    A topic's error does not stop the other topics. In the end, this raises a PlatformError that names each failed
    topic.
    """
    failures: dict[str, PlatformError] = {}
    for topic in topics:
        try:
            result = check(topic)
        except PlatformError as err:
            failures[topic.topic] = err
        else:
            yield result
    if failures:
        raise join_errors(failures)


def _name_checks(checks: Sequence[dg.AssetCheckSpec]) -> dict[str, dg.AssetCheckSpec]:
    """Return the specs by the names of the op's outputs, which are different for each asset and check."""
    return {make_op_name(*spec.asset_key.path, spec.name): spec for spec in checks}
