"""How far one kafka partition of a restore has come, kept in the bucket beside the plan."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from kafka_s3_platform.errors import SupersededError
from kafka_s3_platform.restore.documents import document
from kafka_s3_platform.store.errors import NotFoundError, PreconditionError
from kafka_s3_platform.store.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the stream of one source kafka partition.

    All its records below `next_source_offset` are in the target below `next_target_offset`, no other is at or above it
    when this is written. `record_count` counts them. Sent exactly once, the marker tells where to go on and not this:
    there is no target offset then, and more may have been committed since.
    """

    next_source_offset: int
    next_target_offset: int | None
    record_count: int = 0


class Checkpoint:
    """The stored position. Every write names the one before it, so of two writers one is told.

    Raises SupersededError when another run of the same restore id has written since.
    """

    def __init__(self, store: ObjectStore, key: str, owner: str) -> None:
        self._store, self._key, self._owner = store, key, owner
        self._etag: str | None = None
        self.position: Position | None = None
        """What this writer has loaded or saved last."""

    def load(self) -> Position | None:
        """The position written last, None before the first."""
        found = self._store.head(self._key)
        if found is None:
            return None
        self._etag = found.etag
        self.position = _parsed(self._store.get(self._key), self._key)
        return self.position

    def save(self, position: Position) -> None:
        body = json.dumps(asdict(position) | {"owner": self._owner}, indent=1).encode()
        try:
            if self._etag is None:
                written = self._store.put_new(self._key, body)
            else:
                written = self._store.replace(self._key, body, self._etag)
        except (PreconditionError, NotFoundError) as err:
            raise SupersededError(
                f"restore checkpoint {self._key} is no longer the one that {self._owner} wrote: another run of this "
                f"restore id is at work. Let that one finish, or end it and run again"
            ) from err
        self._etag, self.position = written.etag, position

    @property
    def is_last(self) -> bool:
        """Whether what is stored is what this writer has loaded or saved last."""
        found = self._store.head(self._key)
        return found is not None and found.etag == self._etag


def positions(store: ObjectStore, keys: Sequence[str]) -> list[Position | None]:
    """The position behind each checkpoint key, None where nothing was written yet."""
    return [_position(store, key) for key in keys]


def save_document(store: ObjectStore, key: str, body: bytes) -> None:
    """Create the object or replace the one that is there."""
    found = store.head(key)
    if found is None:
        store.put_new(key, body)
    else:
        store.replace(key, body, found.etag)


def _position(store: ObjectStore, key: str) -> Position | None:
    try:
        return _parsed(store.get(key), key)
    except NotFoundError:
        return None


def _parsed(content: bytes, key: str) -> Position:
    return document(content, Position, key)
