"""The rights that an S3 policy of the docs gives, and those that requests need."""

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from kafka_s3_platform_tests.conftest import REPOSITORY
from kafka_s3_platform_tests.store.http_proxy import HttpRequest

POLICIES = REPOSITORY / "deploy" / "terraform" / "policies"


Grants = frozenset[tuple[str, str]]
"""Actions with their resources."""

_OF_OBJECTS: Mapping[tuple[str, str], str] = {
    ("GET", ""): "s3:GetObject",
    ("HEAD", ""): "s3:GetObject",
    ("PUT", ""): "s3:PutObject",
    ("PUT", "partNumber"): "s3:PutObject",
    ("POST", "uploads"): "s3:PutObject",
    ("POST", "uploadId"): "s3:PutObject",
    ("PUT", "tagging"): "s3:PutObjectTagging",
    ("POST", "restore"): "s3:RestoreObject",
    ("DELETE", "uploadId"): "s3:AbortMultipartUpload",
    ("DELETE", ""): "s3:DeleteObject",
}
_OF_BUCKETS: Mapping[tuple[str, str], str] = {
    ("GET", ""): "s3:ListBucket",
    ("GET", "list-type"): "s3:ListBucket",
    ("HEAD", ""): "s3:ListBucket",
    ("GET", "uploads"): "s3:ListBucketMultipartUploads",
}
_PARAMETERS = ("partNumber", "uploads", "uploadId", "tagging", "list-type", "delete", "acl", "restore")


def policy(name: str) -> Grants:
    """What a policy allows."""
    statements = json.loads((POLICIES / f"{name}.json").read_text())["Statement"]
    assert {s["Effect"] for s in statements} == {"Allow"}
    return frozenset((action, r) for s in statements for action in s["Action"] for r in s["Resource"])


def asked(request: HttpRequest) -> Iterator[tuple[str, str]]:
    """The actions that S3 demands for a request, with what they are done to. KeyError: none is known for it."""
    names = {p.partition("=")[0] for p in request.target.partition("?")[2].split("&")}
    parameter = next((name for name in _PARAMETERS if name in names), "")
    if parameter == "delete":
        for key in re.findall(r"<Key>(.*?)</Key>", request.body.decode()):
            yield "s3:DeleteObject", f"arn:aws:s3:::BUCKET/{key}"
        return
    if not request.key:
        yield _OF_BUCKETS[request.method, parameter], "arn:aws:s3:::BUCKET"
        return
    resource = f"arn:aws:s3:::BUCKET/{request.key}"
    yield _OF_OBJECTS[request.method, parameter], resource
    if "x-amz-acl" in request.headers:
        yield "s3:PutObjectAcl", resource


def actions(requests: list[HttpRequest]) -> set[tuple[str, str]]:
    return {found for request in requests for found in asked(request)}


def beyond(done: set[tuple[str, str]], allowed: Grants) -> set[tuple[str, str]]:
    """What was done and is not allowed."""
    return {(a, r) for a, r in done if not any(a == action and fnmatchcase(r, p) for action, p in allowed)}


def unused(done: set[tuple[str, str]], allowed: Grants) -> set[tuple[str, str]]:
    """What is allowed and was not done."""
    return {(a, p) for a, p in allowed if not any(a == action and fnmatchcase(r, p) for action, r in done)}


def compare(done: set[tuple[str, str]], allowed: Grants) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """What was done and is not allowed, and what is allowed and was not done."""
    return beyond(done, allowed), unused(done, allowed)
