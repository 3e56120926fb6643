"""The document to reset committed offsets of groups."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kafka_s3_platform.errors import PermanentError
from kafka_s3_platform.kafka.groups import Committed


@dataclass(frozen=True)
class GroupBefore:
    """A group's committed offsets at the target before the change, by kafka partition; None for none."""

    existed: bool
    offsets: Mapping[int, Committed | None]


@dataclass(frozen=True)
class Rollback:
    """Everything needed to undo an `apply_translation`."""

    restore_id: str
    topic: str
    topic_id: str
    written_at: str
    groups: Mapping[str, GroupBefore]

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()

    @staticmethod
    def from_json(content: bytes) -> "Rollback":
        """Parse a document of `to_json`. Raises PermanentError if it is something else."""
        try:
            document: dict[str, Any] = json.loads(content)
            groups = {g: _parse_before(b) for g, b in document.pop("groups").items()}
            return Rollback(**document, groups=groups)
        except (ValueError, TypeError, KeyError, AttributeError) as err:
            raise PermanentError(f"this is no rollback file of kafka-s3 groups: {err!r}") from err


def _parse_before(document: Mapping[str, Any]) -> GroupBefore:
    offsets = {int(p): c and Committed(**c) for p, c in document["offsets"].items()}
    return GroupBefore(document["existed"], offsets)
