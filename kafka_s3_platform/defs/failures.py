"""Converts the platform's errors to Dagster's: transient errors are retried, all others fail at once."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import dagster as dg

from kafka_s3_platform.defs.processes import make_process_tags
from kafka_s3_platform.defs.resources import SPARK_VARIABLE
from kafka_s3_platform.errors import ClockError, OpenTransactionError, PermanentError, TransientError

FAILURE_TAG = "kafka_s3/failure"
"""Tag of failed runs: `transient`, `permanent`, or `clock`. A clock that is set right changes no input of a run."""

RETRIES_TAG = "kafka_s3/retries"
"""Run tag: how often a transient error is retried within the run; the command line sets 0."""

MAX_RETRIES = 4
RETRY_SECONDS = 15.0
TRANSACTION_SECONDS = 60.0

_IGNORED = {
    "resources": f"Spark's properties belong into the file that {SPARK_VARIABLE} names in the deployment",
    "execution": "steps are executed as the platform does it",
}
"""Keys that earlier versions read from a run's config, and what to do instead."""


@contextmanager
def raise_dagster_failures(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> Iterator[None]:
    """Retry transient errors with exponential backoff; fail on permanent ones without any retry.

    Every step begins here. So this also tags the run with the processes that execute it, and warns of keys in its
    config that have no effect.
    """
    _tell_ignored(context)
    context.instance.add_run_tags(context.run.run_id, make_process_tags(context.run.run_id))
    try:
        yield
    except TransientError as err:
        retries = _count_retries(context.run.tags.get(RETRIES_TAG, ""))
        if context.op_execution_context.retry_number < retries:
            raise dg.RetryRequested(retries, _choose_delay(err, context.op_execution_context.retry_number)) from err
        raise _make_failure(context, "transient", err) from err
    except ClockError as err:
        raise _make_failure(context, "clock", err) from err
    except PermanentError as err:
        raise _make_failure(context, "permanent", err) from err


def _tell_ignored(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> None:
    for section, instead in _IGNORED.items():
        if names := _list_names(context.run.run_config.get(section), section):
            context.log.warning(
                "of this run's config %s is ignored: a run may not set it; %s. Remove it from the config",
                " and ".join(names),
                instead,
            )


def _list_names(given: object, path: str) -> list[str]:
    """List paths that are set, such as `resources.spark.config.spark_config`. Leave out values: they may be secret."""
    if not isinstance(given, Mapping):
        return [] if given is None else [path]
    deep = path.count(".") == len(("spark", "config", "spark_config"))
    if given and deep:
        return [path]
    names = []
    for key, value in given.items():
        names += _list_names(value, f"{path}.{key}")
    return names


def _count_retries(tag: str) -> int:
    """Return the number in the tag, if it holds one: anybody who launches a run can set its tags."""
    return int(tag) if re.fullmatch("[0-9]{1,4}", tag) else MAX_RETRIES


def _choose_delay(err: TransientError, retry_number: int) -> float:
    seconds = TRANSACTION_SECONDS if isinstance(err, OpenTransactionError) else RETRY_SECONDS
    return float(seconds * 2**retry_number)


def _make_failure(
    context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, kind: str, err: Exception
) -> dg.Failure:
    context.instance.add_run_tags(context.run.run_id, {FAILURE_TAG: kind})
    metadata = {"error": type(err).__name__, "kind": kind}
    return dg.Failure(str(err), metadata=metadata, allow_retries=False)
