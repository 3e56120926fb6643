"""Converts the platform's errors to Dagster's: transient errors are retried, and all others fail at once."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import dagster as dg

from kafka_s3_platform.core.defs.processes import extend_life, keep_alive, make_process_tags
from kafka_s3_platform.core.defs.resources import SPARK_VARIABLE
from kafka_s3_platform.core.errors import (
    ClockError,
    OpenTransactionError,
    PermanentError,
    PlatformError,
    TransientError,
    explain_full_disk,
    find_code,
)
from kafka_s3_platform.core.instance.work import FAILURE_TAG, KINDS, make_failed_tags, make_window_tags

RETRIES_TAG = ".dagster/kafka_s3.retries"
"""Run tag: the number of retries of a transient error within the run. The command line sets it to 0."""

MAX_RETRIES = 4
RETRY_SECONDS = 15.0
TRANSACTION_SECONDS = 60.0

StepContext: TypeAlias = dg.AssetExecutionContext | dg.AssetCheckExecutionContext | dg.OpExecutionContext

_IGNORED = {
    "resources": f"Spark's properties belong into the file that {SPARK_VARIABLE} names in the deployment",
    "execution": "steps are executed as the platform does it",
}
"""Sections of a run's config that the platform does not read, with the way to set these things instead."""


@contextmanager
def raise_dagster_failures(context: StepContext, results_note: str = "") -> Iterator[None]:
    """Retry transient errors with exponential backoff, and fail on permanent ones without any retry.

    Every step begins here. So this also tags the run with its hours and its processes, keeps it alive, and warns of
    keys in its config that have no effect. `results_note` is a text for the page of a failed or cancelled run. It says
    which results stay.
    """
    _warn_of_ignored_config(context)
    run_id = context.run.run_id
    context.instance.add_run_tags(run_id, {**make_window_tags(context.run.tags), **make_process_tags(run_id)})
    try:
        with _log_if_stopped(context, results_note), keep_alive(context.instance, run_id), _explain_full_disks():
            yield
    except TransientError as err:
        if may_retry(context):
            retries = count_retries(context)
            delay = choose_delay(err, context.op_execution_context.retry_number)
            extend_life(context.instance, run_id, delay)  # the step's process ends, while Dagster's waits
            raise dg.RetryRequested(retries, delay) from err
        raise _make_failure(context, err, results_note) from err
    except PermanentError as err:
        raise _make_failure(context, err, results_note) from err


@contextmanager
def _explain_full_disks() -> Iterator[None]:
    """Raise a FullDiskError, a transient error, for an OSError of a full disk of this machine."""
    try:
        yield
    except OSError as err:
        if full_disk_error := explain_full_disk(err):
            raise full_disk_error from err
        raise


@contextmanager
def _log_if_stopped(context: StepContext, results_note: str) -> Iterator[None]:
    """Log the note if somebody stops the run, or if a defect ends it, as Dagster shows only the place of a defect."""
    try:
        yield
    except PlatformError:
        raise
    except (Exception, KeyboardInterrupt, dg.DagsterExecutionInterruptedError):
        if results_note:
            context.log.warning("The run did not end well. %s", results_note)
        raise


def join_errors(failures: Mapping[str, PlatformError]) -> PlatformError:
    """Return the only error, or one error with the texts of all. It is transient if any of them is.

    So it must do no harm to repeat a step. A wrong clock fails everything, and is named only once.
    """
    first_error = next(iter(failures.values()))
    if len(failures) == 1 or isinstance(first_error, ClockError):
        return first_error
    may_pass = any(isinstance(err, TransientError) for err in failures.values())
    text = "\n".join(f"{name}: {err}" for name, err in failures.items())
    return (TransientError if may_pass else PermanentError)(text)


def count_retries(context: StepContext) -> int:
    """Return how often the run's steps are tried again after a transient error."""
    # the tag may hold anything: anybody who launches a run can set its tags
    tag = context.run.tags.get(RETRIES_TAG, "")
    return int(tag) if re.fullmatch("[0-9]{1,4}", tag) else MAX_RETRIES


def may_retry(context: StepContext) -> bool:
    """Return True if the step is tried again after a transient error."""
    return context.op_execution_context.retry_number < count_retries(context)


def choose_delay(err: TransientError, retry_number: int) -> float:
    """Return the seconds to wait before the next try."""
    seconds = TRANSACTION_SECONDS if isinstance(err, OpenTransactionError) else RETRY_SECONDS
    return float(seconds * 2**retry_number)


def make_assets_failure(
    context: StepContext, failures: Mapping[dg.AssetKey, PlatformError], selected: int, results_note: str
) -> dg.Failure:
    """Make the failure of a step with `selected` assets, some of which failed while the others are done.

    Its metadata is for the command line. Dagster does not try again, because a retry would repeat the others too.
    """
    kinds = {key: classify_failure(err) for key, err in failures.items()}
    kind = next(kind for kind in KINDS if kind in kinds.values())
    tags = {FAILURE_TAG: kind}
    if len(kinds) < selected or set(kinds.values()) != {kind}:
        tags |= make_failed_tags(kinds)
    context.instance.add_run_tags(context.run.run_id, tags)
    by_asset = {key.to_user_string(): {"kind": kinds[key], "message": str(err)} for key, err in failures.items()}
    text = _describe_failures(failures, selected)
    metadata = _make_metadata(next(iter(failures.values())), kind, results_note)
    return dg.Failure(text, metadata={**metadata, FAILURES: by_asset}, allow_retries=False)


def _make_metadata(err: PlatformError, kind: str, results_note: str) -> dict[str, str]:
    """Make the metadata for the page of a failed run: the kind, the runbook's section, and the note on results."""
    code = find_code(str(err)) or err.code
    note = {"what_stays": results_note} if results_note else {}
    return {"kind": kind, "runbook": code.section, **note}


FAILURES = "failures"
"""Metadata of a failure: the error of each asset, by its key."""


def classify_failure(err: PlatformError) -> str:
    """Return `clock`, `transient` or `permanent`, for the run's tag `FAILURE_TAG`."""
    if isinstance(err, ClockError):
        return "clock"
    return "transient" if isinstance(err, TransientError) else "permanent"


def _describe_failures(failures: Mapping[dg.AssetKey, PlatformError], selected: int) -> str:
    """Return the message of a step: each failed topic with its error. An error common to all is named once."""
    texts = set(map(str, failures.values()))
    if len(texts) == 1 and (selected == 1 or len(failures) > 1):
        of = f"{len(failures)} of {selected} topics" if selected > 1 else ""
        names = ", ".join(key.path[-1] for key in failures)
        return "\n".join([*texts, *([f"This is so for {of}: {names}"] if of else [])])
    return "\n".join(f"{key.path[-1]}: {err}" for key, err in failures.items())


def _warn_of_ignored_config(context: StepContext) -> None:
    """Warn of sections in the run's config that have no effect, because the platform does not read them."""
    for section, alternative in _IGNORED.items():
        if names := _list_names(context.run.run_config.get(section), section):
            context.log.warning(
                "of this run's config %s is ignored: a run may not set it; %s. Remove it from the config",
                " and ".join(names),
                alternative,
            )


def _list_names(config: object, path: str) -> list[str]:
    """List the paths of a config, such as `resources.spark.config.spark_config`, but no values: they may be secret."""
    if not isinstance(config, Mapping):
        return [] if config is None else [path]
    deep = path.count(".") == len(("spark", "config", "spark_config"))
    if config and deep:
        return [path]
    names = []
    for key, value in config.items():
        names += _list_names(value, f"{path}.{key}")
    return names


def _make_failure(context: StepContext, err: PlatformError, results_note: str) -> dg.Failure:
    """Make the failure of a step without a retry, and tag the run with the kind of the error."""
    kind = classify_failure(err)
    context.instance.add_run_tags(context.run.run_id, {FAILURE_TAG: kind})
    return dg.Failure(str(err), metadata=_make_metadata(err, kind, results_note), allow_retries=False)
