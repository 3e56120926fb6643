"""librdkafka's and the broker's errors, told apart as the platform's own."""

# ruff: noqa: SLF001 -- the codes of librdkafka itself are public and begin with an underscore

import re
from typing import NoReturn

from confluent_kafka import KafkaError, KafkaException

from kafka_s3_platform.errors import (
    AuthorizationError,
    BrokerUnavailableError,
    ConfigError,
    LogTruncatedError,
    MissingTopicError,
    PermanentError,
    PlatformError,
    PreflightError,
    SupersededError,
    TransientError,
)

PARTITION_EOF = KafkaError._PARTITION_EOF
AUTO_OFFSET_RESET = KafkaError._AUTO_OFFSET_RESET
WRONG_STATE = KafkaError._STATE
NO_LEADER = KafkaError._NOENT
GROUP_REFUSED = KafkaError.GROUP_AUTHORIZATION_FAILED
"""No matter to a consumer that only reads: it has to have a group's name, and makes no use of the group."""

UNKNOWN_LOCALLY = KafkaError._UNKNOWN_PARTITION
"""Of the client's own view of the topic, which is empty for a moment after a broker came back."""

POSSIBLY_PERSISTED = frozenset({KafkaError._PURGE_INFLIGHT, KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT})
"""Delivery errors after which the cluster may hold the record nevertheless."""

_UNTRUSTED = re.compile("certificate verify failed|alert .*certificate|alert unknown ca")
"""What OpenSSL says of a certificate that one side does not accept. Broken handshakes have the same code."""

ENTAILED = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._GAPLESS_GUARANTEE,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
)
"""Delivery errors of records that went with another one."""

_CODES: dict[type[PlatformError], frozenset[int]] = {
    AuthorizationError: frozenset(
        {
            KafkaError._AUTHENTICATION,
            KafkaError.SASL_AUTHENTICATION_FAILED,
            KafkaError.UNSUPPORTED_SASL_MECHANISM,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        }
    ),
    MissingTopicError: frozenset(
        {
            KafkaError._UNKNOWN_TOPIC,
            KafkaError._UNKNOWN_PARTITION,
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError.UNKNOWN_TOPIC_ID,
            KafkaError.TOPIC_EXCEPTION,
        }
    ),
    LogTruncatedError: frozenset({KafkaError._LOG_TRUNCATION}),
    SupersededError: frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}),
    # The end of one producer, which the next one does not meet.
    TransientError: frozenset(
        {
            KafkaError.INVALID_TXN_STATE,
            KafkaError.INVALID_PRODUCER_ID_MAPPING,
            KafkaError.UNKNOWN_PRODUCER_ID,
            KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
            KafkaError.UNSTABLE_OFFSET_COMMIT,
        }
    ),
    PreflightError: frozenset(
        {
            KafkaError.MSG_SIZE_TOO_LARGE,
            KafkaError.RECORD_LIST_TOO_LARGE,
            KafkaError.INVALID_TIMESTAMP,
            KafkaError.INVALID_RECORD,
            KafkaError.POLICY_VIOLATION,
        }
    ),
    ConfigError: frozenset(
        {
            KafkaError._INVALID_ARG,
            KafkaError.INVALID_CONFIG,
            KafkaError.INVALID_PARTITIONS,
            KafkaError.INVALID_REPLICATION_FACTOR,
        }
    ),
    BrokerUnavailableError: frozenset(
        {
            KafkaError._TRANSPORT,
            KafkaError._RESOLVE,
            KafkaError._SSL,
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._TIMED_OUT,
            KafkaError._TIMED_OUT_QUEUE,
            KafkaError._MSG_TIMED_OUT,
            KafkaError._PURGE_QUEUE,
            KafkaError._PURGE_INFLIGHT,
            KafkaError._WAIT_COORD,
            KafkaError._WAIT_CACHE,
            KafkaError._DESTROY_BROKER,
            KafkaError.REQUEST_TIMED_OUT,
            # What the protocol guide calls retriable, and librdkafka does not: its own flag is for transactions.
            KafkaError.LEADER_NOT_AVAILABLE,
            KafkaError.NOT_LEADER_FOR_PARTITION,
            KafkaError.BROKER_NOT_AVAILABLE,
            KafkaError.REPLICA_NOT_AVAILABLE,
            KafkaError.NETWORK_EXCEPTION,
            KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
            KafkaError.COORDINATOR_NOT_AVAILABLE,
            KafkaError.NOT_COORDINATOR,
            KafkaError.NOT_ENOUGH_REPLICAS,
            KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            KafkaError.NOT_CONTROLLER,
            KafkaError.CONCURRENT_TRANSACTIONS,
            KafkaError.KAFKA_STORAGE_ERROR,
            KafkaError.FENCED_LEADER_EPOCH,
            KafkaError.UNKNOWN_LEADER_EPOCH,
            KafkaError.OFFSET_NOT_AVAILABLE,
            KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
            KafkaError.THROTTLING_QUOTA_EXCEEDED,
        }
    ),
}


def kafka_failure(error: KafkaException | KafkaError, what: str, said: str = "") -> PlatformError:
    """The platform's error for `error`; `what` was tried, `said` is what the client said of its connections."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    detail = f"; {said}" if said else ""
    if not isinstance(cause, KafkaError):
        return PermanentError(f"{what}: {cause}{detail}")
    return _kind(cause)(f"{what}: {cause.str()} ({cause.name()}){detail}")


def raise_kafka_error(error: KafkaException | KafkaError, what: str, said: str = "") -> NoReturn:
    """Raise `kafka_failure`, with the client's exception as its cause."""
    raise kafka_failure(error, what, said) from (error if isinstance(error, KafkaException) else None)


def _kind(error: KafkaError) -> type[PlatformError]:
    if _UNTRUSTED.search(error.str()):
        return AuthorizationError
    for kind, codes in _CODES.items():
        if error.code() in codes:
            return kind
    if error.txn_requires_abort():
        return TransientError
    return BrokerUnavailableError if error.retriable() else PermanentError
