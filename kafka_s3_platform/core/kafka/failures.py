"""Converts errors of librdkafka and of brokers to the platform's own: one table gives the class of each code.

Another table gives the remedy, by the words of brokers and librdkafka.
"""

# ruff: noqa: SLF001 -- the codes of librdkafka itself are public and begin with an underscore

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from kafka_s3_platform.core.errors import (
    AuthorizationError,
    BrokerUnavailableError,
    BusyError,
    ConfigError,
    ErrorCode,
    LogTruncatedError,
    MissingTopicError,
    PermanentError,
    PlatformError,
    PreflightError,
    SupersededError,
    TransientError,
)


@dataclass(frozen=True, slots=True)
class Advice:
    """The kind of an error, and its remedy, written as a sentence without a full stop."""

    code: ErrorCode
    text: str


_RIGHTS = "docs/rights.md lists the rights that each run needs"
_TLS_AT_PORT = (
    "If the broker runs, this port speaks TLS: set security.protocol to SSL, or to SASL_SSL where it asks for a login"
)
_NO_TLS_AT_PORT = (
    "This port does not speak TLS: set security.protocol to PLAINTEXT, or to SASL_PLAINTEXT where it asks for a login, "
    "or name the port that does in bootstrap.servers"
)
_LOGIN_AT_PORT = (
    "If the broker runs, this port asks for a login: set security.protocol to {}, and sasl.mechanism, user and password"
)
_NO_LOGIN_AT_PORT = (
    "This port takes no login: set security.protocol to PLAINTEXT, or to SSL where it speaks TLS, or name the port "
    "that does in bootstrap.servers"
)
_NO_KAFKA = (
    "What answers at that port does not speak Kafka as security.protocol says: correct the port in bootstrap.servers, "
    "or security.protocol"
)
_UNTRUSTED_WORDS = (
    "The broker's certificate is of an authority that ssl.ca.location does not name, or is out of date, or holds "
    "another name than the broker is called by. `openssl s_client -connect HOST:PORT -CAfile FILE -verify_hostname "
    "HOST` tells which (-verify_ip where HOST is an address)"
)
_OWN_UNTRUSTED = (
    "The broker asks for a certificate and accepts none of ours: have ssl.certificate.location and ssl.key.location "
    "name one of an authority that it knows"
)
_NAME = (
    "Correct the name in bootstrap.servers. If it is right, or is one that the brokers give for themselves "
    "(advertised.listeners), have this machine's name service know it"
)
_REFUSED = (
    "Nothing listens there: check that the brokers run, and that bootstrap.servers, or advertised.listeners of the "
    "brokers, name their addresses"
)
_LOGIN = "Correct sasl.username and sasl.password (sasl.jaas.config has both), or sasl.mechanism"
_REACH = "Check that the brokers run, and that this machine reaches them; run again when they answer"
_BROKER_DISK = "The disk of the broker that leads fails or is full: look at its log; run again when another one leads"
_REPLICAS = "Too few replicas are in sync: start the brokers that are down, or wait until they have caught up"
LOWER_TIMEOUT = (
    "Set producer.transaction.timeout.ms of the target's worker file to the brokers' transaction.max.timeout.ms or less"
)
_TOPIC = "Correct the topic's name, or create the topic"

_BY_WORDS: tuple[tuple[str, Advice], ...] = (
    (r"alert .*certificate|alert unknown ca", Advice(ErrorCode.KAFKA_CERT, _OWN_UNTRUSTED)),
    (r"certificate verify failed", Advice(ErrorCode.KAFKA_CERT, _UNTRUSTED_WORDS)),
    (r"connecting to a PLAINTEXT broker listener", Advice(ErrorCode.KAFKA_TLS, _NO_TLS_AT_PORT)),
    (r"current SASL state", Advice(ErrorCode.KAFKA_LOGIN, _NO_LOGIN_AT_PORT)),
    (
        r"Unsupported SASL mechanism",
        Advice(ErrorCode.KAFKA_LOGIN, "Set sasl.mechanism to one of those that the broker lists"),
    ),
    (
        r"No provider for SASL mechanism",
        Advice(ErrorCode.CONFIG, "Set sasl.mechanism to one of those that this client is built with"),
    ),
    (r"Invalid response size", Advice(ErrorCode.KAFKA_TLS, _NO_KAFKA)),
    (r"Failed to resolve", Advice(ErrorCode.KAFKA_NAME, _NAME)),
    (r"Connection refused", Advice(ErrorCode.KAFKA_DOWN, _REFUSED)),
    # librdkafka names the protocol before the address, unless it is PLAINTEXT.
    (
        r"(?:^|[ ;])(?:sasl_plaintext://)?[^/ ]+/\w+: Disconnected.* in state APIVERSION_QUERY",
        Advice(ErrorCode.KAFKA_TLS, _TLS_AT_PORT),
    ),
    (
        # The error is this one or an SSL error, above, depending on how much of the broker's answer has arrived.
        r"(?:^|[ ;])(?:sasl_)?ssl://[^/ ]+/\w+: Disconnected.* in state SSL_HANDSHAKE",
        Advice(ErrorCode.KAFKA_TLS, f"If the broker runs: {_NO_TLS_AT_PORT[0].lower()}{_NO_TLS_AT_PORT[1:]}"),
    ),
    (
        r"(?:^|[ ;])ssl://[^/ ]+/\w+: Disconnected.*after \d{1,3}ms in state UP",
        Advice(ErrorCode.KAFKA_TLS, _LOGIN_AT_PORT.format("SASL_SSL")),
    ),
    (
        r"(?:^|[ ;])[^/ ]+/\w+: Disconnected.*after \d{1,3}ms in state UP",
        Advice(ErrorCode.KAFKA_TLS, _LOGIN_AT_PORT.format("SASL_PLAINTEXT")),
    ),
)
"""The advice about connection errors: the first pattern found decides. Answers of brokers are about something else."""

_BY_NAME: Mapping[str, Advice] = {
    "_AUTHENTICATION": Advice(ErrorCode.KAFKA_LOGIN, _LOGIN),
    "SASL_AUTHENTICATION_FAILED": Advice(ErrorCode.KAFKA_LOGIN, _LOGIN),
    **{
        f"{name}_AUTHORIZATION_FAILED": Advice(ErrorCode.KAFKA_RIGHTS, f"The user lacks a right on {what}: {_RIGHTS}")
        for name, what in (
            ("TOPIC", "the topic"),
            ("GROUP", "the group"),
            ("CLUSTER", "the cluster"),
            ("TRANSACTIONAL_ID", "the transactional id"),
        )
    },
    "INVALID_TRANSACTION_TIMEOUT": Advice(ErrorCode.CONFIG, LOWER_TIMEOUT),
    "KAFKA_STORAGE_ERROR": Advice(ErrorCode.KAFKA_DOWN, _BROKER_DISK),
    "NOT_ENOUGH_REPLICAS": Advice(ErrorCode.KAFKA_DOWN, _REPLICAS),
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": Advice(ErrorCode.KAFKA_DOWN, _REPLICAS),
    "UNKNOWN_TOPIC_OR_PART": Advice(ErrorCode.KAFKA_TOPIC, _TOPIC),
    "_UNKNOWN_TOPIC": Advice(ErrorCode.KAFKA_TOPIC, _TOPIC),
    **{
        name: Advice(ErrorCode.KAFKA_DOWN, _REACH)
        for name in ("_ALL_BROKERS_DOWN", "_MSG_TIMED_OUT", "_RESOLVE", "_SSL", "_TIMED_OUT", "_TRANSPORT")
    },
}


def advise_on_error(name: str, message: str) -> Advice | None:
    """Return the kind of an error and its remedy, or None if they are unknown.

    Args:
        name: the name of the error's code.
        message: the broker's or the client's report on the error and on its connections.
    """
    is_of_client = name.startswith("_") or name == "SASL_AUTHENTICATION_FAILED"
    matching = (advice for words, advice in _BY_WORDS if is_of_client and re.search(words, message))
    return next(matching, _BY_NAME.get(name))


E = TypeVar("E", bound=PlatformError)

PARTITION_EOF = KafkaError._PARTITION_EOF
AUTO_OFFSET_RESET = KafkaError._AUTO_OFFSET_RESET
BAD_COMPRESSION = KafkaError._BAD_COMPRESSION
WRONG_STATE = KafkaError._STATE
OUTDATED = KafkaError._OUTDATED
FATAL = KafkaError._FATAL
"""The code that says that the client accepts nothing more. Another report has the error that caused this."""

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
"""Errors of a group whose coordinator is moving or starting, after which it is asked again."""

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
"""Delivery errors of records that failed only because another one did."""

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
    # The topic, or a policy of the cluster, rejects the record or topic.
    PreflightError: "MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_TIMESTAMP INVALID_RECORD POLICY_VIOLATION",
    ConfigError: """
        _INVALID_ARG _NOT_CONFIGURED INVALID_CONFIG INVALID_PARTITIONS INVALID_REPLICATION_FACTOR
        INVALID_REPLICA_ASSIGNMENT INVALID_REQUIRED_ACKS INVALID_TRANSACTION_TIMEOUT INVALID_GROUP_ID
        INVALID_REGULAR_EXPRESSION UNSUPPORTED_COMPRESSION_TYPE
    """,
    # The first row ends one producer, but does not affect the next one.
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
"""The class that errors of each code are raised as. For any other code, librdkafka says if the error may pass."""


def classify_error(error: KafkaException | KafkaError, what: str, connections: str = "") -> PlatformError:
    """Return the platform's error for `error` in the attempt `what`, with the client's report on its `connections`."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    detail = f"; {connections}" if connections else ""
    if not isinstance(cause, KafkaError):
        return PermanentError(f"{what}: {cause}{detail}")
    text = f"{cause.str()} ({cause.name()}){detail}"
    return _add_advice(_find_kind(cause)(f"{what}: {text}"), cause.name(), text)


def explain_silence(what: str, connections: str) -> BrokerUnavailableError:
    """Return the error for a missing answer, with the client's report on its `connections`."""
    return _add_advice(BrokerUnavailableError(f"{what}; {connections}"), "_TIMED_OUT", connections)


def _add_advice(failure: E, name: str, message: str) -> E:
    """Return the failure with the remedy's text and code, if the table has a remedy."""
    advice = advise_on_error(name, message)
    return type(failure)(f"{failure.text}. {advice.text}", code=advice.code) if advice else failure


def _find_kind(error: KafkaError) -> type[PlatformError]:
    """Return the class to raise: by the text of a refused certificate, else by the code, else by librdkafka's flags."""
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
