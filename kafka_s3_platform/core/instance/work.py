"""Reads the work of a run, and its error, from the run, its tags and its events.

A sensor or schedule requests one run for hundreds of assets. So a tag holds no names, but for each asset a digest of 12
characters, of its inputs or of its failure. The UI hides tags with the prefix `.dagster/`: these are for machines.
"""

import hashlib
import re
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping

import dagster as dg
from dagster import DagsterEventType

from kafka_s3_platform.core.instance.names import make_op_name

WINDOW_TAG = "dagster/partition"
FIRST_WINDOW_TAG = "dagster/asset_partition_range_start"
LAST_WINDOW_TAG = "dagster/asset_partition_range_end"
PRIORITY_TAG = "dagster/priority"
BACKFILL_TAG = "dagster/backfill"
FIRST_BACKFILL_TAG = "dagster/root_backfill_id"
"""Tags of Dagster's own: the partition key of a run, or the first and the last one; its priority; its backfill, and
the backfill that this one executes again."""

REQUEST_TAG = ".dagster/kafka_s3.request"
"""Holds the common part of the run's asset keys, such as `<connector>/hourly`."""

INPUTS_TAG = ".dagster/kafka_s3.inputs"
"""Holds a digest for each asset and the fingerprint of its inputs. If it is full, another, with `.1`, continues it."""

FAILED_TAG = ".dagster/kafka_s3.failed"
"""With `.<kind>` appended, holds a digest for each asset that failed this way. A run without one failed as a whole."""

TAG_SIZE = 2040
"""Postgres indexes the values of tags, and refuses one of more than about 2,700 bytes."""

DIGEST_SIZE = 12


def find_request_name(key: dg.AssetKey) -> str:
    """Return the common part of the asset keys in one request: `<connector>/<group>`."""
    return "/".join(key.path[:-1])


def make_request_tags(inputs: Mapping[dg.AssetKey, str]) -> dict[str, str]:
    """Make the tags of a request for these assets, each with the fingerprint of its inputs."""
    name = find_request_name(next(iter(inputs)))
    digests = [digest_inputs(key, fingerprint) for key, fingerprint in inputs.items()]
    return {REQUEST_TAG: name, **_split_into_tags(INPUTS_TAG, digests)}


def make_window_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Make the tag that shows people the hours or days of a run, from Dagster's tags for partition keys.

    The list of runs has room for about 33 characters of it.
    """
    first = tags.get(FIRST_WINDOW_TAG) or tags.get(WINDOW_TAG)
    if not first:
        return {}
    last = tags.get(LAST_WINDOW_TAG) or first
    name = "days" if len(first) == len("2013-01-31") else "hours"
    # an hour of the same day is shown by its time
    end = last.removeprefix(first[: len("2013-01-31-")])
    return {name: first if first == last else f"{first} to {end}"}


def make_failed_tags(kinds: Mapping[dg.AssetKey, str]) -> dict[str, str]:
    """Make the tags for the failed assets of a run, from their kinds of failure."""
    tags: dict[str, str] = {}
    for kind in set(kinds.values()):
        tags |= _split_into_tags(f"{FAILED_TAG}.{kind}", [digest_key(key) for key in kinds if kinds[key] == kind])
    return tags


def is_request_for(tags: Mapping[str, str], key: dg.AssetKey) -> bool:
    """Return True if the tags belong to a request for the asset's group. The run's selection lists the assets."""
    return tags.get(REQUEST_TAG) == find_request_name(key)


def read_inputs(tags: Mapping[str, str]) -> frozenset[str]:
    """Return the digests of the run's requested assets, each with the fingerprint of its inputs."""
    return _read_digests(INPUTS_TAG, tags)


def read_failed(tags: Mapping[str, str]) -> Mapping[str, frozenset[str]] | None:
    """Return the digests of the failed assets by kind of failure, or None if there are no such tags."""
    digests = {kind: _read_digests(f"{FAILED_TAG}.{kind}", tags) for kind in KINDS}
    return digests if any(digests.values()) else None


def find_failure(failed: Mapping[str, frozenset[str]], key: dg.AssetKey) -> str | None:
    """Return the asset's kind of failure, or None if it did not fail."""
    digest = digest_key(key)
    return next((kind for kind, digests in failed.items() if digest in digests), None)


def digest_inputs(key: dg.AssetKey, fingerprint: str) -> str:
    """Return a digest of an asset and its inputs."""
    return _digest(f"{key.to_user_string()} {fingerprint}")


def digest_key(key: dg.AssetKey) -> str:
    """Return a digest of an asset."""
    return _digest(key.to_user_string())


def _digest(text: str) -> str:
    """Return the first 12 characters of the text's SHA-256 in base64, for tags."""
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:9]).decode()


def _split_into_tags(name: str, digests: Iterable[str]) -> dict[str, str]:
    """Return the digests as the value of the tag `name` and, if it is full, of `name.1` and so on."""
    text = "".join(digests)
    parts = [text[start : start + TAG_SIZE] for start in range(0, len(text), TAG_SIZE)]
    return {f"{name}.{n}" if n else name: part for n, part in enumerate(parts)}


def split_digests(text: str) -> list[str]:
    """Split a text into the digests of assets that it holds one after the other."""
    return [text[start : start + DIGEST_SIZE] for start in range(0, len(text), DIGEST_SIZE)]


def _read_digests(name: str, tags: Mapping[str, str]) -> frozenset[str]:
    """Return the digests in the tag `name` and in its continuations."""
    digests: set[str] = set()
    parts = 0
    while text := tags.get(f"{name}.{parts}" if parts else name):
        digests.update(split_digests(text))
        parts += 1
    return frozenset(digests)


WORK_KINDS = ("archive", "compact", "restore", "verify", "upkeep", "retain", "registry", "rehearse")
"""Kinds of work. A connector's job has the name of its kind."""

REPEATED_WORK = frozenset({*WORK_KINDS} - {"restore"})
"""Kinds of work that sensors and schedules request again. Nothing requests a failed restore again."""

NOTHING_TAG = "kafka_s3/restored_nothing"
"""Set on the run of a restore that had no record to restore: it proves as little as a dry run."""

REPLAY_JOBS = {"replay-hours": "hours", "replay-days": "days"}
"""The jobs of a connector that restore hours or days picked on their pages, and the config's field for these."""

TOPIC_TAG = "kafka_s3/topic"
RESTORE_TAG = "kafka_s3/restore_id"
"""Tags of the runs of these jobs, which select no assets."""

PICKED_TAG = ".dagster/kafka_s3.picked"
"""Holds the key of the asset that a command's run materializes: Dagster records no selection of an in-process run."""

ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
UNENDED = tuple(s for s in dg.DagsterRunStatus if s not in {*ENDED, dg.DagsterRunStatus.MANAGED})
"""The final states of runs, and the others. No run is `MANAGED` any more."""

KIND_OF_GROUP = {"hourly": "archive", "daily": "compact", "restored": "restore", "registry": "registry"}
"""The kind of work that materializes an asset of the group."""


FAILURE_TAG = "kafka_s3/failure"
"""Tag of failed runs: `transient`, `permanent`, or `clock`, since setting a clock right changes no input of a run.

If only some assets of a run failed, or for different reasons, `FAILED_TAG` names them. This tag then holds the reason
that waits longest: `permanent` before `clock` before `transient`.
"""

KINDS = ("permanent", "clock", "transient")

Work = tuple[str, str]
"""A connector and a kind of work from WORK_KINDS."""


Subjects = Mapping[Work, Mapping[str, str]]
"""The topics of each work that can fail, by the digests of their assets. Work without assets has one topic, ""."""


def name_work_jobs(connectors: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the connector and the kind of work of each job, by the job's name."""
    kinds = {**{kind: kind for kind in WORK_KINDS}, **dict.fromkeys(REPLAY_JOBS, "restore")}
    return {make_op_name(verb, name): (name, kind) for name in connectors for verb, kind in kinds.items()}


def name_restored_op(connector: str) -> str:
    """Return the name of the op of a connector's restored assets."""
    return make_op_name("restored", connector)


def list_picked_keys(run: dg.DagsterRun, connector: str) -> set[dg.AssetKey]:
    """Return the assets that a run of the connector selected, or none if the run is of its whole job."""
    is_replay = run.job_name in {make_op_name(job, connector) for job in REPLAY_JOBS}
    topic = run.tags.get(TOPIC_TAG) if is_replay else None
    named_keys = {dg.AssetKey([connector, "restored", topic])} if topic else set()
    # what has an origin was launched through Dagster's server, where anybody can set tags
    if run.remote_job_origin is None and PICKED_TAG in run.tags:
        named_keys = {dg.AssetKey.from_user_string(run.tags[PICKED_TAG])}
    return {*(run.asset_selection or named_keys)}


def find_work(run: dg.DagsterRun, jobs: Mapping[str, tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the connector and the kind of the run's work. A run of selected assets may have a job of Dagster's own.

    A restore that sends nothing does no work: it neither succeeds nor fails.
    """
    if NOTHING_TAG in run.tags or any(read_how(run, op).get("dry_run") for op in _read_ops(run)):
        return set()
    if run.job_name in jobs:
        return {jobs[run.job_name]}
    names = {name for name, _ in jobs.values()}
    keys = [key.path for key in run.asset_selection or () if len(key.path) > 1]
    return {(path[0], KIND_OF_GROUP[path[1]]) for path in keys if path[0] in names and path[1] in KIND_OF_GROUP}


def read_how(run: dg.DagsterRun, op: str) -> Mapping[str, object]:
    """Return the section `how` of an op's config, empty if there is none."""
    section: object = _read_ops(run).get(op)
    for name in ("config", "how"):
        section = section.get(name) if isinstance(section, Mapping) else None
    return section if isinstance(section, Mapping) else {}


def _read_ops(run: dg.DagsterRun) -> Mapping[str, object]:
    """Return the section `ops` of the run's config, empty if it has none, since people write it."""
    ops = run.run_config.get("ops")
    return ops if isinstance(ops, Mapping) else {}


def list_subjects(connectors: Iterable[str], keys: Iterable[dg.AssetKey]) -> Subjects:
    """List the topics of `connectors` whose work can fail. `keys` are the keys of all assets."""
    names = frozenset(connectors)
    subjects: dict[Work, dict[str, str]] = {
        (name, kind): {digest_key(dg.AssetKey([name, kind])): ""}
        for name in names
        for kind in ("verify", "upkeep", "retain", "rehearse")
    }
    for key in keys:
        connector, group, *topic = [*key.path, ""]
        if connector in names and group in KIND_OF_GROUP:
            subjects.setdefault((connector, KIND_OF_GROUP[group]), {})[digest_key(key)] = topic[0]
    return subjects


def heals_itself(kind: str, reason: str) -> bool:
    """Return True if work that failed for this reason (see `find_failed_assets`) is requested again unchanged."""
    return kind in REPEATED_WORK and reason in {"", "transient"}


def find_failed_assets(run: dg.DagsterRun, digests_of_run: Collection[str]) -> dict[str, str]:
    """Return each failed asset's kind of failure by its digest, "" if the run was killed or ended by a defect.

    `digests_of_run` are the assets of the run.
    """
    if run.status == dg.DagsterRunStatus.SUCCESS:
        return {}
    failed_digests = read_failed(run.tags)
    if failed_digests is None:
        return dict.fromkeys(digests_of_run, run.tags.get(FAILURE_TAG, ""))
    return {digest: kind for kind, digests in failed_digests.items() for digest in digests if digest in digests_of_run}


def read_run_error(instance: dg.DagsterInstance, run_id: str) -> str:
    """Return the message of a run's error."""
    types = {DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE}
    for record in instance.get_records_for_run(run_id, of_type=types, limit=10).records:
        event = record.event_log_entry.dagster_event
        if event is not None and event.is_step_failure:
            return _describe_step(event)
        if event is not None and event.message:
            return event.message
    return "the run failed; Dagster's UI shows why"


def _describe_step(event: dg.DagsterEvent) -> str:
    """Return the error of a failed step as one line."""
    data = event.step_failure_data
    failure = data.user_failure_data
    if failure and failure.description:
        return failure.description
    if data.error is not None:
        # the last line of an error of Python is the error
        return re.sub(r"\s+", " ", data.error.message.strip()) or "failed"
    return "failed"
