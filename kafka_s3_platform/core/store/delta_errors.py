"""Translates the errors delta-rs and Arrow raise about an index to the platform's errors."""

import re
from dataclasses import replace

from deltalake.exceptions import DeltaError

from kafka_s3_platform.core.errors import (
    ConfigError,
    ErrorCode,
    IndexDamagedError,
    PlatformError,
    StoreUnavailableError,
)
from kafka_s3_platform.core.store.errors import (
    NO_TLS,
    Attempted,
    advise_on_certificate,
    advise_on_silence,
    choose_error,
    choose_forbidden,
    describe_answer,
)

_REFUSED = re.compile(r"AccessDenied|SignatureDoesNotMatch|InvalidAccessKeyId|ExpiredToken|InvalidToken")
_ANSWER = re.compile(r"non-2xx status code\W+(\d{3})\b(?:.*?<Code>(\w+)</Code>(?:\W*<Message>(.*?)</Message>)?)?")
_SHOWN = 600
_REDIRECT = re.compile(r"Received redirect without LOCATION")
_SAME_STATUS = frozenset({400, 401, 403, 405, 411, 413, 429})
"""These statuses, and all from 500 on, mean the same as for boto3. A commit that another has overtaken gets others."""
_NO_LIST = re.compile(r"performing list request.*status code\W+404\b(?!.*<Code>)")
"""An answer to a listing that no S3 server gives, not even if the bucket does not exist."""
_NO_ANSWER = re.compile(r"Generic S3 error|Error performing|error sending request|Error interacting with object store")
_NO_CONNECTION = re.compile(
    r"client error \((?:Connect|SendRequest)\)\W*(?:tcp connect error\W*)?(.*?)(?: \(os error \d+\))?$"
)
_NO_TLS = re.compile("received corrupt message")
"""The error that rustls reports for a server without TLS."""
_ABSENT = re.compile(r"Object at location \S+ not found|416 Range Not Satisfiable|404 Not Found")
_BROKEN = re.compile(
    r"Parquet error|Json error|Arrow error|Avro error|Expected contiguous commit files|Invalid Checkpoint"
    r"|No table metadata or protocol|Invalid JSON|invalid metadata|EOF"
)


DAMAGE_ADVICE = (
    "Files of the index are missing or broken, so what is archived is unknown and no run starts. Put them back: where "
    "the bucket keeps versions, the last version of each that was deleted or overwritten under that folder, else from "
    "a backup of it, after which `kafka-s3 vacuum CONNECTOR --index-put-back` has to run. Leave the objects of records "
    "as they are"
)


def classify_delta_error(attempt: str, err: Exception) -> PlatformError:
    """Return the platform's error for `err`, by its text.

    `attempt` describes what was attempted, and ends with ` at ` followed by the store.
    """
    text = _flatten_message(str(err))
    what = f"{attempt}: {text[:_SHOWN]}"
    if refusal := _find_refusal(attempt, text):
        return refusal
    if (refused := _REFUSED.search(text)) or "403 Forbidden" in text:
        return choose_forbidden(refused[0] if refused else "", "").make_error(what)
    if "invalid peer certificate" in text:
        return ConfigError(f"{what}. {advise_on_certificate(text)}", code=ErrorCode.STORE_CERT)
    if _NO_TLS.search(text):
        return ConfigError(f"{what}. {NO_TLS}", code=ErrorCode.STORE_TLS)
    if _is_damage(text):
        return IndexDamagedError(f"{what}. {DAMAGE_ADVICE}")
    connection = _NO_CONNECTION.search(text)
    code = ErrorCode.STORE_FAILS if connection is None else ErrorCode.STORE_DOWN
    if connection is not None:
        reason = connection[1] or "no connection"
        what = f"{attempt}: no answer ({reason}). {advise_on_silence(reason, attempt.rpartition(' at ')[2])}"
    return StoreUnavailableError(f"{what}; run again when the store answers", code=code)


def _find_refusal(attempt: str, text: str) -> PlatformError | None:
    """Return the error if the store answered but refuses the request, or cannot do it now, else None."""
    bucket = attempt.partition("s3://")[2].partition("/")[0]
    attempted = Attempted("", bucket, "", attempt.rpartition(" at ")[2])
    if _REDIRECT.search(text):
        return choose_error(301, "", attempted).make_error(f"{attempt}: {text[:_SHOWN]}")
    answer = _ANSWER.search(text)
    if answer is None:
        return None
    status, code = int(answer[1]), answer[2] or ""
    if _NO_LIST.search(text):
        attempted = replace(attempted, operation="ListObjectsV2")
    elif status not in _SAME_STATUS and status < 500 and code != "NoSuchBucket":
        return None
    refusal = choose_error(status, code, attempted)
    return refusal.make_error(f"{attempt}: {describe_answer(refusal.error, status, code, answer[3] or '')}")


def is_expired(err: BaseException | None) -> bool:
    """Return True if a commit was refused because the log has lost the entry of its version."""
    return isinstance(err, DeltaError) and "Invalid table version" in str(err)


def _is_damage(message: str) -> bool:
    """Return True if a file is absent or broken; a silent store proves no damage."""
    if _ABSENT.search(message):
        return True
    return _BROKEN.search(message) is not None and _NO_ANSWER.search(message) is None


def _flatten_message(text: str) -> str:
    """Join the words in one line, since delta-rs draws its errors as coloured trees over many lines."""
    return " ".join(re.sub(r"\x1b\[\d+m|↳", "", text).split())
