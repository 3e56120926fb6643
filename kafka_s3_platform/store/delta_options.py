"""delta-rs's options of the store, as a connector's settings want them."""

import os

from kafka_s3_platform.config.settings import StoreSettings
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.store.client import MAX_BACKOFF_SECONDS, find_delta_endpoint
from kafka_s3_platform.store.credentials import find_credentials

_TOKEN_VARIABLES = frozenset({"aws_session_token", "aws_token", "session_token", "token"})


def build_delta_options(store: StoreSettings) -> dict[str, str]:
    """Return storage options with the credentials that hold now, secrets included. Raises as `find_credentials`."""
    options = {
        "AWS_REGION": store.region,
        # given, since delta-rs would take it from a variable of the environment
        "allow_invalid_certificates": "false",
        # every commit is a PUT that fails if the version is there: the index's compare-and-swap
        "aws_conditional_put": "etag",
        "aws_virtual_hosted_style_request": str(store.accelerate or not store.path_style).lower(),
        "connect_timeout": "5s",
        "timeout": "30s",
        "max_retries": str(store.max_retries),
        "retry_timeout": "20s",
        "backoff_config.init_backoff": f"{store.retry_backoff_ms}ms",
        "backoff_config.max_backoff": f"{MAX_BACKOFF_SECONDS:.0f}s",
    }
    endpoint = find_delta_endpoint(store)
    if endpoint is not None:
        options |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
    return options | _encryption_options(store) | _access_options(store)


def _access_options(store: StoreSettings) -> dict[str, str]:
    found = find_credentials(store)
    options = {"AWS_ACCESS_KEY_ID": found.access_key, "AWS_SECRET_ACCESS_KEY": found.secret_key}
    if store.proxy_url is not None:
        options["proxy_url"] = store.proxy_url.get_secret_value()
    if found.token is not None:
        return options | {"AWS_SESSION_TOKEN": found.token}
    # delta-rs completes its options from the environment, and would sign with another's token
    mixed = [name for name in os.environ if name.lower() in _TOKEN_VARIABLES]
    if mixed:
        raise ConfigError(
            f"the environment variable {mixed[0]} would be sent as the session token of an access key that has none;"
            " unset it"
        )
    return options


def _encryption_options(store: StoreSettings) -> dict[str, str]:
    if store.customer_key is not None:
        key = store.customer_key.get_secret_value()
        return {"aws_server_side_encryption": "sse-c", "aws_sse_customer_key_base64": key}
    options = {"aws_server_side_encryption": store.encryption, "aws_sse_kms_key_id": store.kms_key_id}
    return {name: value for name, value in options.items() if value}
