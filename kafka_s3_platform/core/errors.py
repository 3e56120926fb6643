"""The exception tree. A `TransientError` is retried with backoff, a `PermanentError` is not until somebody acts.

Every message names the attempt, its topic, kafka partition, range or key, and the remedy. It begins with a code, and
`docs/runbook.md` has a section for each code.
"""

import errno
import re
from collections.abc import Iterator
from enum import StrEnum, unique
from typing import Self

from kafka_s3_platform.core.text import escape_unprintable, make_anchor

HEAL_OBJECT = (
    "put an undamaged copy back, from the bucket's versions or a backup. While Kafka holds the records, they can also "
    "be archived again, under another connector name and another topics.dir"
)
"""The remedy for a damaged object. No command mends one, since Kafka may now hold fewer records than were archived."""


@unique
class ErrorCode(StrEnum):
    """Names a kind of error, for people and for searches. The user sees it, and the runbook has a section for it.

    A code never changes; a new kind gets a new one. `meaning` is the sentence in the section's heading.
    """

    meaning: str

    def __new__(cls, code: str, meaning: str) -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    KAFKA_DOWN = "KS-KAFKA-DOWN", "No broker answers"
    KAFKA_NAME = "KS-KAFKA-NAME", "No address is found for a broker's name"
    KAFKA_TLS = "KS-KAFKA-TLS", "The broker's port speaks another protocol than security.protocol says"
    KAFKA_CERT = "KS-KAFKA-CERT", "A certificate is not accepted between Kafka and us"
    KAFKA_LOGIN = "KS-KAFKA-LOGIN", "The broker refuses the login"
    KAFKA_RIGHTS = "KS-KAFKA-RIGHTS", "A right at Kafka is missing"
    KAFKA_TOPIC = "KS-KAFKA-TOPIC", "The cluster has no such topic"
    KAFKA_RECREATED = "KS-KAFKA-RECREATED", "The topic was deleted and created again"
    KAFKA_TRUNCATED = "KS-KAFKA-TRUNCATED", "The log has lost what was read before"
    KAFKA_GAP = "KS-KAFKA-GAP", "Offsets were deleted before they were archived"
    KAFKA_TRANSACTION = "KS-KAFKA-TRANSACTION", "An open transaction holds records back"
    STORE_DOWN = "KS-STORE-DOWN", "The store does not answer"
    STORE_FAILS = "KS-STORE-FAILS", "The store is overloaded, failing, or its disk is full"
    STORE_TLS = "KS-STORE-TLS", "The store's port speaks TLS and the URL says http, or the other way round"
    STORE_CERT = "KS-STORE-CERT", "The store's certificate is not accepted"
    STORE_LOGIN = "KS-STORE-LOGIN", "The store does not accept the credentials"
    STORE_RIGHTS = "KS-STORE-RIGHTS", "The store forbids the request"
    STORE_BUCKET = "KS-STORE-BUCKET", "The bucket does not exist"
    STORE_REGION = "KS-STORE-REGION", "The bucket is in another region, or behind another endpoint"
    STORE_REFUSED = "KS-STORE-REFUSED", "The store does not take a request as it is"
    STORE_OBJECT = "KS-STORE-OBJECT", "An object is missing, or was replaced"
    STORE_FOREIGN = "KS-STORE-FOREIGN", "Somebody else's object is in the way"
    REGISTRY_DOWN = "KS-REGISTRY-DOWN", "The Schema Registry does not answer"
    REGISTRY_TLS = "KS-REGISTRY-TLS", "The registry's port speaks TLS and the URL says http, or the other way round"
    REGISTRY_CERT = "KS-REGISTRY-CERT", "The registry's certificate is not accepted"
    REGISTRY_LOGIN = "KS-REGISTRY-LOGIN", "The registry refuses the credentials"
    REGISTRY_URL = "KS-REGISTRY-URL", "What answers at the URL is no Schema Registry"
    REGISTRY_SCHEMA = "KS-REGISTRY-SCHEMA", "The registry does not take a schema"
    INDEX_CONFLICT = "KS-INDEX-CONFLICT", "Another commit to the index came first"
    INDEX_DAMAGED = "KS-INDEX-DAMAGED", "Files of the index are missing or broken"
    ARCHIVE_TOPIC = "KS-ARCHIVE-TOPIC", "Nothing of the topic is archived"
    ARCHIVE_DATA = "KS-ARCHIVE-DATA", "Stored data contradicts the index"
    ARCHIVE_RECORD = "KS-ARCHIVE-RECORD", "A record cannot be archived or sent as asked"
    ARCHIVE_UNRESOLVED = "KS-ARCHIVE-UNRESOLVED", "Some offsets could not be archived"
    RUN_SUPERSEDED = "KS-RUN-SUPERSEDED", "A later run or client has taken over"
    RUN_BUSY = "KS-RUN-BUSY", "Another run, or a consumer, is at work there"
    RESTORE_REFUSED = "KS-RESTORE-REFUSED", "The target would not keep what a restore sends"
    CONFIG = "KS-CONFIG", "A file, a setting or an argument cannot be used as it is"
    CLOCK = "KS-CLOCK", "This machine's clock and another differ"
    JAVA = "KS-JAVA", "There is no Java, or it is too old"
    SPARK = "KS-SPARK", "Spark does not start, or gave a task up"
    DISK = "KS-DISK", "There is no room on this machine's disk"
    DAGSTER = "KS-DAGSTER", "Dagster's storage does not answer"
    OTHER = "KS-OTHER", "Any other error"

    @property
    def heading(self) -> str:
        """The heading of its section in `docs/runbook.md`."""
        return f"{self.value}: {self.meaning}"

    @property
    def section(self) -> str:
        """The place of its section in the repository."""
        return f"docs/runbook.md#{make_anchor(self.heading)}"


_CODED = re.compile(r"\[(KS-[A-Z-]+)\]")


def find_code(text: str) -> ErrorCode | None:
    """Return the code in the text of an error, the first if there are several, or None if there is none."""
    codes = {code.value: code for code in ErrorCode}
    return next((codes[name] for name in _CODED.findall(text) if name in codes), None)


class PlatformError(Exception):
    """Base of all errors that this platform raises on purpose. Its text is printable, including foreign names.

    The text begins with the code of the class, or the given one. The code does not come last, since the text may end
    with a command to copy. If it holds the text of another error, it has the code of the other, which is the cause.
    """

    code = ErrorCode.OTHER

    def __init__(self, *args: object, code: ErrorCode | None = None) -> None:
        super().__init__(*args)
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return self.text if _CODED.search(self.text) else f"[{self.code.value}] {self.text}"

    @property
    def text(self) -> str:
        """The message without its code."""
        return escape_unprintable(super().__str__())

    def retell(self, text: str) -> "PlatformError":
        """Return an error of the same class and kind with another text."""
        return type(self)(text, code=self.code)


class TransientError(PlatformError):
    """The same call may succeed later."""


class FullDiskError(TransientError):
    """A disk of this machine is full."""

    code = ErrorCode.DISK


class BrokerUnavailableError(TransientError):
    """No broker answered in time."""

    code = ErrorCode.KAFKA_DOWN


class StoreUnavailableError(TransientError):
    """The object store did not answer, or reported itself overloaded or full."""

    code = ErrorCode.STORE_DOWN


class RegistryUnavailableError(TransientError):
    """The Schema Registry did not answer, or reported a fault of its own."""

    code = ErrorCode.REGISTRY_DOWN


class SparkUnavailableError(TransientError):
    """Spark does not start, or has ended. Once its container or cluster is mended, runs are requested automatically."""

    code = ErrorCode.SPARK


class IndexConflictError(TransientError):
    """The index moved on between reading and committing."""

    code = ErrorCode.INDEX_CONFLICT


class BusyError(TransientError):
    """Another run is at work on the same data, and has to end first."""

    code = ErrorCode.RUN_BUSY


class OpenTransactionError(TransientError):
    """The last stable offset is held back by an open transaction."""

    code = ErrorCode.KAFKA_TRANSACTION


class PermanentError(PlatformError):
    """The same call fails again until somebody changes something."""


class ConfigError(PermanentError):
    """A connector file or the worker file cannot be used as it is."""

    code = ErrorCode.CONFIG


class AuthorizationError(PermanentError):
    """Credentials were refused, or they lack a right."""


class MissingTopicError(PermanentError):
    """The topic does not exist on the cluster."""

    code = ErrorCode.KAFKA_TOPIC


class TopicRecreatedError(PermanentError):
    """The topic's id differs from the archived one: it was deleted and created again."""

    code = ErrorCode.KAFKA_RECREATED


class LogTruncatedError(PermanentError):
    """The log ends before, or diverges from, the archived records."""

    code = ErrorCode.KAFKA_TRUNCATED


class MissingBucketError(PermanentError):
    """The bucket does not exist."""

    code = ErrorCode.STORE_BUCKET


class ForeignObjectError(PermanentError):
    """An object that this platform did not write is in the way."""

    code = ErrorCode.STORE_FOREIGN


class ClockError(PermanentError):
    """This machine's clock differs from the store's, or from a broker's, by more than is allowed."""

    code = ErrorCode.CLOCK


class OffsetGapError(PermanentError):
    """Offsets due for archiving no longer exist on the broker."""

    code = ErrorCode.KAFKA_GAP


class SupersededError(PermanentError):
    """A later reservation holds ranges of this run, which may no longer commit."""

    code = ErrorCode.RUN_SUPERSEDED


class IntegrityError(PermanentError):
    """Stored data contradicts the index."""

    code = ErrorCode.ARCHIVE_DATA


class IndexDamagedError(IntegrityError):
    """Files of an index are missing or broken. Until they are put back, nobody knows what is archived."""

    code = ErrorCode.INDEX_DAMAGED


class RecordError(PermanentError):
    """A record cannot be archived or sent as asked, and errors are not tolerated."""

    code = ErrorCode.ARCHIVE_RECORD


class UnresolvedOffsetsError(PermanentError):
    """Some offsets could not be archived. This is raised after all others were committed."""

    code = ErrorCode.ARCHIVE_UNRESOLVED


class PreflightError(PermanentError):
    """A restore, or a step of it, is refused, since records or offsets would be lost, altered or repeated."""

    code = ErrorCode.RESTORE_REFUSED


def explain_full_disk(err: BaseException) -> FullDiskError | None:
    """Return the error to raise if a full disk of this machine, or the user's full quota, caused `err`, else None."""
    for cause in iterate_causes(err):
        if isinstance(cause, OSError) and cause.errno in {errno.ENOSPC, errno.EDQUOT}:
            place = cause.filename or "no file is named: mostly a temporary one, in TMPDIR or SPARK_LOCAL_DIRS"
            return FullDiskError(f"{cause.strerror} ({place}). Make room on this machine's disk, and run again")
    return None


def iterate_causes(err: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, the innermost last."""
    cause: BaseException | None = err
    while cause is not None:
        yield cause
        # urllib3 hands over its cause as an argument
        inner = next((argument for argument in cause.args if isinstance(argument, Exception)), None)
        cause = cause.__cause__ or cause.__context__ or inner
