import pickle

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_s3_platform.errors import (
    AuthorizationError,
    BrokerUnavailableError,
    MissingTopicError,
    PermanentError,
    PlatformError,
    PreflightError,
    SupersededError,
    TransientError,
)
from kafka_s3_platform.kafka.client import Reasons
from kafka_s3_platform.kafka.failures import kafka_failure, raise_kafka_error


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (KafkaError.SASL_AUTHENTICATION_FAILED, AuthorizationError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, MissingTopicError),
        (KafkaError.REQUEST_TIMED_OUT, BrokerUnavailableError),
        (KafkaError.NOT_LEADER_FOR_PARTITION, BrokerUnavailableError),
        (KafkaError._DESTROY_BROKER, BrokerUnavailableError),  # noqa: SLF001 - as public as the others
        (KafkaError.MSG_SIZE_TOO_LARGE, PreflightError),
        (KafkaError.PRODUCER_FENCED, SupersededError),
        (KafkaError.INVALID_PRODUCER_EPOCH, SupersededError),
        (KafkaError.INVALID_TXN_STATE, TransientError),
        (KafkaError.TOPIC_ALREADY_EXISTS, PermanentError),
    ],
)
def test_errors_of_the_broker_are_told_apart(code: int, kind: type[PlatformError]) -> None:
    failure = kafka_failure(KafkaException(KafkaError(code)), "doing this to topic t", "and it said that")
    assert type(failure) is kind
    assert str(failure).startswith("doing this to topic t: ")
    assert str(failure).endswith("; and it said that")


def test_a_transaction_that_only_has_to_be_aborted_may_be_tried_again() -> None:
    error = KafkaError(KafkaError.UNKNOWN, "lost", False, False, True)
    assert type(kafka_failure(error, "sending")) is TransientError
    refused = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "large", False, False, True)
    assert type(kafka_failure(refused, "sending")) is PreflightError


def test_the_clients_exception_is_the_cause() -> None:
    error = KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT))
    with pytest.raises(BrokerUnavailableError) as raised:
        raise_kafka_error(error, "asking")
    assert raised.value.__cause__ is error


def test_refused_credentials_explain_an_answer_that_does_not_come() -> None:
    reasons = Reasons()
    timed_out = KafkaError(KafkaError.REQUEST_TIMED_OUT)
    assert isinstance(reasons.failure(timed_out, "asking"), BrokerUnavailableError)
    reasons(KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, "wrong password for alice"))
    assert isinstance(reasons.failure(timed_out, "asking"), AuthorizationError)
    assert "alice" in str(reasons.failure(timed_out, "asking"))


def test_errors_cross_process_bounds() -> None:
    failure = kafka_failure(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), "asking")
    assert str(pickle.loads(pickle.dumps(failure))) == str(failure)  # noqa: S301
