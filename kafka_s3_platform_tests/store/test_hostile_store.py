"""A store that answers what no S3 server answers: each request ends, and with an error that names it."""

from collections.abc import Callable, Iterator

import pytest

from kafka_s3_platform.core.errors import IntegrityError, StoreUnavailableError
from kafka_s3_platform.core.store.objects import MAX_EMPTY_PAGES, ObjectStore
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, HttpServer, running
from kafka_s3_platform_tests.store.servers import store_at

XML = ("Content-Type", "application/xml")


class HostileStore(HttpServer):
    """A store whose answers are made by `how`, of the number of the request."""

    how: Callable[[int], HttpAnswer]
    asked = 0

    def answer(self, request: HttpRequest) -> HttpAnswer:  # noqa: ARG002 - each is answered alike
        self.asked += 1
        return self.how(self.asked)


@pytest.fixture
def server() -> Iterator[HostileStore]:
    with running(HostileStore()) as server:
        yield server


@pytest.fixture
def store(server: HostileStore) -> ObjectStore:
    return store_at(server.endpoint, max_retries=0)


def list_page(entry: str, token: int) -> HttpAnswer:
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
    return HttpAnswer(200, (XML,), f"<ListBucketResult>{more}{entry}</ListBucketResult>".encode())


def test_redirects_without_an_end_are_an_error(server: HostileStore, store: ObjectStore) -> None:
    server.how = lambda number: HttpAnswer(307, (("Location", f"{server.endpoint}/own/{number}"),))
    with pytest.raises(StoreUnavailableError, match=r"GetObject of s3://own/a at http://.*"):
        store.get("a")


@pytest.mark.parametrize("date", ["soon", "9" * 5000, "Thu, 99 Jan 99999 00:00:00 GMT"])
def test_a_date_that_is_none_is_an_error(server: HostileStore, store: ObjectStore, date: str) -> None:
    headers = (("Last-Modified", date), ("ETag", '"1"'), ("Content-Length", "0"))
    server.how = lambda _: HttpAnswer(200, headers)
    with pytest.raises(StoreUnavailableError, match=r"HeadObject of s3://own/a .* the answer is not S3's"):
        store.head("a")


def test_a_date_of_the_answer_that_is_none_tells_nothing(server: HostileStore, store: ObjectStore) -> None:
    dates = ("Thu, 99 Jan 99999 00:00:00 GMT", "9" * 5000, "\xff", "")
    server.how = lambda number: HttpAnswer(200, (("Date", dates[number - 1]), ("ETag", '"1"')), b"x")
    assert [store.get("a") for _ in dates] == [b"x"] * len(dates)


def test_a_listing_without_entries_and_without_an_end_is_an_error(server: HostileStore, store: ObjectStore) -> None:
    server.how = lambda number: list_page("", number)
    with pytest.raises(StoreUnavailableError, match=r"of s3://own/a/: 101 pages in a row without an entry"):
        list(store.list("a/"))
    assert server.asked == MAX_EMPTY_PAGES + 1


def damaged_body(number: int) -> HttpAnswer:
    """The body `hello` with its checksum; all but every third time, one letter of it is another."""
    return HttpAnswer(
        200, (("ETag", '"1"'), ("x-amz-checksum-crc32", "NhCmhg==")), b"hello" if number % 3 == 0 else b"hallo"
    )


def test_a_body_that_does_not_have_its_checksum_is_read_again(server: HostileStore) -> None:
    server.how = damaged_body
    assert store_at(server.endpoint, max_retries=2, retry_backoff_ms=1).get("a") == b"hello"


def test_a_body_that_never_has_its_checksum_is_an_error_of_the_object(server: HostileStore, store: ObjectStore) -> None:
    server.how = damaged_body
    with pytest.raises(IntegrityError, match=r"GetObject of s3://own/a .* do not have the store.s checksum"):
        store.get("a")
