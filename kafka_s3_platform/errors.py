"""The exception tree.

PlatformError
|- TransientError            the same call may succeed later: retried with backoff
|  |- BrokerUnavailableError
|  |- StoreUnavailableError
|  |- RegistryUnavailableError
|  |- SparkUnavailableError  what this machine or the cluster of Spark lacks may be there next time
|  |- IndexConflictError     another commit came first: read the index and plan again
|  |- BusyError              another run is at work on what this one would touch
|  |- OpenTransactionError   the last stable offset waits for a producer
|- PermanentError            the same call fails again until somebody acts: never retried
   |- ConfigError            a connector or worker file
   |- AuthorizationError     credentials or rights, Kafka's or S3's
   |- MissingTopicError, TopicRecreatedError, LogTruncatedError
   |- MissingBucketError, ForeignObjectError
   |- ClockError             this machine's clock and another differ
   |- OffsetGapError         offsets were deleted before they were read
   |- SupersededError        a later reservation holds this run's ranges
   |- IntegrityError         an object or a row contradicts another
   |  |- IndexDamagedError   files of an index are missing or broken
   |- RecordError            a record cannot be archived or sent as asked, and errors are not tolerated
   |- UnresolvedOffsetsError some offsets could not be archived; everything else was
   |- PreflightError         a restore that the target would not keep as it is

Every message says what was tried, on which topic, kafka partition, range or key, and what to do.
"""

from kafka_s3_platform.text import escape_unprintable

HEAL_OBJECT = (
    "put an undamaged copy back, from the bucket's versions or a backup. While Kafka holds the records, they can also "
    "be archived again, under another connector name and another topics.dir"
)
"""What to do about a damaged object. No command mends one: Kafka may hold fewer records now than were archived."""


class PlatformError(Exception):
    """Base of every error that this platform raises on purpose. Its text is printable, foreign names included."""

    def __str__(self) -> str:
        return escape_unprintable(super().__str__())


class TransientError(PlatformError):
    """The same call may succeed later."""


class BrokerUnavailableError(TransientError):
    """No broker answered in time."""


class StoreUnavailableError(TransientError):
    """The object store did not answer, or answered that it is overloaded or full."""


class RegistryUnavailableError(TransientError):
    """The Schema Registry did not answer, or answered that it has a fault of its own."""


class SparkUnavailableError(TransientError):
    """Spark does not start. A container or a cluster that is mended needs nobody to ask for the runs again."""


class IndexConflictError(TransientError):
    """The index moved on between reading and committing."""


class BusyError(TransientError):
    """Another run is at work on what this one would touch: it has to end first."""


class OpenTransactionError(TransientError):
    """The last stable offset is held back by an open transaction."""


class PermanentError(PlatformError):
    """The same call fails again until somebody changes something."""


class ConfigError(PermanentError):
    """A connector file or the worker file cannot be used as it is."""


class AuthorizationError(PermanentError):
    """Credentials were refused or lack a right."""


class MissingTopicError(PermanentError):
    """The topic does not exist on the cluster."""


class TopicRecreatedError(PermanentError):
    """The topic's id differs from the archived one: it was deleted and created again."""


class LogTruncatedError(PermanentError):
    """The log ends before, or diverges from, what is already archived."""


class MissingBucketError(PermanentError):
    """The bucket does not exist."""


class ForeignObjectError(PermanentError):
    """An object that this platform did not write is in the way."""


class ClockError(PermanentError):
    """This machine's clock differs from the store's, or from a broker's, by more than is allowed."""


class OffsetGapError(PermanentError):
    """Offsets that were to be archived no longer exist on the broker."""


class SupersededError(PermanentError):
    """A later reservation holds ranges of this run, which may no longer commit."""


class IntegrityError(PermanentError):
    """Stored data contradicts the index."""


class IndexDamagedError(IntegrityError):
    """Files of an index are missing or broken. Until they are put back, nobody knows what is archived."""


class RecordError(PermanentError):
    """A record cannot be archived or sent as asked, and errors are not tolerated."""


class UnresolvedOffsetsError(PermanentError):
    """Some offsets could not be archived. Raised after all the others are committed."""


class PreflightError(PermanentError):
    """The target would delete, reject or alter what a restore sends."""
