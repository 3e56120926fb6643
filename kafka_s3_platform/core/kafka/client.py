"""The common part of all our librdkafka clients: properties, logging, the reasons for failures, admin calls.

Each call has a limit on how long its answer may take.
"""

import logging
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Literal, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata

from kafka_s3_platform.core.aws_login import replace_msk_login
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import AuthorizationError, BrokerUnavailableError, PlatformError
from kafka_s3_platform.core.kafka.answers import Answers
from kafka_s3_platform.core.kafka.failures import BROKERS_DOWN, classify_error, explain_silence
from kafka_s3_platform.core.waits import waiting_for

logger = logging.getLogger(__name__)


class Reasons:
    """The connection errors librdkafka has reported since the last answer, which explain a missing answer."""

    def __init__(self) -> None:
        self._latest: dict[int, KafkaError] = {}
        self._closed = ""
        self._failed_addresses: set[str] = set()

    def __call__(self, error: KafkaError) -> None:
        self._latest[error.code()] = error
        address, is_bootstrap, _ = error.str().partition("/bootstrap: ")
        if is_bootstrap:
            self._failed_addresses.add(address)

    def __str__(self) -> str:
        # librdkafka reports that brokers are down at any failure, and miscounts them. Any other reason explains more.
        messages = [error.str() for code, error in self._latest.items() if code != BROKERS_DOWN]
        if self._closed and not any("Disconnected" in message for message in messages):
            messages.append(self._closed)
        messages = messages or [error.str() for error in self._latest.values()]
        return "; ".join(messages) or "no connection error was reported"

    def note_log(self, line: str) -> None:
        """Note a line of librdkafka's log about a closed connection, which no error reports."""
        if ": Disconnected" in line:
            self._closed = line.rpartition("]: ")[2]

    def are_refusals(self, address_count: int) -> bool:
        """Return True if no broker accepts a connection, or if one closes it without giving a reason.

        Each failing one of the `address_count` bootstrap servers is reported. "All brokers down" may be missing,
        because librdkafka reports it once, when its count of reachable brokers drops to 0, and miscounts on a busy
        machine.
        """
        return (
            BROKERS_DOWN in self._latest or bool(self._closed) or len(self._failed_addresses) >= max(1, address_count)
        )

    def forget(self) -> None:
        """Forget earlier errors: the client was answered again, so they explain nothing any more."""
        self._latest.clear()
        self._failed_addresses.clear()
        self._closed = ""

    def explain_failure(self, error: KafkaException | KafkaError, what: str) -> PlatformError:
        """Return the error to raise for `error`; refused credentials explain whatever else went wrong."""
        return self.find_refusal(what) or classify_error(error, what, str(self) if self._latest or self._closed else "")

    def explain_silence(self, what: str) -> PlatformError:
        """Return the error to raise when no answer came: AuthorizationError if credentials or rights were refused."""
        return self.find_refusal(what) or explain_silence(what, str(self))

    def find_refusal(self, what: str) -> AuthorizationError | None:
        """Return the error to raise if credentials, rights or a certificate were refused."""
        for error in self._latest.values():
            failure = classify_error(error, what)
            if isinstance(failure, AuthorizationError):
                return failure
        return None


UNVERIFIED = {
    "enable.ssl.certificate.verification": ("false", "any certificate is taken for theirs"),
    "ssl.endpoint.identification.algorithm": ("none", "the certificate of any other server is taken for theirs"),
}
"""The properties that turn the verification of brokers off, each with the value that does so and its meaning."""

_told: set[tuple[str, str]] = set()
"""The brokers and properties that this process has already warned about."""


def _warn_of_unverified(properties: Mapping[str, Any]) -> None:
    """Warn about unverified brokers, once per process and so once per run."""
    if not str(properties.get("security.protocol", "")).lower().endswith("ssl"):
        return
    servers = str(properties["bootstrap.servers"])
    for name, (value, means) in UNVERIFIED.items():
        if str(properties.get(name, "")).lower() == value and (servers, name) not in _told:
            _told.add((servers, name))
            logger.warning(
                "the brokers %s are not verified, since %s=%s: %s, and whoever stands between can read and change all "
                "records and sees how we authenticate. Remove that key, and name the authority in ssl.ca.location",
                servers,
                name,
                value,
                means,
            )


class _QuietLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs librdkafka's lines at debug level, since errors reach the caller as exceptions."""

    def __init__(self, reasons: Reasons) -> None:
        super().__init__(logging.getLogger("kafka_s3_platform.core.kafka.librdkafka"))
        self._reasons = reasons

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if args:
            self._reasons.note_log(str(args[-1]))
        super().log(min(level, logging.DEBUG), msg, *args, **kwargs)


_ROLES: Mapping[type, Literal["admin", "consumer", "producer"]] = {
    AdminClient: "admin",
    Consumer: "consumer",
    Producer: "producer",
}
"""For each class of clients, the prefix that its properties have in the worker file."""

Client = TypeVar("Client", AdminClient, Consumer, Producer)


def open_client(
    client_class: type[Client],
    settings: KafkaSettings,
    reasons: Reasons,
    defaults: Mapping[str, Any],
    fixed: Mapping[str, Any],
) -> Client:
    """Open a client of librdkafka. The worker file overrides `defaults`, and nothing overrides `fixed`.

    `reasons` gets the client's connection errors. Raises ConfigError for properties librdkafka does not know.
    """
    role = _ROLES[client_class]
    configured = replace_msk_login(settings.properties(role))
    _warn_of_unverified(configured)
    # To librdkafka, an admin client is a producer, which creates any topic that it asks about if the broker lets it.
    ours: dict[str, Any] = {"allow.auto.create.topics": False, "error_cb": reasons, "logger": _QuietLogger(reasons)}
    try:
        return client_class({**defaults, **configured, **fixed, **ours})
    except KafkaException as err:
        raise classify_error(err, f"configuring the {role} client of {settings.bootstrap_servers}") from err


def fetch_metadata(
    client: AdminClient | Consumer, topic: str | None, seconds: float, reasons: Reasons, what: str
) -> ClusterMetadata:
    """Return a broker's metadata of the topic, or of all topics if it is None. Also raise the topic's own error."""
    try:
        # Asking for one topic also brings its leaders into librdkafka's cache.
        metadata = client.list_topics(topic, timeout=seconds)
    except KafkaException as err:
        client.poll(0)
        raise reasons.explain_failure(err, what) from err
    if topic is not None:
        topic_metadata = metadata.topics.get(topic)
        if topic_metadata is None:
            raise BrokerUnavailableError(f"{what}: the broker answered nothing of the topic, which cannot be")
        if topic_metadata.error is not None:
            raise reasons.explain_failure(topic_metadata.error, what)
    return metadata


# The time that librdkafka has for one call.
TIMEOUT_SECONDS = 30.0
GRACE_SECONDS = 5.0
"""The time that we wait for a future in addition to librdkafka's timeout, and the whole time after a refusal."""

BEGIN_SECONDS = 2.0
"""The time to wait after the grace, if a command or run is only beginning and connections are refused or closed."""

_answered: set[str] = set()
"""The clusters that have answered this process. If one goes away later, it may be restarting, so it is waited for."""

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class AdminCalls:
    """Calls of one cluster's admin client. Each is awaited for a limited time, and its errors are translated to ours.

    `begins` is True for the first client of a command or a run. If connections are then refused at all addresses of the
    cluster, this is reported soon, and not only after the whole timeout.
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
        self._client: AdminClient = self._opened.enter_context(
            open_client(AdminClient, settings, self._reasons, {}, {})
        )

    def close(self) -> None:
        """Serve librdkafka's last events, and end the client.

        Python's cycle collector may run in a thread of librdkafka's. Ending the client there would abort the process
        (confluent-kafka-python's pull request 2131).
        """
        self._client.poll(0)
        self._opened.close()

    def ask(self, call: "Callable[[AdminClient, float], Future[T]]", what: str) -> T:
        """Return the answer to `call`, which gets the admin client and its request timeout. `what` is for errors."""
        answer: T = self._await_answer(call(self._client, self._timeout), what)
        return answer

    def _ask_metadata(self) -> ClusterMetadata:
        """Ask for all topics' metadata. Wait only GRACE_SECONDS at first, to report a refusal soon, then longer."""

        def ask(seconds: float) -> ClusterMetadata:
            with self._note_waiting():
                where = f"listing topics at {self._bootstrap_servers}"
                metadata = fetch_metadata(self._client, None, seconds, self._reasons, where)
            self._note_answer()
            return metadata

        try:
            return ask(min(GRACE_SECONDS, self._timeout))
        except BrokerUnavailableError:
            return ask(self._timeout)

    def _await_answers(self, calls: "Mapping[K, Future[Any]]", what: Callable[[K], str]) -> Answers[K, Any]:
        """Return the answer or the failure of each question of one call; `what` describes a question, for errors."""
        results: dict[K, Any] = {}
        failures: dict[K, PlatformError] = {}
        for key, future in calls.items():
            try:
                results[key] = self._await_result(future, what(key))
            except KafkaException as err:
                failures[key] = self._translate_error(err, what(key))
                failures[key].__cause__ = err
        return Answers(results, failures)

    def _await_answer(self, future: "Future[Any]", what: str) -> Any:
        """Wait for the answer to a call of the admin client. Raise its error as ours; `what` names the attempt."""
        try:
            return self._await_result(future, what)
        except KafkaException as err:
            raise self._translate_error(err, what) from err

    def _await_result(self, future: "Future[Any]", what: str) -> Any:
        """Wait for an answer. After a refusal, stop after GRACE_SECONDS, though librdkafka repeats the call longer."""
        question = f"{what} at {self._bootstrap_servers}"
        with self._note_waiting():
            try:
                answer = future.result(timeout=GRACE_SECONDS)
            except FutureTimeoutError:
                self._client.poll(0)
                if refusal := self._reasons.find_refusal(question):
                    raise refusal from None
                answer = self._await_late_result(future, question)
        if not getattr(answer, "errors", ()):  # a listing of groups may hold nothing but the errors of silent brokers
            self._note_answer()
        return answer

    def _note_waiting(self) -> AbstractContextManager[None]:
        return waiting_for(f"Kafka at {self._bootstrap_servers}")

    def _note_answer(self) -> None:
        self._reasons.forget()
        _answered.add(self._bootstrap_servers)

    def _await_late_result(self, future: "Future[Any]", question: str) -> Any:
        """Wait for a late answer, up to the timeout.

        With `begins`, it waits no longer than BEGIN_SECONDS if all connections are refused, unless the cluster has
        answered this process before. Refusals are counted before each wait, since a busy machine notices one late.
        """
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
                    raise self._reasons.explain_silence(f"{question}: no answer in time") from err

    def _translate_error(self, err: KafkaException, what: str) -> PlatformError:
        self._client.poll(0)
        return self._reasons.explain_failure(err, f"{what} at {self._bootstrap_servers}")
