"""The platform's errors as Dagster's: what waiting may mend is retried, all else fails at once."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import dagster as dg

from kafka_s3_platform.defs.processes import process_tags
from kafka_s3_platform.defs.resources import SPARK_VARIABLE
from kafka_s3_platform.errors import ClockError, OpenTransactionError, PermanentError, TransientError

FAILURE_TAG = "kafka_s3/failure"
"""On failed runs: `transient`, `permanent`, or `clock`, which setting a clock mends: no input of a run tells of it."""

RETRIES_TAG = "kafka_s3/retries"
"""Run tag: how often a transient error is retried within the run; the command line sets 0."""

MAX_RETRIES = 4
RETRY_SECONDS = 15.0
TRANSACTION_SECONDS = 60.0

_IGNORED = {
    "resources": f"Spark's properties belong into the file that {SPARK_VARIABLE} names in the deployment",
    "execution": "steps are executed as the platform does it",
}
"""Of a run's config: what earlier versions took from there, and what to do instead."""


@contextmanager
def dagster_failures(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> Iterator[None]:
    """Retry transient errors with exponential backoff; fail on permanent ones without any retry.

    Every step begins here, so this is also where the run learns which processes execute it, and is told what of its
    config does nothing.
    """
    _tell_ignored(context)
    context.instance.add_run_tags(context.run.run_id, process_tags(context.run.run_id))
    try:
        yield
    except TransientError as err:
        retries = _retries(context.run.tags.get(RETRIES_TAG, ""))
        if context.op_execution_context.retry_number < retries:
            raise dg.RetryRequested(retries, _delay(err, context.op_execution_context.retry_number)) from err
        raise _failure(context, "transient", err) from err
    except ClockError as err:
        raise _failure(context, "clock", err) from err
    except PermanentError as err:
        raise _failure(context, "permanent", err) from err


def _tell_ignored(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> None:
    for section, instead in _IGNORED.items():
        if names := _names(context.run.run_config.get(section), section):
            context.log.warning(
                "of this run's config %s is ignored: a run may not set it; %s. Remove it from the config",
                " and ".join(names),
                instead,
            )


def _names(given: object, path: str) -> list[str]:
    """Where something is set, such as `resources.spark.config.spark_config`. What is set there may be secret."""
    if not isinstance(given, Mapping):
        return [] if given is None else [path]
    deep = path.count(".") == len(("spark", "config", "spark_config"))
    return [path] if given and deep else [n for key, value in given.items() for n in _names(value, f"{path}.{key}")]


def _retries(tag: str) -> int:
    """As often as the tag says, if it is a number: whoever launches a run gives it tags."""
    return int(tag) if re.fullmatch("[0-9]{1,4}", tag) else MAX_RETRIES


def _delay(err: TransientError, retry_number: int) -> float:
    seconds = TRANSACTION_SECONDS if isinstance(err, OpenTransactionError) else RETRY_SECONDS
    return float(seconds * 2**retry_number)


def _failure(
    context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, kind: str, err: Exception
) -> dg.Failure:
    context.instance.add_run_tags(context.run.run_id, {FAILURE_TAG: kind})
    metadata = {"error": type(err).__name__, "kind": kind}
    return dg.Failure(str(err), metadata=metadata, allow_retries=False)
