"""What delta-rs and Arrow raise over an index, as the platform's errors."""

import re

from deltalake.exceptions import DeltaError

from kafka_s3_platform.errors import (
    AuthorizationError,
    ConfigError,
    IndexDamagedError,
    MissingBucketError,
    PlatformError,
    StoreUnavailableError,
)
from kafka_s3_platform.store.errors import advise_on_certificate, advise_on_refusal

_REFUSED = re.compile(
    r"AccessDenied|SignatureDoesNotMatch|InvalidAccessKeyId|ExpiredToken|InvalidToken|\b403 Forbidden"
)
_NO_ANSWER = re.compile(r"Generic S3 error|Error performing|error sending request|Error interacting with object store")
_ABSENT = re.compile(r"Object at location \S+ not found|416 Range Not Satisfiable|404 Not Found")
_BROKEN = re.compile(
    r"Parquet error|Json error|Arrow error|Avro error|Expected contiguous commit files|Invalid Checkpoint"
    r"|No table metadata or protocol|Invalid JSON|invalid metadata|EOF"
)


DAMAGE_ADVICE = (
    "Files of the index are missing or broken, so what is archived is unknown and no run starts. Put them back: where "
    "the bucket keeps versions, the last version of each that was deleted or overwritten under that folder, else from "
    "a backup of it. Leave the objects of records as they are"
)


def classify_delta_error(attempt: str, err: Exception) -> PlatformError:
    """Return the error for `err`; `attempt` says what was tried, on which index and store."""
    text = str(err)
    what = f"{attempt}: {_flatten_message(text)}"
    if "NoSuchBucket" in text:
        return MissingBucketError(f"{what}; create the bucket or correct s3.bucket.name")
    if _REFUSED.search(text):
        return AuthorizationError(f"{what}. {advise_on_refusal(text)}")
    if "invalid peer certificate" in text:
        return ConfigError(f"{what}. {advise_on_certificate(text)}")
    if _is_damage(text):
        return IndexDamagedError(f"{what}. {DAMAGE_ADVICE}")
    return StoreUnavailableError(f"{what}; run again when the store answers")


def is_expired(err: BaseException | None) -> bool:
    """Return whether a commit was refused since the log has no entry of the version that it was made on any more."""
    return isinstance(err, DeltaError) and "Invalid table version" in str(err)


def _is_damage(message: str) -> bool:
    """Return whether a file is absent or makes no sense; a store that does not answer proves no damage."""
    if _ABSENT.search(message):
        return True
    return _BROKEN.search(message) is not None and _NO_ANSWER.search(message) is None


def _flatten_message(text: str) -> str:
    """Return the words in one line: delta-rs draws its errors as coloured trees over many lines."""
    return " ".join(re.sub(r"\x1b\[\d+m|↳", "", text).split())[:600]
