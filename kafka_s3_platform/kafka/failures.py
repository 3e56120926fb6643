"""Converts errors of librdkafka and of brokers to the platform's own: one table gives the class of each code."""

# ruff: noqa: SLF001 -- the codes of librdkafka itself are public and begin with an underscore

import re
from collections.abc import Mapping
from typing import NoReturn, TypeVar

from confluent_kafka import KafkaError, KafkaException

from kafka_s3_platform.errors import (
    AuthorizationError,
    BrokerUnavailableError,
    BusyError,
    ConfigError,
    LogTruncatedError,
    MissingTopicError,
    PermanentError,
    PlatformError,
    PreflightError,
    SupersededError,
    TransientError,
)
from kafka_s3_platform.kafka.advice import advise_on_error

E = TypeVar("E", bound=PlatformError)

PARTITION_EOF = KafkaError._PARTITION_EOF
AUTO_OFFSET_RESET = KafkaError._AUTO_OFFSET_RESET
BAD_COMPRESSION = KafkaError._BAD_COMPRESSION
WRONG_STATE = KafkaError._STATE
OUTDATED = KafkaError._OUTDATED
FATAL = KafkaError._FATAL
"""Says that the client takes nothing more. Another report has the error that made it so."""

BROKERS_DOWN = KafkaError._ALL_BROKERS_DOWN
NO_LEADER = KafkaError._NOENT
GROUP_REFUSED = KafkaError.GROUP_AUTHORIZATION_FAILED
"""A consumer that only reads ignores this error: it needs the name of a group, but does not use the group."""

UNKNOWN_LOCALLY = KafkaError._UNKNOWN_PARTITION
"""Concerns the client's own view of the topic, which is empty for a moment after a broker came back."""

POSSIBLY_PERSISTED = frozenset({KafkaError._PURGE_INFLIGHT, KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT})
"""Delivery errors after which the cluster may hold the record nevertheless."""

MOVING = frozenset(
    {KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR}
)
"""Errors of a group whose coordinator moves, or comes up: it is asked again."""

_UNTRUSTED = re.compile("certificate verify failed|alert .*certificate|alert unknown ca")
"""OpenSSL's texts for a certificate that one side does not accept. Broken handshakes have the same code."""

ENTAILED = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._GAPLESS_GUARANTEE,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
)
"""Delivery errors of records that went with another one."""

CODES: Mapping[type[PlatformError], str] = {
    AuthorizationError: """
        _AUTHENTICATION SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE
        TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTH_DISABLED
        DELEGATION_TOKEN_EXPIRED DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH
        DELEGATION_TOKEN_REQUEST_NOT_ALLOWED INVALID_PRINCIPAL_TYPE PRINCIPAL_DESERIALIZATION_FAILURE
        UNACCEPTABLE_CREDENTIAL
    """,
    MissingTopicError: "_UNKNOWN_TOPIC _UNKNOWN_PARTITION UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_ID TOPIC_EXCEPTION",
    LogTruncatedError: "_LOG_TRUNCATION",
    SupersededError: "_FENCED PRODUCER_FENCED INVALID_PRODUCER_EPOCH",
    BusyError: "NON_EMPTY_GROUP GROUP_SUBSCRIBED_TO_TOPIC",
    # What the topic or a policy of the cluster does not take.
    PreflightError: "MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_TIMESTAMP INVALID_RECORD POLICY_VIOLATION",
    ConfigError: """
        _INVALID_ARG _NOT_CONFIGURED INVALID_CONFIG INVALID_PARTITIONS INVALID_REPLICATION_FACTOR
        INVALID_REPLICA_ASSIGNMENT INVALID_REQUIRED_ACKS INVALID_TRANSACTION_TIMEOUT INVALID_GROUP_ID
        INVALID_REGULAR_EXPRESSION UNSUPPORTED_COMPRESSION_TYPE
    """,
    # The first row is the end of one producer, which the next one does not meet.
    TransientError: """
        INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING UNKNOWN_PRODUCER_ID OUT_OF_ORDER_SEQUENCE_NUMBER
        DUPLICATE_SEQUENCE_NUMBER TRANSACTION_ABORTABLE TRANSACTION_COORDINATOR_FENCED UNSTABLE_OFFSET_COMMIT
        INVALID_MSG FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH INCONSISTENT_TOPIC_ID
        REASSIGNMENT_IN_PROGRESS ILLEGAL_GENERATION UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS MEMBER_ID_REQUIRED
        FENCED_INSTANCE_ID FENCED_MEMBER_EPOCH STALE_MEMBER_EPOCH UNRELEASED_INSTANCE_ID _ASSIGNMENT_LOST
        _MAX_POLL_EXCEEDED _QUEUE_FULL _RETRY _INTR _OUTDATED _PREV_IN_PROGRESS _IN_PROGRESS _CRIT_SYS_RESOURCE
    """,
    # Brokers that are down, moving or behind. Where a disk fails, another broker becomes the leader.
    BrokerUnavailableError: """
        _TRANSPORT _RESOLVE _SSL _ALL_BROKERS_DOWN _TIMED_OUT _TIMED_OUT_QUEUE _MSG_TIMED_OUT _PURGE_QUEUE
        _PURGE_INFLIGHT _WAIT_COORD _WAIT_CACHE _DESTROY_BROKER _NODE_UPDATE _UNKNOWN_BROKER _ISR_INSUFF
        REQUEST_TIMED_OUT LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION BROKER_NOT_AVAILABLE REPLICA_NOT_AVAILABLE
        NETWORK_EXCEPTION COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR
        NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_CONTROLLER UNKNOWN_CONTROLLER_ID STALE_CTRL_EPOCH
        STALE_BROKER_EPOCH CONCURRENT_TRANSACTIONS KAFKA_STORAGE_ERROR LOG_DIR_NOT_FOUND FENCED_LEADER_EPOCH
        UNKNOWN_LEADER_EPOCH OFFSET_NOT_AVAILABLE PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE
        LISTENER_NOT_FOUND THROTTLING_QUOTA_EXCEEDED REBOOTSTRAP_REQUIRED
    """,
}
"""The codes of each class, by the names that confluent-kafka has for them. Only transient errors are tried again."""

# An older confluent-kafka does not name every code.
ERROR_CLASSES: Mapping[int, type[PlatformError]] = {
    getattr(KafkaError, name): kind
    for kind, names in CODES.items()
    for name in names.split()
    if hasattr(KafkaError, name)
}
"""The class that errors of a code are raised as. Of a code that is not here, librdkafka says whether it may pass."""


def classify_error(error: KafkaException | KafkaError, what: str, connections: str = "") -> PlatformError:
    """Return the platform's error for `error` in the attempt `what`; `connections` is the client's report of them."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    detail = f"; {connections}" if connections else ""
    if not isinstance(cause, KafkaError):
        return PermanentError(f"{what}: {cause}{detail}")
    text = f"{cause.str()} ({cause.name()}){detail}"
    return _add_advice(_find_kind(cause)(f"{what}: {text}"), cause.name(), text)


def explain_silence(what: str, connections: str) -> BrokerUnavailableError:
    """Return the error for a missing answer; `connections` is the client's report of them."""
    return _add_advice(BrokerUnavailableError(f"{what}; {connections}"), "_TIMED_OUT", connections)


def _add_advice(failure: E, name: str, message: str) -> E:
    advice = advise_on_error(name, message)
    return type(failure)(f"{failure.text}. {advice.text}", code=advice.code) if advice else failure


def raise_kafka_error(error: KafkaException | KafkaError, what: str, connections: str = "") -> NoReturn:
    """Raise `classify_error`, with the client's exception as its cause."""
    raise classify_error(error, what, connections) from (error if isinstance(error, KafkaException) else None)


def _find_kind(error: KafkaError) -> type[PlatformError]:
    """Find the class in the table, or else ask librdkafka if it passes."""
    # One code, _SSL, stands for a refused certificate, which stays refused, and a broken handshake, which passes.
    if _UNTRUSTED.search(error.str()):
        return AuthorizationError
    error_class = ERROR_CLASSES.get(error.code())
    if error_class is not None:
        return error_class
    # The transaction is over, but the next one can do the same again.
    if error.txn_requires_abort():
        return TransientError
    if error.retriable():
        return BrokerUnavailableError
    return PermanentError
