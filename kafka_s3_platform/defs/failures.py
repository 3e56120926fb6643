"""The platform's errors as Dagster's: what waiting may mend is retried, all else fails at once."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from kafka_s3_platform.defs.processes import process_tags
from kafka_s3_platform.errors import ClockError, OpenTransactionError, PermanentError, TransientError

FAILURE_TAG = "kafka_s3/failure"
"""On failed runs: `transient`, `permanent`, or `clock`, which setting a clock mends: no input of a run tells of it."""

RETRIES_TAG = "kafka_s3/retries"
"""Run tag: how often a transient error is retried within the run; the command line sets 0."""

MAX_RETRIES = 4
RETRY_SECONDS = 15.0
TRANSACTION_SECONDS = 60.0


@contextmanager
def dagster_failures(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> Iterator[None]:
    """Retry transient errors with exponential backoff; fail on permanent ones without any retry.

    Every step begins here, so this is also where the run learns which processes execute it.
    """
    context.instance.add_run_tags(context.run.run_id, process_tags(context.run.run_id))
    try:
        yield
    except TransientError as err:
        retries = int(context.run.tags.get(RETRIES_TAG, MAX_RETRIES))
        if context.op_execution_context.retry_number < retries:
            raise dg.RetryRequested(retries, _delay(err, context.op_execution_context.retry_number)) from err
        raise _failure(context, "transient", err) from err
    except ClockError as err:
        raise _failure(context, "clock", err) from err
    except PermanentError as err:
        raise _failure(context, "permanent", err) from err


def _delay(err: TransientError, retry_number: int) -> float:
    seconds = TRANSACTION_SECONDS if isinstance(err, OpenTransactionError) else RETRY_SECONDS
    return float(seconds * 2**retry_number)


def _failure(
    context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, kind: str, err: Exception
) -> dg.Failure:
    context.instance.add_run_tags(context.run.run_id, {FAILURE_TAG: kind})
    metadata = {"error": type(err).__name__, "kind": kind}
    return dg.Failure(str(err), metadata=metadata, allow_retries=False)
