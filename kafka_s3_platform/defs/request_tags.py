"""The tags of runs that sensors and schedules request. They tell each asset's inputs, and which assets failed.

One run may be for hundreds of assets. So a tag holds no names, only a digest of 12 characters for each asset. The UI
shows no tag that begins with `.dagster/`: these are for machines. What a run is about, another one tells people.
"""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping

import dagster as dg
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)

REQUEST_TAG = ".dagster/kafka_s3.request"
"""Holds what the assets of the run have in common, such as `<connector>/hourly`."""

INPUTS_TAG = ".dagster/kafka_s3.inputs"
"""Holds a digest for each asset and the fingerprint of its inputs. If it is full, another one, with `.1`, goes on."""

FAILED_TAG = ".dagster/kafka_s3.failed"
"""With `.<kind>` behind it, holds a digest for each asset that failed so. A run without such tags failed as a whole."""

TAG_SIZE = 2040
"""Postgres indexes the values of tags, and refuses one of more than about 2,700 bytes."""

DIGEST_SIZE = 12


def find_request_name(key: dg.AssetKey) -> str:
    """Return what all assets that one request may name have in common: `<connector>/<group>`."""
    return "/".join(key.path[:-1])


def make_request_tags(inputs: Mapping[dg.AssetKey, str]) -> dict[str, str]:
    """Make the tags of a request for these assets, each with the fingerprint of its inputs."""
    name = find_request_name(next(iter(inputs)))
    digests = [digest_inputs(key, fingerprint) for key, fingerprint in inputs.items()]
    return {REQUEST_TAG: name, **_write(INPUTS_TAG, digests)}


def make_window_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Make the one tag that tells people the hours or days of a run, from Dagster's tags of what was picked.

    The list of runs has room for about 33 characters of it.
    """
    first = tags.get(ASSET_PARTITION_RANGE_START_TAG) or tags.get(PARTITION_NAME_TAG)
    if not first:
        return {}
    last = tags.get(ASSET_PARTITION_RANGE_END_TAG) or first
    name = "days" if len(first) == len("2013-01-31") else "hours"
    # an hour of the same day is told by its time
    end = last.removeprefix(first[: len("2013-01-31-")])
    return {name: first if first == last else f"{first} to {end}"}


def make_failed_tags(kinds: Mapping[dg.AssetKey, str]) -> dict[str, str]:
    """Make the tags of a run in which some assets failed, from how each of them failed."""
    tags: dict[str, str] = {}
    for kind in set(kinds.values()):
        tags |= _write(f"{FAILED_TAG}.{kind}", [digest_key(key) for key in kinds if kinds[key] == kind])
    return tags


def is_request_for(tags: Mapping[str, str], key: dg.AssetKey) -> bool:
    """Return whether these are the tags of a request that may name the asset. The run's selection tells if it does."""
    return tags.get(REQUEST_TAG) == find_request_name(key)


def read_inputs(tags: Mapping[str, str]) -> frozenset[str]:
    """Return the digests of a run's assets and inputs."""
    return _read(INPUTS_TAG, tags)


def read_failed(tags: Mapping[str, str], kinds: Iterable[str]) -> Mapping[str, frozenset[str]] | None:
    """Return digests of the failed assets by the kind of failure, None if the tags do not tell them apart."""
    found = {kind: _read(f"{FAILED_TAG}.{kind}", tags) for kind in kinds}
    return found if any(found.values()) else None


def find_failure(failed: Mapping[str, frozenset[str]], key: dg.AssetKey) -> str | None:
    """Return how the asset failed, None if it did not."""
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
    found: set[str] = set()
    parts = 0
    while text := tags.get(f"{name}.{parts}" if parts else name):
        found.update(text[at : at + DIGEST_SIZE] for at in range(0, len(text), DIGEST_SIZE))
        parts += 1
    return frozenset(found)
