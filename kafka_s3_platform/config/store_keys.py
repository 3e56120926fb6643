"""The keys of the object store: where the bucket is, how it is reached and how objects are put there."""

import base64
import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import quote, urlsplit

from pydantic import SecretStr

from kafka_s3_platform.config import values
from kafka_s3_platform.config.credentials import (
    CREDENTIALS_KEYS,
    chain_settings,
    endpoint,
    provider_settings,
    refuse_two_methods,
    role_settings,
)
from kafka_s3_platform.config.limit_keys import read_limits
from kafka_s3_platform.config.settings import StoreSettings
from kafka_s3_platform.config.sheet import Sheet
from kafka_s3_platform.config.table import REQUIRED, alias, honoured, without_meaning

_ACLS = (
    "private",
    "public-read",
    "public-read-write",
    "authenticated-read",
    "aws-exec-read",
    "bucket-owner-read",
    "bucket-owner-full-control",
)
_ENCRYPTIONS: Mapping[str, Literal["AES256", "aws:kms", "aws:kms:dsse"]] = {
    "AES256": "AES256",
    "aws:kms": "aws:kms",
    "aws:kms:dsse": "aws:kms:dsse",
}
_MAX_TAGS = 7
"""S3 allows an object ten tags; three are the offsets and the count."""

_TAG_KEY = re.compile(r"[\w +\-=._/@]{1,128}")
_TAG_VALUE = re.compile(r"[\w +\-=._:/@]{0,256}")

STORE_KEYS = (
    honoured("s3.bucket.name", REQUIRED, "The bucket."),
    honoured("s3.region", "us-west-2", "The AWS region of the bucket."),
    honoured(
        "store.url",
        "AWS's endpoint",
        "Endpoint of an S3-compatible store, `http://` or [`https://`](#tls). It must"
        " [keep what an archive relies on](#what-the-store-must-keep).",
    ),
    honoured("s3.path.style.access.enabled", "true", "The bucket is named in the path instead of the host name."),
    honoured("s3.part.size", "26214400", "Bytes of one part of a multipart upload, 5242880 or more."),
    honoured("s3.part.retries", "3", "How often a failed S3 request is tried again."),
    honoured(
        "s3.retry.backoff.ms",
        "200",
        "The longest wait before a failed S3 request is tried again; before each next try twice as long, up to 20"
        " seconds, at least half of it.",
    ),
    honoured(
        "s3.wan.mode",
        "false",
        "`true`: AWS's accelerated endpoint is used, with the bucket in the host name. Not with `store.url`.",
    ),
    honoured("s3.proxy.url", "none", "HTTP proxy that S3 is reached through, `http://host:port`."),
    honoured("s3.proxy.user", "none", "User of the proxy."),
    honoured("s3.proxy.password", "none", "Password of the proxy's user."),
    honoured(
        "s3.acl.canned",
        "the bucket's",
        f"Canned ACL of every object but the index's, which its library cannot set: {', '.join(_ACLS)}.",
    ),
    honoured(
        "s3.ssea.name",
        "the bucket's",
        "Server-side encryption of every object, the index included: `AES256`, `aws:kms` or `aws:kms:dsse`.",
    ),
    honoured("s3.sse.kms.key.id", "AWS's own key", "Id or ARN of the KMS key; needs `s3.ssea.name` with KMS."),
    honoured(
        "s3.sse.customer.key",
        None,
        "A key of your own (SSE-C), 32 bytes in base64, of every object, the index included; needs `s3.ssea.name`"
        " `AES256` and an endpoint with https. Nothing can be read without it, by whatever tool.",
    ),
    honoured(
        "s3.object.tagging",
        "false",
        "`true`: objects of records get the tags `startOffset`, `endOffset` (of the last record), `recordCount`.",
    ),
    honoured(
        "s3.object.tagging.key.value.pairs",
        "none",
        "Further tags, `name:value`, separated by commas, seven at most; needs `s3.object.tagging`.",
    ),
    honoured(
        "s3.object.behavior.on.tagging.error",
        "ignore",
        "`ignore`: an object that cannot be tagged stays without tags and is logged. `fail`: the run fails.",
    ),
    *CREDENTIALS_KEYS,
    alias("s3.bucket", "s3.bucket.name", "DeviantArt's"),
    alias("s3.endpoint", "store.url", "DeviantArt's"),
    alias("s3.path_style", "s3.path.style.access.enabled", "DeviantArt's"),
    alias("aws.s3.bucket.name", "s3.bucket.name", "Aiven's"),
    alias("aws.s3.region", "s3.region", "Aiven's"),
    alias("aws.s3.endpoint", "store.url", "Aiven's"),
    alias("aws.s3.part.size.bytes", "s3.part.size", "Aiven's"),
    alias("aws.s3.sse.algorithm", "s3.ssea.name", "Aiven's"),
    alias("aws.s3.backoff.delay.ms", "s3.retry.backoff.ms", "Aiven's"),
    alias("aws.s3.backoff.max.retries", "s3.part.retries", "Aiven's"),
    alias("aws_s3_bucket", "s3.bucket.name", "Aiven's old"),
    alias("aws_s3_bucket_name", "s3.bucket.name", "Aiven's old"),
    alias("aws_s3_region", "s3.region", "Aiven's old"),
    alias("aws_s3_endpoint", "store.url", "Aiven's old"),
    *without_meaning(
        "Objects are always written once, on condition that they do not exist.",
        "enable.conditional.writes",
        "max.files.scan.limit",
    ),
    *without_meaning("Every object carries a checksum.", "s3.send.digest"),
    *without_meaning("The S3 client has its own rules for this.", "s3.http.send.expect.continue"),
    *without_meaning("No wait is longer than 20 seconds.", "aws.s3.backoff.max.delay.ms"),
    *without_meaning(
        "Open writers and buffers are bounded without it.",
        "s3.elastic.buffer.enable",
        "s3.elastic.buffer.init.capacity",
    ),
)


def store_settings(sheet: Sheet) -> StoreSettings:
    """The bucket and how to reach it, of a connector file."""
    sheet.require_both("aws.access.key.id", "aws.secret.access.key")
    region = sheet.read("s3.region", _region, "us-west-2")
    role, provider = role_settings(sheet, region), provider_settings(sheet)
    chain = chain_settings(sheet)
    refuse_two_methods(sheet, role, provider, chain)
    bucket = sheet.read("s3.bucket.name", values.bucket_name, "")
    accelerate = _accelerate(sheet, bucket)
    encryption = sheet.read("s3.ssea.name", _encryption, None)
    return StoreSettings(
        limits=read_limits(sheet),
        bucket=bucket,
        region=region,
        endpoint_url=sheet.read("store.url", endpoint, None),
        access_key_id=sheet.read("aws.access.key.id", SecretStr, None),
        secret_access_key=sheet.read("aws.secret.access.key", SecretStr, None),
        role=role,
        provider=provider,
        chain=chain,
        path_style=sheet.read("s3.path.style.access.enabled", values.boolean, default=not accelerate),
        accelerate=accelerate,
        proxy_url=_proxy(sheet),
        part_size=sheet.read("s3.part.size", values.integer(5_242_880, 2**31 - 1), 26_214_400),
        max_retries=sheet.read("s3.part.retries", values.integer(0, 1000), 3),
        retry_backoff_ms=sheet.read("s3.retry.backoff.ms", values.integer(0), 200),
        canned_acl=sheet.read("s3.acl.canned", values.choice(_ACLS), None),
        encryption=encryption,
        kms_key_id=_kms_key_id(sheet, encryption),
        customer_key=_customer_key(sheet, encryption),
        tagging=sheet.read("s3.object.tagging", values.boolean, default=False),
        tags=_tags(sheet),
        ignore_tagging_errors=sheet.read(
            "s3.object.behavior.on.tagging.error", values.choice(("ignore", "fail")), "ignore"
        )
        == "ignore",
    )


def _accelerate(sheet: Sheet, bucket: str) -> bool:
    wanted = sheet.read("s3.wan.mode", values.boolean, default=False)
    if not wanted:
        return False
    if "store.url" in sheet:
        sheet.refuse("s3.wan.mode", f"only AWS has an accelerated endpoint; remove it, or {sheet.written('store.url')}")
    if sheet.read("s3.path.style.access.enabled", values.boolean, default=False):
        sheet.refuse("s3.path.style.access.enabled", "s3.wan.mode needs the bucket in the host name; set it to false")
    if "." in bucket:
        sheet.refuse("s3.wan.mode", f"the accelerated endpoint takes no bucket with a dot in its name, as {bucket}")
    return True


def _proxy(sheet: Sheet) -> SecretStr | None:
    url, user, password = (sheet.text(f"s3.proxy.{name}") for name in ("url", "user", "password"))
    for name, value in (("user", user), ("password", password)):
        if value and not url:
            sheet.refuse(f"s3.proxy.{name}", "there is no proxy; set s3.proxy.url")
    if password and not user:
        sheet.refuse("s3.proxy.password", "whose? set s3.proxy.user")
    found = sheet.read("s3.proxy.url", _proxy_url, None)
    if found is None or not user:
        return None if found is None else SecretStr(found)
    if "@" in found:
        sheet.refuse("s3.proxy.user", "s3.proxy.url names a user itself; keep one")
    scheme, _, rest = found.partition("://")
    return SecretStr(f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{rest}")


def _proxy_url(text: str) -> str:
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/") or parts.query:
        raise ValueError("is no proxy such as http://proxy.example.com:3128")
    return parts.geturl().rstrip("/")


def _encryption(text: str) -> Literal["AES256", "aws:kms", "aws:kms:dsse"]:
    return _ENCRYPTIONS[values.choice(_ENCRYPTIONS)(text)]


def _kms_key_id(sheet: Sheet, encryption: str | None) -> str | None:
    if "s3.sse.kms.key.id" in sheet and not (encryption or "").startswith("aws:kms"):
        sheet.refuse("s3.sse.kms.key.id", "without s3.ssea.name aws:kms it would encrypt nothing; set both")
    return sheet.text("s3.sse.kms.key.id") or None


def _customer_key(sheet: Sheet, encryption: str | None) -> SecretStr | None:
    if "s3.sse.customer.key" in sheet and encryption != "AES256":
        sheet.refuse("s3.sse.customer.key", "without s3.ssea.name AES256 it would encrypt nothing; set both")
    return sheet.read("s3.sse.customer.key", _key_of_32_bytes, None)


def _key_of_32_bytes(text: str) -> SecretStr:
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ValueError("is not 32 bytes in base64, such as `openssl rand -base64 32` gives")
    return SecretStr(text)


def _tags(sheet: Sheet) -> tuple[tuple[str, str], ...]:
    name = "s3.object.tagging.key.value.pairs"
    if name in sheet and not sheet.read("s3.object.tagging", values.boolean, default=False):
        sheet.refuse(name, "objects are not tagged; set s3.object.tagging to true")
    return sheet.read(name, _tag_pairs, ())


def _tag_pairs(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [pair.strip().partition(":") for pair in text.split(",") if pair.strip()]
    for name, colon, value in pairs:
        if not colon or not _TAG_KEY.fullmatch(name) or not _TAG_VALUE.fullmatch(value):
            raise ValueError(
                f"{name + colon + value!r} is no tag: name:value, letters, digits, spaces and any of + - = . _ / @, 128"
                " and 256 at most"
            )
    found = {name: value for name, _, value in pairs}
    if len(found) < len(pairs) or len(found) > _MAX_TAGS:
        raise ValueError(f"{len(pairs)} tags; up to {_MAX_TAGS} of different names fit beside the three of the records")
    return tuple(found.items())


def _region(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9-]+", text):
        raise ValueError(f"{text!r} is no region such as eu-central-1")
    return text
