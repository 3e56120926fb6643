"""Builds delta-rs's options of the store from a connector's settings.

delta-rs completes them from the environment: a variable counts by each name of an option, in upper or lower case, with
`AWS_` before it or not. boto3 reads other variables, so the index would lie in another store than the objects. So each
option with an effect on requests is set. A few have no value for none: a variable of their names is refused.
"""

import os

from kafka_s3_platform.config.settings import StoreSettings
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.store.client import MAX_BACKOFF_SECONDS, find_bucket_url, find_proxy
from kafka_s3_platform.store.credentials import find_credentials

_FIXED = {
    # every commit is a PUT that fails if the version is there: the index's compare-and-swap
    "aws_conditional_put": "etag",
    "aws_copy_if_not_exists": "multipart",
    "AWS_S3_ALLOW_UNSAFE_RENAME": "false",
    "aws_skip_signature": "false",
    "aws_unsigned_payload": "false",
    # a bucket with Object Lock takes no object without one
    "aws_checksum_algorithm": "sha256",
    "aws_s3_express": "false",
    "aws_imdsv1_fallback": "false",
    "aws_request_payer": "false",
    "aws_disable_tagging": "false",
    "aws_disable_bulk_delete": "false",
    "aws_virtual_hosted_style_request": "true",
    "allow_invalid_certificates": "false",
    "disable_system_certificates": "false",
    "connect_timeout": "5s",
    "timeout": "30s",
    "read_timeout": "30s",
    "retry_timeout": "20s",
    "backoff_config.max_backoff": f"{MAX_BACKOFF_SECONDS:.0f}s",
    "pool_idle_timeout": "15s",
    "pool_max_idle_per_host": "64",
    "randomize_addresses": "true",
    "default_content_type": "application/octet-stream",
    "user_agent": "kafka-s3-platform",
    "http1_only": "true",
    "http2_only": "false",
    # without effect in HTTP/1, but a variable that is no such value is an error
    "http2_keep_alive_interval": "30s",
    "http2_keep_alive_timeout": "20s",
    "http2_keep_alive_while_idle": "false",
    "http2_max_frame_size": "16384",
    "proxy_ca_certificate": "",
}
"""Options of every connector. Of later versions are `aws_disable_bulk_delete` and `read_timeout`."""

_NO_PROXY = {"proxy_url": "http://127.0.0.1:9", "proxy_excludes": "*,0.0.0.0/0,::/0"}
"""A proxy for no host: names, and addresses of both kinds."""

_TOKEN = "aws_session_token"  # noqa: S105 - the name of an option
_WITHOUT_NONE = {
    _TOKEN: frozenset({"aws_session_token", "aws_token", "session_token", "token"}),
    "aws_server_side_encryption": frozenset({"aws_server_side_encryption", "server_side_encryption"}),
    "aws_sse_kms_key_id": frozenset({"aws_sse_kms_key_id", "sse_kms_key_id"}),
    "aws_sse_bucket_key_enabled": frozenset({"aws_sse_bucket_key_enabled", "sse_bucket_key_enabled"}),
    # delta-rs would look for credentials itself, and assume a role that another variable names
    "AWS_FORCE_CREDENTIAL_LOAD": frozenset({"aws_force_credential_load"}),
    "AWS_S3_LOCKING_PROVIDER": frozenset({"aws_s3_locking_provider"}),
}
"""Options without a value for none, each with its names."""


def build_delta_options(store: StoreSettings) -> dict[str, str]:
    """Return storage options with the current credentials, secrets included.

    Raises as `find_credentials`, and ConfigError if a variable of the environment would change them.
    """
    url = find_bucket_url(store)
    options = {
        **_FIXED,
        "aws_bucket": store.bucket,
        "aws_region": store.region,
        "aws_default_region": store.region,
        # of the bucket, by `aws_virtual_hosted_style_request`
        "aws_endpoint": url,
        "aws_endpoint_url_s3": url,
        "allow_http": str(url.startswith("http:")).lower(),
        "max_retries": str(store.max_retries),
        "backoff_config.init_backoff": f"{store.retry_backoff_ms}ms",
        **_proxy_options(store),
        **_encryption_options(store),
        **_access_options(store),
    }
    _refuse_variables(options)
    return options


def _refuse_variables(options: dict[str, str]) -> None:
    for option, names in _WITHOUT_NONE.items():
        variables = [name for name in os.environ if name.lower() in names]
        if variables and option not in options:
            raise ConfigError(
                f"the environment variable {variables[0]} would be taken for the index: {_explain(option)}. Unset it"
            )


def _explain(option: str) -> str:
    if option == _TOKEN:
        return "it would be sent as the session token of an access key that has none"
    return "the connector file does not set it, and the library that writes the index (delta-rs) reads it by itself"


def _proxy_options(store: StoreSettings) -> dict[str, str]:
    proxy = find_proxy(store)
    return {"proxy_url": proxy, "proxy_excludes": ""} if proxy else _NO_PROXY


def _access_options(store: StoreSettings) -> dict[str, str]:
    credentials = find_credentials(store)
    options = {"aws_access_key_id": credentials.access_key, "aws_secret_access_key": credentials.secret_key}
    return options | ({_TOKEN: credentials.token} if credentials.token else {})


def _encryption_options(store: StoreSettings) -> dict[str, str]:
    # read, but not used, beside no encryption and beside a customer's key
    unused = {"aws_sse_kms_key_id": "", "aws_sse_bucket_key_enabled": "false"}
    if store.customer_key is not None:
        key = store.customer_key.get_secret_value()
        return {"aws_server_side_encryption": "sse-c", "aws_sse_customer_key_base64": key, **unused}
    if store.encryption is None:
        return unused
    options = {"aws_server_side_encryption": store.encryption, "aws_sse_kms_key_id": store.kms_key_id}
    return {name: value for name, value in options.items() if value}
