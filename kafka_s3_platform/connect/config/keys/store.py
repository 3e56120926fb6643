"""The keys of the object store: the bucket, the connection to it, and the options for writing."""

import base64
import re
from typing import get_args
from urllib.parse import quote, urlsplit

from pydantic import SecretStr

from kafka_s3_platform.connect.config.keys import values
from kafka_s3_platform.connect.config.keys.archive import read_limits
from kafka_s3_platform.connect.config.keys.config_file import ConfigFile
from kafka_s3_platform.connect.config.keys.credentials import (
    ACCESS_KEY_ID,
    CREDENTIALS_KEYS,
    SECRET_ACCESS_KEY,
    parse_endpoint,
    read_chain,
    read_provider,
    read_role,
    refuse_two_methods,
)
from kafka_s3_platform.connect.config.keys.table import (
    REQUIRED,
    Key,
    TypedKey,
    declare_aliases,
    declare_key,
    declare_setting,
    declare_without_meaning,
    keys_by_field,
)
from kafka_s3_platform.core.config.settings import Encryption, StoreSettings

_ACLS = (
    "private",
    "public-read",
    "public-read-write",
    "authenticated-read",
    "aws-exec-read",
    "bucket-owner-read",
    "bucket-owner-full-control",
)
_MAX_TAGS = 7
"""The most tags of a file's own. S3 allows an object ten tags; three of them are the offsets and the count."""

# S3's own rules for tags.
_TAG_KEY = re.compile(r"[\w +\-=._/@]{1,128}")
_TAG_VALUE = re.compile(r"[\w +\-=._:/@]{0,256}")


def _parse_proxy_url(text: str) -> str:
    """Parse the URL of an HTTP proxy. A URL without a scheme gets `http://`."""
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/") or parts.query:
        raise ValueError("is no proxy such as http://proxy.example.com:3128")
    return parts.geturl().rstrip("/")


def _parse_customer_key(text: str) -> SecretStr:
    """Parse an encryption key: 32 bytes in base64."""
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ValueError("is not 32 bytes in base64, such as `openssl rand -base64 32` gives")
    return SecretStr(text)


def _parse_tags(text: str) -> tuple[tuple[str, str], ...]:
    """Parse tags `name:value`, separated by commas."""
    pairs = [pair.strip().partition(":") for pair in text.split(",") if pair.strip()]
    for name, colon, value in pairs:
        if not colon or not _TAG_KEY.fullmatch(name) or not _TAG_VALUE.fullmatch(value):
            raise ValueError(
                f"{name + colon + value!r} is no tag: name:value, letters, digits, spaces and any of + - = . _ / @, 128"
                " and 256 at most"
            )
    tags = {name: value for name, _, value in pairs}
    if len(tags) < len(pairs) or len(tags) > _MAX_TAGS:
        raise ValueError(f"{len(pairs)} tags; up to {_MAX_TAGS} of different names fit beside the three of the records")
    return tuple(tags.items())


BUCKET = declare_key("s3.bucket.name", values.parse_bucket, "Name of the bucket.", default="", shown=REQUIRED)
_REGION = values.expect_match(r"[a-z0-9-]+", "region such as eu-central-1")
REGION = declare_setting(StoreSettings, "region", "s3.region", _REGION, "AWS region of the bucket.")
ENDPOINT = declare_setting(
    StoreSettings,
    "endpoint_url",
    "store.url",
    parse_endpoint,
    "Endpoint of an S3-compatible store, `http://` or [`https://`](#tls). It must"
    " [keep what an archive relies on](#what-the-store-must-keep).",
    shown="AWS's endpoint",
)
PATH_STYLE = declare_setting(
    StoreSettings,
    "path_style",
    "s3.path.style.access.enabled",
    values.parse_boolean,
    "Name the bucket in the path of a URL instead of in its host name.",
)
ACCELERATE = declare_setting(
    StoreSettings,
    "accelerate",
    "s3.wan.mode",
    values.parse_boolean,
    "`true`: use AWS's accelerated endpoint, with the bucket in the host name. Not allowed with `store.url`.",
)
PROXY_URL = declare_key(
    "s3.proxy.url", _parse_proxy_url, "HTTP proxy on the way to S3, `http://host:port`.", default=None, shown="none"
)
PROXY_USER = declare_key("s3.proxy.user", str, "User of the proxy.", default="", shown="none")
PROXY_PASSWORD = declare_key("s3.proxy.password", str, "Password of the proxy's user.", default="", shown="none")
ENCRYPTION = declare_setting(
    StoreSettings,
    "encryption",
    "s3.ssea.name",
    values.expect_one_of(get_args(Encryption)),
    "Server-side encryption of every object, the index included: `AES256`, `aws:kms` or `aws:kms:dsse`.",
    shown="the bucket's",
)
KMS_KEY_ID = declare_setting(
    StoreSettings,
    "kms_key_id",
    "s3.sse.kms.key.id",
    str,
    "ID or ARN of the KMS key. Needs `s3.ssea.name` with KMS.",
    shown="AWS's own key",
)
CUSTOMER_KEY = declare_setting(
    StoreSettings,
    "customer_key",
    "s3.sse.customer.key",
    _parse_customer_key,
    "Your own encryption key (SSE-C) for every object, the index included: 32 bytes in base64. Needs"
    " `s3.ssea.name` `AES256` and an endpoint with https. Without this key no tool can read the objects.",
)
TAGGING = declare_setting(
    StoreSettings,
    "tagging",
    "s3.object.tagging",
    values.parse_boolean,
    "`true`: give objects of records the tags `startOffset`, `endOffset` (of the last record) and `recordCount`.",
    for_sinks=True,
)
TAGS: TypedKey[tuple[tuple[str, str], ...]] = declare_setting(
    StoreSettings,
    "tags",
    "s3.object.tagging.key.value.pairs",
    _parse_tags,
    "More tags, as `name:value`, separated by commas, seven at most. Needs `s3.object.tagging`.",
    shown="none",
    for_sinks=True,
)


PART_SIZE = declare_setting(
    StoreSettings,
    "part_size",
    "s3.part.size",
    values.expect_integer(5_242_880, 2**31 - 1),
    "Size of one part of a multipart upload, in bytes: 5242880 or more.",
    for_sinks=True,
)
MAX_RETRIES = declare_setting(
    StoreSettings,
    "max_retries",
    "s3.part.retries",
    values.expect_integer(0, 1000),
    "How often to try a failed S3 request again.",
)
RETRY_BACKOFF = declare_setting(
    StoreSettings,
    "retry_backoff_ms",
    "s3.retry.backoff.ms",
    values.expect_integer(0),
    "Longest wait before a failed S3 request is tried again, in ms. It doubles before each further try, up to 20"
    " seconds. Each wait is at least half of it.",
)
CANNED_ACL = declare_setting(
    StoreSettings,
    "canned_acl",
    "s3.acl.canned",
    values.expect_one_of(_ACLS),
    f"Canned ACL of every object except those of the index, whose library cannot set one: {', '.join(_ACLS)}.",
    shown="the bucket's",
    for_sinks=True,
)
_STORAGE_CLASSES = ("STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR", "REDUCED_REDUNDANCY")
STORAGE_CLASS = declare_setting(
    StoreSettings,
    "storage_class",
    "s3.storage.class",
    values.expect_one_of(_STORAGE_CLASSES),
    "Storage class of every new object except those of the index: one that can be read at once,"
    f" {', '.join(_STORAGE_CLASSES)}. A [rule of the bucket](retention.md#storage-classes) may change it later.",
    shown="the bucket's",
    for_sinks=True,
)
TAGGING_ERRORS = declare_setting(
    StoreSettings,
    "ignore_tagging_errors",
    "s3.object.behavior.on.tagging.error",
    lambda text: values.expect_one_of(("ignore", "fail"))(text) == "ignore",
    "`ignore`: an object that cannot be tagged stays without tags, and is logged. `fail`: the run fails.",
    shown="ignore",
    for_sinks=True,
)


STORE_KEYS: tuple[Key, ...] = (
    BUCKET,
    *keys_by_field(StoreSettings).values(),
    PROXY_URL,
    PROXY_USER,
    PROXY_PASSWORD,
    *CREDENTIALS_KEYS,
    *declare_aliases(
        "DeviantArt's", """s3.bucket=s3.bucket.name s3.endpoint=store.url s3.path_style=s3.path.style.access.enabled"""
    ),
    *declare_aliases(
        "Aiven's",
        """aws.s3.bucket.name=s3.bucket.name aws.s3.region=s3.region aws.s3.endpoint=store.url
        aws.s3.part.size.bytes=s3.part.size aws.s3.sse.algorithm=s3.ssea.name
        aws.s3.backoff.delay.ms=s3.retry.backoff.ms aws.s3.backoff.max.retries=s3.part.retries""",
    ),
    *declare_aliases(
        "Aiven's old",
        """aws_s3_bucket=s3.bucket.name aws_s3_bucket_name=s3.bucket.name aws_s3_region=s3.region
        aws_s3_endpoint=store.url""",
    ),
    *declare_without_meaning(
        "An object is always written only once: the write requires that it does not exist.",
        "enable.conditional.writes max.files.scan.limit",
    ),
    *declare_without_meaning("Every upload carries its checksum as a signed header.", "s3.send.digest"),
    *declare_without_meaning(
        "Small bodies are sent at once, larger ones when the store says `100 Continue`.", "s3.http.send.expect.continue"
    ),
    *declare_without_meaning("No wait is longer than 20 seconds.", "aws.s3.backoff.max.delay.ms"),
    *declare_without_meaning(
        "Open writers and buffers have limits without it.", "s3.elastic.buffer.enable s3.elastic.buffer.init.capacity"
    ),
)


def read_store(file: ConfigFile) -> StoreSettings:
    """Read the bucket of a connector file, and how to reach it."""
    file.require_both(ACCESS_KEY_ID.name, SECRET_ACCESS_KEY.name)
    region = file.value(REGION)
    role = read_role(file, region)
    provider = read_provider(file)
    chain = read_chain(file)
    refuse_two_methods(file, role, provider, chain)
    bucket = file.value(BUCKET)
    accelerate = _read_accelerate(file, bucket)
    encryption = file.value(ENCRYPTION)
    if not (encryption or "").startswith("aws:kms"):
        file.refuse_if_set([KMS_KEY_ID.name], "without s3.ssea.name aws:kms it would encrypt nothing; set both")
    if encryption != "AES256":
        file.refuse_if_set([CUSTOMER_KEY.name], "without s3.ssea.name AES256 it would encrypt nothing; set both")
    if not file.value(TAGGING):
        file.refuse_if_set([TAGS.name], "objects are not tagged; set s3.object.tagging to true")
    return file.fill(
        StoreSettings,
        limits=read_limits(file),
        bucket=bucket,
        region=region,
        role=role,
        provider=provider,
        chain=chain,
        # The accelerated endpoint needs the bucket in the host name.
        path_style=file.value_or(PATH_STYLE, not accelerate),
        accelerate=accelerate,
        proxy_url=_read_proxy(file),
    )


def _read_accelerate(file: ConfigFile, bucket: str) -> bool:
    """Return True if AWS's accelerated endpoint is used. Refuse settings incompatible with it."""
    if not file.value(ACCELERATE):
        return False
    if "store.url" in file:
        file.refuse(
            "s3.wan.mode", f"only AWS has an accelerated endpoint; remove it, or {file.name_in_file('store.url')}"
        )
    if file.value_or(PATH_STYLE, default=False):
        file.refuse("s3.path.style.access.enabled", "s3.wan.mode needs the bucket in the host name; set it to false")
    if "." in bucket:
        file.refuse("s3.wan.mode", f"the accelerated endpoint takes no bucket with a dot in its name, as {bucket}")
    return True


def _read_proxy(file: ConfigFile) -> SecretStr | None:
    """Read the URL of the proxy, including its login. Return None if there is no proxy."""
    user = file.value(PROXY_USER)
    password = file.value(PROXY_PASSWORD)
    if PROXY_URL.name not in file:
        file.refuse_if_set((PROXY_USER.name, PROXY_PASSWORD.name), "there is no proxy; set s3.proxy.url")
    if password and not user:
        file.refuse("s3.proxy.password", "whose? set s3.proxy.user")
    url = file.value(PROXY_URL)
    if url is None or not user:
        return None if url is None else SecretStr(url)
    if "@" in url:
        file.refuse("s3.proxy.user", "s3.proxy.url names a user itself; keep one")
    scheme, _, rest = url.partition("://")
    # A password may hold characters that would end it in a URL.
    return SecretStr(f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{rest}")
