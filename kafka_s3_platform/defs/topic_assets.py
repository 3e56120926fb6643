"""Makes one op of the assets, or of the checks, of many topics. A run may pick any of them.

Dagster's decorators give `a.b` and `a_b` the same name for an input or an output. Names made here differ.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import dagster as dg

from kafka_s3_platform.defs.failures import raise_all
from kafka_s3_platform.defs.topic import Group, TopicAssets
from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.instance.names import make_op_name

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
    """Make assets of one partitions definition, and their checks. The op `body` evaluates both.

    A backfill is one run for each contiguous range, whatever the number of topics.
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
    """Make checks that the op `body` evaluates apart from the run of their assets."""
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
    context: dg.AssetCheckExecutionContext, topics: Sequence[TopicAssets], group: Group
) -> list[TopicAssets]:
    """Return the topics with selected checks on their assets of the group."""
    selected = {key.asset_key for key in context.selected_asset_check_keys}
    return [topic for topic in topics if topic.key(group) in selected]


def check_each(topics: Sequence[TopicAssets], check: Callable[[TopicAssets], R]) -> Iterator[R]:
    """Yield the result of `check` for each topic.

    A topic that cannot be checked stops no other. In the end this raises PlatformError, and names each of them.
    """
    failures: dict[str, PlatformError] = {}
    for topic in topics:
        try:
            result = check(topic)
        except PlatformError as err:
            failures[topic.topic] = err
        else:
            yield result
    raise_all(failures)


def _name_checks(checks: Sequence[dg.AssetCheckSpec]) -> dict[str, dg.AssetCheckSpec]:
    return {make_op_name(*spec.asset_key.path, spec.name): spec for spec in checks}
