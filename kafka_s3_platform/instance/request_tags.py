"""The tags of runs that sensors and schedules request: each asset's inputs, and the assets that failed.

One run may be for hundreds of assets. So a tag holds no names, only a digest of 12 characters for each asset. The UI
shows no tag that begins with `.dagster/`: these are for machines. Another tag is for people.
"""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping

import dagster as dg

WINDOW_TAG = "dagster/partition"
FIRST_WINDOW_TAG = "dagster/asset_partition_range_start"
LAST_WINDOW_TAG = "dagster/asset_partition_range_end"
PRIORITY_TAG = "dagster/priority"
BACKFILL_TAG = "dagster/backfill"
FIRST_BACKFILL_TAG = "dagster/root_backfill_id"
"""Tags of Dagster's own: the partition key of a run, or the first and the last one; its priority; its backfill, and
the one which that executes again."""

REQUEST_TAG = ".dagster/kafka_s3.request"
"""Holds the common part of the run's asset keys, such as `<connector>/hourly`."""

INPUTS_TAG = ".dagster/kafka_s3.inputs"
"""Holds a digest for each asset and the fingerprint of its inputs. If it is full, another one, with `.1`, goes on."""

FAILED_TAG = ".dagster/kafka_s3.failed"
"""With `.<kind>` behind it, holds a digest for each asset that failed so. A run without such tags failed as a whole."""

TAG_SIZE = 2040
"""Postgres indexes the values of tags, and refuses one of more than about 2,700 bytes."""

DIGEST_SIZE = 12


def find_request_name(key: dg.AssetKey) -> str:
    """Return the common part of asset keys in one request: `<connector>/<group>`."""
    return "/".join(key.path[:-1])


def make_request_tags(inputs: Mapping[dg.AssetKey, str]) -> dict[str, str]:
    """Make the tags of a request for these assets, each with the fingerprint of its inputs."""
    name = find_request_name(next(iter(inputs)))
    digests = [digest_inputs(key, fingerprint) for key, fingerprint in inputs.items()]
    return {REQUEST_TAG: name, **_write(INPUTS_TAG, digests)}


def make_window_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Make the tag that shows people the hours or days of a run, from Dagster's tags of partitions.

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
    """Make the tags of a run with failed assets, from their kinds of failure."""
    tags: dict[str, str] = {}
    for kind in set(kinds.values()):
        tags |= _write(f"{FAILED_TAG}.{kind}", [digest_key(key) for key in kinds if kinds[key] == kind])
    return tags


def is_request_for(tags: Mapping[str, str], key: dg.AssetKey) -> bool:
    """Return True if the tags are of a request that may name the asset. The run's selection shows if it does."""
    return tags.get(REQUEST_TAG) == find_request_name(key)


def read_inputs(tags: Mapping[str, str]) -> frozenset[str]:
    """Return the digests of a run's assets and inputs."""
    return _read(INPUTS_TAG, tags)


def read_failed(tags: Mapping[str, str], kinds: Iterable[str]) -> Mapping[str, frozenset[str]] | None:
    """Return digests of the failed assets by the kind of failure, None if there are no such tags."""
    digests = {kind: _read(f"{FAILED_TAG}.{kind}", tags) for kind in kinds}
    return digests if any(digests.values()) else None


def find_failure(failed: Mapping[str, frozenset[str]], key: dg.AssetKey) -> str | None:
    """Return the asset's kind of failure, None if it did not fail."""
    digest = digest_key(key)
    return next((kind for kind, digests in failed.items() if digest in digests), None)


def digest_inputs(key: dg.AssetKey, fingerprint: str) -> str:
    """Return a digest of an asset and its inputs."""
    return _digest(f"{key.to_user_string()} {fingerprint}")


def digest_key(key: dg.AssetKey) -> str:
    """Return a digest of an asset."""
    return _digest(key.to_user_string())


def _digest(text: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:9]).decode()


def _write(name: str, digests: Iterable[str]) -> dict[str, str]:
    text = "".join(digests)
    parts = [text[at : at + TAG_SIZE] for at in range(0, len(text), TAG_SIZE)]
    return {f"{name}.{n}" if n else name: part for n, part in enumerate(parts)}


def _read(name: str, tags: Mapping[str, str]) -> frozenset[str]:
    digests: set[str] = set()
    parts = 0
    while text := tags.get(f"{name}.{parts}" if parts else name):
        digests.update(text[at : at + DIGEST_SIZE] for at in range(0, len(text), DIGEST_SIZE))
        parts += 1
    return frozenset(digests)
