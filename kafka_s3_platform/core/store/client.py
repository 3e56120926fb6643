"""Makes boto3's S3 client for a connector's settings: endpoint, addressing, proxy, retries."""

import os
import random
from functools import lru_cache
from typing import Any

import botocore
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.httpsession import ProxyConfiguration
from botocore.utils import determine_content_length, get_environ_proxies

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.errors import ConfigError, MissingBucketError
from kafka_s3_platform.core.store.clock import record_answer_times
from kafka_s3_platform.core.store.credentials import new_client
from kafka_s3_platform.core.store.errors import BAD_BODY, PASSING_CODES, UNREACHABLE, is_untrusted
from kafka_s3_platform.core.text import find_nearest

MAX_BACKOFF_SECONDS = 20.0
_CONNECT_SECONDS = 5
_READ_SECONDS = 60
_MAX_CONNECTIONS = 64
_MAX_CLIENTS = 16
_USER_AGENT = f"Botocore/{botocore.__version__} kafka-s3-platform"
"""botocore's own user agent names everything that it knows of this machine, and is composed twice per request."""

_SMALL_BODY_BYTES = 1_048_576
"""The size up to which AWS's SDK for Java does not ask first either (its `expectContinueThresholdInBytes`)."""

_RETRIED_STATUS = frozenset({429, 500, 502, 503, 504})
_RETRIED_CODES = BAD_BODY | PASSING_CODES


def get_s3_client(settings: StoreSettings) -> Any:
    """Return the process's only boto3 client for these settings and any bucket. Threads may share it.

    Making one takes as long as a dozen requests, since botocore reads S3's model anew for each client.
    """
    return _get_client(settings.model_copy(update={"bucket": ""}))


@lru_cache(_MAX_CLIENTS)
def _get_client(settings: StoreSettings) -> Any:
    """Make one client for each set of settings, for all buckets, and remember it."""
    return new_s3_client(settings)


# A forked process must not write into the connections of its parent.
os.register_at_fork(after_in_child=_get_client.cache_clear)


def new_s3_client(settings: StoreSettings) -> Any:
    """Return a new client of the store. Raises ConfigError, and the errors of the credentials' provider."""
    proxy = settings.proxy_url and settings.proxy_url.get_secret_value()
    # `store.url` is complete. For AWS's own store the environment may choose among its endpoints.
    environment_choice = False if settings.endpoint_url else None
    config = Config(  # type: ignore[call-arg]  # the stubs do not know `ignore_configured_endpoint_urls`
        signature_version="s3v4",
        user_agent=_USER_AGENT,
        # variables and profiles name other stores
        ignore_configured_endpoint_urls=True,
        use_fips_endpoint=environment_choice,
        use_dualstack_endpoint=environment_choice,
        # repeated by `Backoff`: botocore has no setting for how long to wait
        retries={"mode": "standard", "total_max_attempts": 1},
        s3={
            "addressing_style": "path" if settings.path_style else "virtual",
            "use_accelerate_endpoint": settings.accelerate,
            "us_east_1_regional_endpoint": "regional",
            # so that every store checks the body, even one that does not know `x-amz-checksum-crc32`
            "payload_signing_enabled": True,
        },
        # `ObjectStore` sends checksums as headers, and asks for those of whole objects. boto3's own follow a body over
        # https, as an `aws-chunked` trailer, which not every store takes
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        proxies={"http": proxy, "https": proxy} if proxy else None,
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        max_pool_connections=_MAX_CONNECTIONS,
    )
    try:
        client = new_client(settings, region_name=settings.region, endpoint_url=settings.endpoint_url, config=config)
    except ValueError as err:
        raise ConfigError(f"store.url {settings.endpoint_url} or s3.region {settings.region}: {err}") from err
    except BotoCoreError as err:
        raise ConfigError(
            f"no client of the store can be made: {err}. Correct the environment's variables that begin with AWS_, or "
            f"the profile that AWS_PROFILE names"
        ) from err
    client.meta.events.register("needs-retry.s3", Backoff(settings.max_retries, settings.retry_backoff_ms))
    client.meta.events.register("before-call.s3", _send_small_at_once)
    record_answer_times(client)
    return client


def _send_small_at_once(params: Any, **_: Any) -> None:
    """Send a small body right after its headers. botocore would ask the server first, and wait for `100 Continue`.

    That would be one more round trip for each object. Large bodies still wait, so a server need not read one it
    refuses.
    """
    size = determine_content_length(params["body"])
    if size is not None and size <= _SMALL_BODY_BYTES:
        params["headers"].pop("Expect", None)


class Backoff:
    """Repeats requests that got no answer, or one asking to try later, as Connect's sinks do.

    Before the first repetition it waits at most `backoff_ms` and at least half as long. Before each further one it
    waits twice as long, up to `MAX_BACKOFF_SECONDS`.
    """

    def __init__(self, max_retries: int, backoff_ms: int) -> None:
        self._max_retries = max_retries
        self._backoff_ms = backoff_ms

    def __call__(self, response: Any, attempts: int, caught_exception: Any, **_: Any) -> float | None:
        """Answer botocore's event `needs-retry` with the seconds to wait, or with None to stop."""
        if attempts > self._max_retries or not _may_pass(response, caught_exception):
            return None
        longest = min(self._backoff_ms / 1000 * 2.0 ** (attempts - 1), MAX_BACKOFF_SECONDS)
        return random.uniform(longest / 2, longest)  # noqa: S311 - jitter


def _may_pass(response: Any, error: Any) -> bool:
    """Return True if a later try may succeed: no answer came, or one asking to wait. `response` is botocore's pair."""
    if response is None:
        return isinstance(error, UNREACHABLE) and not is_untrusted(error)
    http_answer, body = response
    return http_answer.status_code in _RETRIED_STATUS or body.get("Error", {}).get("Code") in _RETRIED_CODES


def suggest_bucket(err: MissingBucketError, settings: StoreSettings) -> MissingBucketError:
    """Add the name of a similar bucket to the error, if there is one and buckets may be listed."""
    try:
        buckets = get_s3_client(settings).list_buckets().get("Buckets", ())
    except (BotoCoreError, ClientError, ValueError):
        # mostly the right s3:ListAllMyBuckets is missing: no run needs it
        return err
    similar = find_nearest(settings.bucket, [bucket["Name"] for bucket in buckets])
    return MissingBucketError(f"{err.text}. Did you mean {similar}?") if similar else err


@lru_cache(_MAX_CLIENTS)
def find_bucket_url(settings: StoreSettings) -> str:
    """Return the URL of the bucket, as boto3 addresses it. Raises as `new_s3_client` does."""
    signed: str = get_s3_client(settings).generate_presigned_url("head_bucket", Params={"Bucket": settings.bucket})
    return signed.partition("?")[0].rstrip("/")


def find_proxy(settings: StoreSettings) -> str | None:
    """Return the URL of the proxy to the store: the connector file's, else the environment's, as boto3 does."""
    if settings.proxy_url is not None:
        return settings.proxy_url.get_secret_value()
    url = get_s3_client(settings).meta.endpoint_url
    proxy: str | None = ProxyConfiguration(get_environ_proxies(url)).proxy_url_for(url)
    return proxy
