"""The proxy does to a request what it was told, and nothing to others."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka_s3_platform.config.settings import StoreSettings
from kafka_s3_platform.errors import StoreUnavailableError
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform_tests.faults.proxy import faulty_proxy

pytestmark = pytest.mark.integration


def test_what_is_not_chosen_passes_signed_and_unchanged(store_settings: StoreSettings) -> None:
    with faulty_proxy(store_settings.endpoint_url or "") as proxy:
        store = ObjectStore(store_settings.model_copy(update={"endpoint_url": proxy.endpoint}))
        store.put_new("a b+ü", b"x" * 1_000_000, {"m": "ü"})
        assert store.get("a b+ü") == b"x" * 1_000_000
        assert [o.size for o in store.list("a b")] == [1_000_000]
        assert [method for method, _ in proxy.requests] == ["PUT", "GET", "GET"]


def test_the_nth_request_is_done_and_its_response_lost(store_settings: StoreSettings) -> None:
    straight = ObjectStore(store_settings)
    with faulty_proxy(store_settings.endpoint_url or "") as proxy:
        store = ObjectStore(store_settings.model_copy(update={"endpoint_url": proxy.endpoint, "max_retries": 0}))
        fault = proxy.lose_response("DELETE", "/key", nth=2)
        for _ in range(2):
            etag = straight.put_new("key", b"body").etag
            assert straight.head("key")
            if fault.seen == 0:
                store.delete("key", etag)
            else:
                with pytest.raises(StoreUnavailableError, match="ConnectionClosedError"):
                    store.delete("key", etag)
            assert straight.head("key") is None
        assert fault.hit.is_set()


def test_a_refused_request_never_arrives_until_cleared(store_settings: StoreSettings) -> None:
    straight = ObjectStore(store_settings)
    with faulty_proxy(store_settings.endpoint_url or "") as proxy:
        store = ObjectStore(store_settings.model_copy(update={"endpoint_url": proxy.endpoint, "max_retries": 0}))
        proxy.refuse("PUT", "/key", 507, "InsufficientStorage")
        with pytest.raises(StoreUnavailableError, match="507 InsufficientStorage"):
            store.put_new("key", b"body")
        assert straight.head("key") is None
        proxy.clear()
        store.put_new("key", b"body")


def test_a_held_response_waits_while_the_server_has_done_it(store_settings: StoreSettings) -> None:
    straight = ObjectStore(store_settings)
    with faulty_proxy(store_settings.endpoint_url or "") as proxy, ThreadPoolExecutor(1) as pool:
        store = ObjectStore(store_settings.model_copy(update={"endpoint_url": proxy.endpoint}))
        fault = proxy.hold_response("PUT", "/key")
        waiting = pool.submit(store.put_new, "key", b"body")
        assert fault.hit.wait(30)
        assert straight.get("key") == b"body"
        assert not waiting.done()
        fault.release()
        assert waiting.result().size == 4
