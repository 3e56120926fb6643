"""What an inventory remembers from one look to the next. A sensor's cursor holds it as JSON, so it is small."""

import msgspec

NewestFolder = tuple[int, int, str]
"""The span (epoch ms, half-open) and the path of the newest time folder."""


class ObjectCount(msgspec.Struct, array_like=True):
    """A number of objects, their bytes, and a digest that does not depend on their order."""

    objects: int = 0
    size: int = 0
    digest: int = 0

    def add(self, size: int, digest: int) -> None:
        """Add an object."""
        self.objects += 1
        self.size += size
        self.digest = (self.digest + digest) % 2**63


class Freshness(msgspec.Struct, array_like=True):
    """The newest time folder, and when the newest object was written (epoch ms)."""

    newest: NewestFolder | None = None
    modified: int = 0

    def update(self, newest: NewestFolder | None, modified: int) -> None:
        """Keep what is newer."""
        if newest is not None and (self.newest is None or newest > self.newest):
            self.newest = newest
        self.modified = max(self.modified, modified)


class InventoryChange(msgspec.Struct, array_like=True):
    """What a count found of a topic that no walk could see.

    `missing` objects of the count before were deleted or overwritten since. `late` objects were written since into
    folders, or under names, that walks do not list any more: `example` is the key of one.
    """

    missing: int = 0
    late: int = 0
    example: str = ""


class TopicInventory(msgspec.Struct, array_like=True):
    """A topic's objects: those that only counts list (`older`), and those of the last walk by place (`recent`).

    `before` are the objects that were written before the last count began: the next count compares with it. `young` is
    the number of those in `older` that were written later.
    """

    older: ObjectCount = msgspec.field(default_factory=ObjectCount)
    before: ObjectCount = msgspec.field(default_factory=ObjectCount)
    recent: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    fresh: Freshness = msgspec.field(default_factory=Freshness)
    young: int = 0
    change: InventoryChange | None = None
    told: str = ""

    @property
    def objects(self) -> int:
        return self.older.objects + sum(objects for objects, _ in self.recent.values())

    @property
    def size(self) -> int:
        """The bytes of all objects."""
        return self.older.size + sum(size for _, size in self.recent.values())


class TopicCounting(msgspec.Struct, array_like=True):
    """What the count under way has found of a topic so far.

    `same` is what it compares with `TopicInventory.before`. `open` are the objects that the next walks list. `late_at`
    is when the example of late objects was written (epoch ms).
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
    """What a walk has found of a topic: objects and bytes by folder."""

    folders: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    fresh: Freshness = msgspec.field(default_factory=Freshness)


class CountUnderWay(msgspec.Struct):
    """A count that has begun: it goes on behind the key `after`.

    `begun` is the store's time at its beginning, and `since` the border of the walks that will follow it (epoch ms).
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
    """The state of an inventory. Times are epoch ms, those of `counted` of the store's clock.

    Attributes:
        counted: when the last whole count began. 0: there was none.
        since: walks list time folders that end later.
        tails: folders that tell no time, with the last name in each. None: too many, so no walk lists any folder.
        refused: how many keys the last count could not read, and one of them with the reason.
        is_walked: every place was walked since the last count, so all numbers are known.
        folder, at: where the walk goes on: a folder below the root, and the last key that it has listed there.
        walked: what it has found so far in the place that this folder is in.
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
