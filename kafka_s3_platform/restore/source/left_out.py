"""The bad objects left out of one stream: decided once for a restore id, and stored beside its plan.

Sending, resuming and verifying leave out the same objects, even if somebody mends one of them in between.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.restore.documents import parse_document
from kafka_s3_platform.sources.objects import BadObject
from kafka_s3_platform.store.errors import NotFoundError, PreconditionError
from kafka_s3_platform.store.objects import ObjectStore

DECIDED = (
    "What this restore leaves out was decided before its first record, and this is not among it. Put it back as it was "
    "and run again under the same restore id, or restore to another topic, under another restore id"
)

MENDED = "Once mended, it is sent by a new restore under another restore id, not by this one"


@dataclass(frozen=True)
class LeftOutObjects:
    """The document: object key -> reason, and the digest of the plan with these objects."""

    plan: str
    objects: Mapping[str, str]


def read_left_out(store: ObjectStore, key: str, plan_digest: str) -> Mapping[str, str] | None:
    """Read the decision. None: there is none. IntegrityError: the document is another plan's, or was changed."""
    try:
        document = parse_document(store.get(key), LeftOutObjects, key)
    except NotFoundError:
        return None
    if document.plan != plan_digest:
        raise IntegrityError(
            f"{key} is a decision of a restore with plan {document.plan}, this one's plan is {plan_digest}: there was "
            f"another restore of this id. Take another restore id"
        )
    return document.objects


def save_left_out(
    store: ObjectStore, key: str, plan_digest: str, bad_objects: Iterable[BadObject], sent_below: int
) -> None:
    """Store the objects to leave out. If another run has stored its decision first, that one counts.

    Raises:
        IntegrityError: records of a bad object may be in the target: earlier runs have sent those below `sent_below`.
    """
    bad = list(bad_objects)
    if sent := [item for item in bad if item.start_offset < sent_below]:
        raise IntegrityError(
            f"{sent[0].why}. An earlier run may have sent a part of it, so it cannot be left out whole: put it back as "
            f"it was, or restore to another topic, under another restore id"
        )
    try:
        decided = {"plan": plan_digest, "objects": {item.key: item.why for item in bad}}
        store.put_new(key, json.dumps(decided, indent=1).encode())
    except PreconditionError:
        return
