"""Converts errors of librdkafka and of brokers to the platform's own: one table gives the class of each code."""

# ruff: noqa: SLF001 -- the codes of librdkafka itself are public and begin with an underscore

import re
from collections.abc import Mapping
from dataclasses import dataclass
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

_WHY: dict[type[PlatformError], dict[str, str]] = {
    AuthorizationError: {
        "_AUTHENTICATION": "the client could not authenticate",
        "SASL_AUTHENTICATION_FAILED": "credentials are refused",
        "UNSUPPORTED_SASL_MECHANISM": "the broker does not speak it",
        "ILLEGAL_SASL_STATE": "the listener expects another way to authenticate",
        "TOPIC_AUTHORIZATION_FAILED": "a right on the topic is missing",
        "GROUP_AUTHORIZATION_FAILED": "a right on the group is missing",
        "CLUSTER_AUTHORIZATION_FAILED": "a right on the cluster is missing",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "a right on the transactional id is missing",
        "DELEGATION_TOKEN_AUTHORIZATION_FAILED": "a right on the token is missing",
        "DELEGATION_TOKEN_AUTH_DISABLED": "the broker takes no tokens",
        "DELEGATION_TOKEN_EXPIRED": "the token has expired",
        "DELEGATION_TOKEN_NOT_FOUND": "the broker does not know the token",
        "DELEGATION_TOKEN_OWNER_MISMATCH": "the token is somebody else's",
        "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": "not over this connection",
        "INVALID_PRINCIPAL_TYPE": "the cluster does not know such principals",
        "PRINCIPAL_DESERIALIZATION_FAILURE": "a broker does not understand the principal",
        "UNACCEPTABLE_CREDENTIAL": "the credential is too weak",
    },
    MissingTopicError: {
        "_UNKNOWN_TOPIC": "the client finds no such topic",
        "_UNKNOWN_PARTITION": "the client finds no such kafka partition",
        "UNKNOWN_TOPIC_OR_PART": "the broker has none, or does not show it",
        "UNKNOWN_TOPIC_ID": "the topic was deleted",
        "TOPIC_EXCEPTION": "no topic can have such a name",
    },
    LogTruncatedError: {
        "_LOG_TRUNCATION": "the log was cut below what was read",
    },
    SupersededError: {
        "_FENCED": "a later client has this transactional id",
        "PRODUCER_FENCED": "a later producer has this transactional id",
        "INVALID_PRODUCER_EPOCH": "a later producer has this transactional id",
    },
    BusyError: {
        "NON_EMPTY_GROUP": "the group has members",
        "GROUP_SUBSCRIBED_TO_TOPIC": "the group's members consume the topic",
    },
    PreflightError: {
        "MSG_SIZE_TOO_LARGE": "the topic takes no record of that size",
        "RECORD_LIST_TOO_LARGE": "the topic takes no batch of that size",
        "INVALID_TIMESTAMP": "the topic does not take the timestamp",
        "INVALID_RECORD": "the topic does not take the record",
        "POLICY_VIOLATION": "a policy of the cluster refuses it",
    },
    ConfigError: {
        "_INVALID_ARG": "the client does not take a setting or an argument",
        "INVALID_CONFIG": "the broker does not take a config",
        "INVALID_PARTITIONS": "no topic can have that many kafka partitions",
        "INVALID_REPLICATION_FACTOR": "the cluster has fewer brokers",
        "INVALID_REPLICA_ASSIGNMENT": "the cluster has no such brokers",
        "INVALID_REQUIRED_ACKS": "no broker knows such acks",
        "INVALID_TRANSACTION_TIMEOUT": "it is longer than the broker allows",
        "INVALID_GROUP_ID": "no group can have such a name",
        "INVALID_REGULAR_EXPRESSION": "the broker does not understand it",
        "UNSUPPORTED_COMPRESSION_TYPE": "the broker does not know the codec",
        "_NOT_CONFIGURED": "a setting is missing",
    },
    TransientError: {
        "INVALID_TXN_STATE": "the end of one producer, which the next one does not meet",
        "INVALID_PRODUCER_ID_MAPPING": "the end of one producer, which the next one does not meet",
        "UNKNOWN_PRODUCER_ID": "the end of one producer, which the next one does not meet",
        "OUT_OF_ORDER_SEQUENCE_NUMBER": "the end of one producer, which the next one does not meet",
        "DUPLICATE_SEQUENCE_NUMBER": "the end of one producer, which the next one does not meet",
        "TRANSACTION_ABORTABLE": "the transaction has to be aborted, and may be tried again",
        "TRANSACTION_COORDINATOR_FENCED": "the transaction's coordinator has moved",
        "UNSTABLE_OFFSET_COMMIT": "a transaction is about to commit the offset",
        "INVALID_MSG": "a message was damaged on its way",
        "FETCH_SESSION_ID_NOT_FOUND": "the next fetch begins a session",
        "INVALID_FETCH_SESSION_EPOCH": "the next fetch begins a session",
        "INCONSISTENT_TOPIC_ID": "what the client knows of the topic is old",
        "REASSIGNMENT_IN_PROGRESS": "another reassignment goes on",
        "ILLEGAL_GENERATION": "the group has moved on",
        "UNKNOWN_MEMBER_ID": "the group has moved on",
        "REBALANCE_IN_PROGRESS": "the group has moved on",
        "MEMBER_ID_REQUIRED": "the client joins again with the id that it was given",
        "FENCED_INSTANCE_ID": "another member has the instance id",
        "FENCED_MEMBER_EPOCH": "the group has moved on",
        "STALE_MEMBER_EPOCH": "the group has moved on",
        "UNRELEASED_INSTANCE_ID": "the member before has not left yet",
        "_ASSIGNMENT_LOST": "the group has moved on",
        "_MAX_POLL_EXCEEDED": "the group has moved on",
        "_QUEUE_FULL": "the client's queue is full",
        "_RETRY": "the client says that it may be tried again",
        "_INTR": "a signal came",
        "_OUTDATED": "it came too late, and may be tried again",
        "_PREV_IN_PROGRESS": "an earlier call has not ended yet",
        "_IN_PROGRESS": "the same call has not ended yet",
        "_CRIT_SYS_RESOURCE": "this machine lacks memory or threads for the moment",
    },
    BrokerUnavailableError: {
        "_TRANSPORT": "the connection broke",
        "_RESOLVE": "no address is found for the name",
        "_SSL": "the handshake broke",
        "_ALL_BROKERS_DOWN": "no broker is connected",
        "_TIMED_OUT": "no answer in time",
        "_TIMED_OUT_QUEUE": "not sent in time",
        "_MSG_TIMED_OUT": "not acknowledged in time",
        "_PURGE_QUEUE": "taken back before it was sent",
        "_PURGE_INFLIGHT": "taken back before it was acknowledged",
        "_WAIT_COORD": "no coordinator is known yet",
        "_WAIT_CACHE": "no metadata is known yet",
        "_DESTROY_BROKER": "the broker has left the cluster",
        "_NODE_UPDATE": "the broker's address changes",
        "_UNKNOWN_BROKER": "the broker has left the cluster",
        "_ISR_INSUFF": "too few replicas are in sync",
        "REQUEST_TIMED_OUT": "the broker did not end it in time",
        "LEADER_NOT_AVAILABLE": "a leader is elected",
        "NOT_LEADER_FOR_PARTITION": "the leader has moved",
        "BROKER_NOT_AVAILABLE": "the broker is down",
        "REPLICA_NOT_AVAILABLE": "the replica is down",
        "NETWORK_EXCEPTION": "brokers do not reach each other",
        "COORDINATOR_LOAD_IN_PROGRESS": "the coordinator is coming up",
        "COORDINATOR_NOT_AVAILABLE": "the coordinator is down, or only being made",
        "NOT_COORDINATOR": "the coordinator has moved",
        "NOT_ENOUGH_REPLICAS": "too few replicas are in sync",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "too few replicas are in sync",
        "NOT_CONTROLLER": "the controller has moved",
        "UNKNOWN_CONTROLLER_ID": "the controller has moved",
        "STALE_CTRL_EPOCH": "the controller has moved",
        "STALE_BROKER_EPOCH": "the broker is coming up",
        "CONCURRENT_TRANSACTIONS": "the transaction before has not ended yet",
        "KAFKA_STORAGE_ERROR": "the broker's disk fails: another becomes the leader",
        "LOG_DIR_NOT_FOUND": "the broker's disk fails: another becomes the leader",
        "FENCED_LEADER_EPOCH": "the leader has moved",
        "UNKNOWN_LEADER_EPOCH": "the broker is behind",
        "OFFSET_NOT_AVAILABLE": "a new leader does not know its end yet",
        "PREFERRED_LEADER_NOT_AVAILABLE": "the preferred leader is down",
        "ELIGIBLE_LEADERS_NOT_AVAILABLE": "every eligible leader is down",
        "LISTENER_NOT_FOUND": "the leader has no such listener yet",
        "THROTTLING_QUOTA_EXCEEDED": "a quota is used up for the moment",
        "REBOOTSTRAP_REQUIRED": "the client has to look for the brokers anew",
    },
    PermanentError: {
        "SECURITY_DISABLED": "the cluster has no authorizer",
        "_INVALID_DIFFERENT_RECORD": "another record of the batch was refused, which says why",
        "_GAPLESS_GUARANTEE": "a record before this one was not delivered, which says why",
        "UNKNOWN": "the broker does not say what is wrong",
        "_FAIL": "the client does not say what is wrong",
        "_FATAL": "the client has ended",
        "_BAD_MSG": "a message does not parse",
        "_BAD_COMPRESSION": "a batch does not decompress",
        "_UNDERFLOW": "an answer ends too early",
        "_PARTIAL": "an answer is not whole",
        "_DESTROY": "the client was closed",
        "_FS": "a local file fails",
        "_INVALID_TYPE": "a call of ours is wrong",
        "_STATE": "a call of ours comes at the wrong time",
        "_CONFLICT": "a call of ours contradicts another",
        "_EXISTING_SUBSCRIPTION": "a call of ours contradicts another",
        "_READ_ONLY": "a call of ours is wrong",
        "_NOENT": "the client knows of no such thing",
        "_NO_OFFSET": "the client has no offset to commit",
        "_NOOP": "there was nothing to do",
        "_APPLICATION": "an error of our own",
        "_INCONSISTENT": "a call of ours contradicts another",
        "_NOT_IMPLEMENTED": "the client cannot do it",
        "_UNSUPPORTED_FEATURE": "the broker is too old",
        "_UNKNOWN_PROTOCOL": "the client does not know the protocol",
        "_UNKNOWN_GROUP": "the client knows no such group",
        "_ASSIGN_PARTITIONS": "an event, and no error",
        "_REVOKE_PARTITIONS": "an event, and no error",
        "_PARTITION_EOF": "an event, and no error",
        "_AUTO_OFFSET_RESET": "the log does not hold the offset",
        "_KEY_SERIALIZATION": "the key cannot be written",
        "_VALUE_SERIALIZATION": "the value cannot be written",
        "_KEY_DESERIALIZATION": "the key cannot be read",
        "_VALUE_DESERIALIZATION": "the value cannot be read",
        "NO_ERROR": "no error",
        "OFFSET_OUT_OF_RANGE": "the log does not hold the offset",
        "OFFSET_METADATA_TOO_LARGE": "the metadata is too long to be committed",
        "INVALID_COMMIT_OFFSET_SIZE": "the metadata is too long to be committed",
        "INVALID_MSG_SIZE": "the broker does not understand the message",
        "INVALID_REQUEST": "the broker does not understand the request",
        "UNSUPPORTED_VERSION": "the broker is too old, or too new",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT": "the topic's message format is too old",
        "TOPIC_ALREADY_EXISTS": "there is such a topic",
        "TOPIC_DELETION_DISABLED": "the cluster deletes no topics",
        "GROUP_ID_NOT_FOUND": "there is no such group",
        "GROUP_MAX_SIZE_REACHED": "the group has too many members",
        "INCONSISTENT_GROUP_PROTOCOL": "the group's members speak otherwise",
        "INVALID_SESSION_TIMEOUT": "the broker does not take the timeout",
        "UNSUPPORTED_ASSIGNOR": "the group's coordinator does not know the assignor",
        "OPERATION_NOT_ATTEMPTED": "something else of the same request has failed",
        "DUPLICATE_RESOURCE": "the request names something twice",
        "RESOURCE_NOT_FOUND": "there is no such thing",
        "ELECTION_NOT_NEEDED": "the leader is the preferred one",
        "NO_REASSIGNMENT_IN_PROGRESS": "nothing is reassigned",
        "FEATURE_UPDATE_FAILED": "the cluster does not take the feature",
        "INVALID_UPDATE_VERSION": "not a matter of clients",
        "INCONSISTENT_VOTER_SET": "not a matter of clients",
        "INVALID_REGISTRATION": "not a matter of clients",
        "INVALID_VOTER_KEY": "not a matter of clients",
        "DUPLICATE_VOTER": "not a matter of clients",
        "VOTER_NOT_FOUND": "not a matter of clients",
        "MISMATCHED_ENDPOINT_TYPE": "a controller was asked for what a broker knows",
        "UNSUPPORTED_ENDPOINT_TYPE": "a controller was asked for what a broker knows",
        "UNKNOWN_SUBSCRIPTION_ID": "of telemetry, which nothing waits for",
        "TELEMETRY_TOO_LARGE": "of telemetry, which nothing waits for",
        "FENCED_STATE_EPOCH": "of share groups, which we do not use",
        "INVALID_RECORD_STATE": "of share groups, which we do not use",
        "SHARE_SESSION_NOT_FOUND": "of share groups, which we do not use",
        "INVALID_SHARE_SESSION_EPOCH": "of share groups, which we do not use",
        "SHARE_SESSION_LIMIT_REACHED": "of share groups, which we do not use",
        "STREAMS_INVALID_TOPOLOGY": "of Kafka Streams, which we do not use",
        "STREAMS_INVALID_TOPOLOGY_EPOCH": "of Kafka Streams, which we do not use",
        "STREAMS_TOPOLOGY_FENCED": "of Kafka Streams, which we do not use",
    },
}


@dataclass(frozen=True, slots=True)
class ErrorClass:
    """The class that errors of one code are raised as, and the reason. Only transient errors are tried again."""

    kind: type[PlatformError]
    why: str


def _list_classes() -> Mapping[int, ErrorClass]:
    classes: dict[int, ErrorClass] = {}
    for kind, reasons in _WHY.items():
        for name, why in reasons.items():
            # An older confluent-kafka does not name every code.
            code = getattr(KafkaError, name, None)
            if code is not None:
                classes[code] = ErrorClass(kind, why)
    return classes


ERROR_CLASSES = _list_classes()
"""By code, every one that confluent-kafka names; retriable is what the protocol guide calls so."""


def classify_error(error: KafkaException | KafkaError, what: str, said: str = "") -> PlatformError:
    """Return the platform's error for `error`; `what` was tried, `said` is the client's report of its connections."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    detail = f"; {said}" if said else ""
    if not isinstance(cause, KafkaError):
        return PermanentError(f"{what}: {cause}{detail}")
    text = f"{cause.str()} ({cause.name()}){detail}"
    return _add_advice(_find_kind(cause)(f"{what}: {text}"), cause.name(), text)


def explain_silence(what: str, said: str) -> BrokerUnavailableError:
    """Return the error to raise where no answer came; `said` is the client's report of its connections."""
    return _add_advice(BrokerUnavailableError(f"{what}; {said}"), "_TIMED_OUT", said)


def _add_advice(failure: E, name: str, said: str) -> E:
    advice = advise_on_error(name, said)
    return type(failure)(f"{failure.text}. {advice.says}", code=advice.code) if advice else failure


def raise_kafka_error(error: KafkaException | KafkaError, what: str, said: str = "") -> NoReturn:
    """Raise `classify_error`, with the client's exception as its cause."""
    raise classify_error(error, what, said) from (error if isinstance(error, KafkaException) else None)


def _find_kind(error: KafkaError) -> type[PlatformError]:
    """Find the class in the table; librdkafka may know better of codes that are absent or permanent in general."""
    # One code, _SSL, stands for a refused certificate, which stays refused, and a broken handshake, which passes.
    if _UNTRUSTED.search(error.str()):
        return AuthorizationError
    known = ERROR_CLASSES.get(error.code())
    # PermanentError in the table may mean no more than that nothing else is known of the code.
    if known is not None and known.kind is not PermanentError:
        return known.kind
    # The transaction is over, but the next one can do the same again.
    if error.txn_requires_abort():
        return TransientError
    if error.retriable():
        return BrokerUnavailableError
    return PermanentError
