"""Calls of the admin client, each with a bound on how long its answer may take."""

import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.errors import BrokerUnavailableError, PlatformError
from kafka_s3_platform.kafka.answers import Answers
from kafka_s3_platform.kafka.client import Reasons, fetch_metadata, open_admin
from kafka_s3_platform.waits import waiting_for

# What librdkafka is given for one call.
TIMEOUT_SECONDS = 30.0
GRACE_SECONDS = 5.0
"""How much longer we wait for a future than librdkafka waits, and how long after a refusal."""

BEGIN_SECONDS = 2.0
"""How much longer after the grace, where nothing was begun and connections are refused or closed."""

_answered: set[str] = set()
"""The clusters that have answered this process. One that goes away then may be restarting: it is waited for."""

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class AdminCalls:
    """One cluster's admin client.

    A client that `begins` a command or a run soon reports refused connections to the cluster's addresses.
    """

    def __init__(
        self, settings: KafkaSettings, timeout_seconds: float = TIMEOUT_SECONDS, *, begins: bool = False
    ) -> None:
        self.settings = settings
        self._begins = begins
        self._bootstrap_servers = settings.bootstrap_servers
        self._timeout = timeout_seconds
        self._reasons = Reasons()
        self._opened = ExitStack()
        self._client: AdminClient = self._opened.enter_context(open_admin(settings, self._reasons))

    def close(self) -> None:
        """Serve librdkafka's last events, and end it.

        Left to Python's cycle collector, which may run in a thread of librdkafka's, it would abort the process
        (confluent-kafka-python's pull request 2131).
        """
        self._client.poll(0)
        self._opened.close()

    def ask(self, call: "Callable[[AdminClient, float], Future[T]]", what: str) -> T:
        """Return the answer to a call, which gets the admin client and its request timeout; `what` is for errors."""
        answer: T = self._answer(call(self._client, self._timeout), what)
        return answer

    def _metadata(self, topic: str | None, what: str) -> ClusterMetadata:
        """Return a broker's metadata of the topic, or of all topics.

        First wait for GRACE_SECONDS only, to report a refusal soon, and then for the whole timeout.
        """
        try:
            return self._listed(topic, min(GRACE_SECONDS, self._timeout), what)
        except BrokerUnavailableError:
            return self._listed(topic, self._timeout, what)

    def _listed(self, topic: str | None, seconds: float, what: str) -> ClusterMetadata:
        where = f"{what} at {self._bootstrap_servers}"
        with self._waiting():
            metadata = fetch_metadata(self._client, topic, seconds, self._reasons, where)
        self._note_answer()
        return metadata

    def _answers(self, calls: "Mapping[K, Future[Any]]", what: Callable[[K], str]) -> Answers[K, Any]:
        """Return the answers to the questions of one call. Raises the error if no broker answers the call."""
        results: dict[K, Any] = {}
        failures: dict[K, PlatformError] = {}
        for key, future in calls.items():
            try:
                results[key] = self._wait(future, what(key))
            except KafkaException as err:
                failures[key] = self._failure(err, what(key))
                failures[key].__cause__ = err
        return Answers(results, failures)

    def _answer(self, future: "Future[Any]", what: str) -> Any:
        try:
            return self._wait(future, what)
        except KafkaException as err:
            raise self._failure(err, what) from err

    def _wait(self, future: "Future[Any]", what: str) -> Any:
        """Wait for the answer. librdkafka repeats refused calls until its time is over; we wait for the grace only."""
        question = f"{what} at {self._bootstrap_servers}"
        with self._waiting():
            try:
                answer = future.result(timeout=GRACE_SECONDS)
            except FutureTimeoutError:
                self._client.poll(0)
                if refusal := self._reasons.refusal(question):
                    raise refusal from None
                answer = self._late(future, question)
        self._note_answer()
        return answer

    def _waiting(self) -> AbstractContextManager[None]:
        return waiting_for(f"Kafka at {self._bootstrap_servers}")

    def _note_answer(self) -> None:
        self._reasons.forget()
        _answered.add(self._bootstrap_servers)

    def _late(self, future: "Future[Any]", question: str) -> Any:
        """Wait on for a late answer, unless in vain. A busy machine hears late of a refusal."""
        ends = time.monotonic() + self._timeout
        addresses = self._bootstrap_servers.split(",")
        while True:
            are_refusals = self._reasons.are_refusals(len(addresses))
            is_in_vain = self._begins and are_refusals and self._bootstrap_servers not in _answered
            rest = max(0.0, ends - time.monotonic())
            try:
                return future.result(timeout=min(BEGIN_SECONDS, rest))
            except FutureTimeoutError as err:
                self._client.poll(0)
                if is_in_vain or not rest:
                    raise self._reasons.silence(f"{question}: no answer in time") from err

    def _failure(self, err: KafkaException, what: str) -> PlatformError:
        self._client.poll(0)
        return self._reasons.failure(err, f"{what} at {self._bootstrap_servers}")
