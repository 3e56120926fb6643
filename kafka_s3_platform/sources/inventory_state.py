"""Defines an inventory's state between updates. A sensor's cursor holds it as JSON, so it is small."""

import msgspec

NewestFolder = tuple[int, int, str]
"""The span (epoch ms, half-open) and the path of the newest time folder."""


class ObjectCount(msgspec.Struct, array_like=True):
    """A number of objects, their bytes, and a digest independent of their order."""

    objects: int = 0
    size: int = 0
    digest: int = 0

    def add(self, size: int, digest: int) -> None:
        """Add an object."""
        self.objects += 1
        self.size += size
        self.digest = (self.digest + digest) % 2**63


class Freshness(msgspec.Struct, array_like=True):
    """The newest time folder, and the time of the newest object's writing (epoch ms)."""

    newest: NewestFolder | None = None
    modified: int = 0

    def update(self, newest: NewestFolder | None, modified: int) -> None:
        """Keep the newer values."""
        if newest is not None and (self.newest is None or newest > self.newest):
            self.newest = newest
        self.modified = max(self.modified, modified)


class InventoryChange(msgspec.Struct, array_like=True):
    """Changes of a topic's objects that only a count can find.

    `missing` objects of the count before were deleted or overwritten since. `late` objects were written since into
    folders, or under names, beyond the walks' border: `example` is the key of one.
    """

    missing: int = 0
    late: int = 0
    example: str = ""


class TopicInventory(msgspec.Struct, array_like=True):
    """A topic's objects: those of the last count alone (`older`), and those of the last walk by place (`recent`).

    `before` are the objects written before the last count began, for the next count to compare. `young` is the number
    of later ones in `older`. `reported` are the numbers in the last observation.
    """

    older: ObjectCount = msgspec.field(default_factory=ObjectCount)
    before: ObjectCount = msgspec.field(default_factory=ObjectCount)
    recent: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    fresh: Freshness = msgspec.field(default_factory=Freshness)
    young: int = 0
    change: InventoryChange | None = None
    reported: str = ""

    @property
    def objects(self) -> int:
        return self.older.objects + sum(objects for objects, _ in self.recent.values())

    @property
    def size(self) -> int:
        """The bytes of all objects."""
        return self.older.size + sum(size for _, size in self.recent.values())


class TopicCounting(msgspec.Struct, array_like=True):
    """A topic's objects in the unfinished count.

    `same` is compared with `TopicInventory.before`. `open` are the objects for the next walks to list. `late_at` is the
    time of writing of the example of late objects (epoch ms).
    """

    older: ObjectCount = msgspec.field(default_factory=ObjectCount)
    before: ObjectCount = msgspec.field(default_factory=ObjectCount)
    same: ObjectCount = msgspec.field(default_factory=ObjectCount)
    open: ObjectCount = msgspec.field(default_factory=ObjectCount)
    fresh: Freshness = msgspec.field(default_factory=Freshness)
    young: int = 0
    late_at: int = 0
    change: InventoryChange = msgspec.field(default_factory=InventoryChange)


class WalkedTopic(msgspec.Struct, array_like=True):
    """A topic in a walk: objects and bytes by folder."""

    folders: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    fresh: Freshness = msgspec.field(default_factory=Freshness)


class CountUnderWay(msgspec.Struct):
    """An unfinished count: it goes on behind the key `after`.

    `begun` is the store's time at its beginning, and `since` the border of the next walks (epoch ms).
    """

    begun: int
    since: int
    after: str = ""
    listed: int = 0
    refused: int = 0
    refusal: str = ""
    unnamed: int = 0
    """Objects of topics beyond the limit."""

    tails: dict[str, str] | None = msgspec.field(default_factory=dict)
    topics: dict[str, TopicCounting] = msgspec.field(default_factory=dict)


class InventoryState(msgspec.Struct):
    """The state of an inventory. Times are epoch ms, in `counted` of the store's clock.

    Attributes:
        counted: start of the last finished count. 0: there was none.
        since: the border: walks list the time folders with a later end.
        tails: folders without a time, with the last name in each. None: too many, so no walk lists any folder.
        refused: the number of keys that the last count could not read; `refusal` is one of them with the reason.
        is_walked: every place was walked since the last count, so all numbers are known.
        folder, at: the walk goes on in this folder below the root, behind this key.
        walked: the walk's objects so far in the place of this folder.
    """

    counted: int = 0
    since: int = 0
    tails: dict[str, str] | None = msgspec.field(default_factory=dict)
    refused: int = 0
    refusal: str = ""
    unnamed: int = 0
    is_walked: bool = False
    folder: str = ""
    at: str = ""
    walked: dict[str, WalkedTopic] = msgspec.field(default_factory=dict)
    topics: dict[str, TopicInventory] = msgspec.field(default_factory=dict)
    count: CountUnderWay | None = None
