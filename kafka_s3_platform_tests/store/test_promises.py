"""What is relied on a store for is tried on the real one, and through a proxy that makes it one that breaks it."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.errors import ConfigError, StoreUnavailableError
from kafka_s3_platform.core.model.segment import Scan
from kafka_s3_platform.core.store import promises
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.promises import check_promises
from kafka_s3_platform_tests.faults.proxy import FaultyProxy

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untried_bucket")]

KEY = "topics/.write-check"


@pytest.fixture
def signer(store_settings: StoreSettings) -> tuple[str, str]:
    key, secret = store_settings.access_key_id, store_settings.secret_access_key
    assert key
    assert secret
    return key.get_secret_value(), secret.get_secret_value()


@pytest.fixture(autouse=True)
def _another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises, "checked_places", set())


def forget() -> None:
    """What a process that starts knows."""
    promises.checked_places.clear()


def test_a_store_that_keeps_them_is_tried_once_a_process_and_folder(proxy: FaultyProxy, through: StoreSettings) -> None:
    store = ObjectStore(through)
    for prefix in ("topics", "topics", ""):
        check_promises(store, prefix)
    assert len(proxy.requests) < 2 * 10
    proxy.requests.clear()
    check_promises(ObjectStore(through), "topics")
    assert proxy.requests == []
    forget()
    check_promises(store, "topics", uploads=True)
    assert len(proxy.requests) < 16
    assert sorted(o.key for o in store.list("")) == [".write-check", KEY]
    assert list(store.list_uploads("")) == []


@pytest.mark.parametrize("times", [1, 2])
def test_a_store_that_ignores_conditions_is_refused_before_anything_is_written(
    proxy: FaultyProxy, through: StoreSettings, signer: tuple[str, str], times: int
) -> None:
    proxy.ignore_conditions(signer)
    index = TopicIndex(ConnectorIndex(through, "_index", "c"), "t")
    for _ in range(times):
        for use in (lambda: check_promises(ObjectStore(through), "topics"), index.open):
            with pytest.raises(ConfigError, match=r"overwrote an object that was there: the store ignores conditions"):
                use()
    assert {o.key for o in ObjectStore(through).list("")} == {KEY, "_index/.write-check"}


def test_nothing_is_committed_to_an_index_on_such_a_store(
    proxy: FaultyProxy, through: StoreSettings, signer: tuple[str, str]
) -> None:
    snapshot = TopicIndex(ConnectorIndex(through, "_index", "c"), "t").open()
    forget()
    proxy.ignore_conditions(signer)
    with pytest.raises(ConfigError, match="both would succeed"):
        snapshot.commit(Change((Scan(0, 0, 5, 5, None, 1),)))
    assert TopicIndex(ConnectorIndex(through, "_index", "c"), "t").open().version == 0


@pytest.mark.parametrize(
    ("method", "condition", "words"),
    [("PUT", "if-match", "overwrote an object of another ETag"), ("POST", "if-none-match", "an upload with")],
)
def test_each_condition_is_tried_on_its_own(
    proxy: FaultyProxy, through: StoreSettings, signer: tuple[str, str], method: str, condition: str, words: str
) -> None:
    proxy.ignore_conditions(signer, method, condition)
    with pytest.raises(ConfigError, match=words):
        check_promises(ObjectStore(through), "topics", uploads=True)
    assert list(ObjectStore(through).list_uploads("")) == []


@pytest.mark.parametrize(
    ("target", "words"), [(rf"{KEY}$", "read just after it was written"), ("list-type", "listed just after it was")]
)
def test_stale_answers_are_found_when_the_object_is_there_from_before(
    proxy: FaultyProxy, through: StoreSettings, target: str, words: str
) -> None:
    store = ObjectStore(through)
    proxy.answer_stale("GET", target)
    check_promises(store, "topics")
    forget()
    with pytest.raises(ConfigError, match=words):
        check_promises(store, "topics")


def test_a_listing_without_what_was_just_written_is_found(proxy: FaultyProxy, through: StoreSettings) -> None:
    proxy.list_nothing("")
    with pytest.raises(ConfigError, match="listed just after it was written is missing"):
        check_promises(ObjectStore(through), "topics")


def test_archiving_takes_no_right_to_list(proxy: FaultyProxy, through: StoreSettings) -> None:
    proxy.refuse("GET", "list-type", 403, "AccessDenied")
    check_promises(ObjectStore(through), "topics")


def test_a_store_that_refuses_each_condition_is_told(
    proxy: FaultyProxy, through: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promises, "LONGEST_WAIT_SECONDS", 0)
    check_promises(ObjectStore(through), "topics")
    forget()
    proxy.refuse("PUT", KEY, 412, "PreconditionFailed")
    with pytest.raises(StoreUnavailableError, match=r"refused 12 times.*conditional writes"):
        check_promises(ObjectStore(through), "topics")


def test_a_store_that_does_not_know_conditions_is_no_outage(proxy: FaultyProxy, through: StoreSettings) -> None:
    proxy.refuse("PUT", KEY, 501, "NotImplemented")
    with pytest.raises(ConfigError, match="does not know this request, or its condition"):
        check_promises(ObjectStore(through), "topics")


def test_processes_that_try_at_the_same_moment_all_find_them_kept(
    store_settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoLock:
        """Threads stand for processes here, which have no lock in common."""

        def __enter__(self) -> None:
            forget()

        def __exit__(self, *_: object) -> None:
            forget()

    class NoLocks(dict[tuple[str, str], NoLock]):
        def setdefault(self, *_: object) -> NoLock:
            return NoLock()

    monkeypatch.setattr(promises, "_locks", NoLocks())
    together = threading.Barrier(6)

    def at_once(check: Callable[..., None]) -> None:
        together.wait()
        check(ObjectStore(store_settings), "topics", uploads=True)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(at_once, [check_promises] * 6))
    assert [o.key for o in ObjectStore(store_settings).list("")] == [KEY]
