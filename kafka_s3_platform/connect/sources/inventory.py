"""Counts the objects of a source with a few requests each time, however many objects the bucket holds.

A *count* lists everything, over many updates, and sets a *border* in time for the *walks* after it. A walk goes down
the folders by delimiter, each time anew. Of time folders, it lists only the *open* ones, which end after the border. Of
other folders, it lists only the names after the last one in the count (the folder's *tail*). The inventory has the
count's objects before the border and the last walk's after it, so no object is counted twice. A *place* is a folder
directly below the root. The state is kept small, because a sensor's cursor holds it as JSON.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec

from kafka_s3_platform.connect.sources.objects import ForeignObject
from kafka_s3_platform.connect.sources.scan import KeyJudge, is_own_document
from kafka_s3_platform.core.config.settings import ConnectorConfig, SourceSettings
from kafka_s3_platform.core.model.times import EPOCH, ONE_MS
from kafka_s3_platform.core.partitioners.folders import Window
from kafka_s3_platform.core.store.objects import ListedPage, ObjectInfo, ObjectStore

NewestFolder = tuple[int, int, str]
"""The span (epoch ms, half-open) and the path of the newest time folder."""

REQUESTS = 100
"""The most requests of an update. Each lists up to a thousand objects or folders."""

COUNT_REQUESTS = 25
"""The most requests of an update that go to the count. Walks have the rest."""

COUNT_EVERY = timedelta(days=1)

MAX_TAILS = 200
"""If more folders have no time, listing each would cost more than the count, which is then repeated at once."""

MAX_TOPICS = 200
"""The most topics in the state. The objects of other topics are only counted, in `unnamed`."""

CallStore = Callable[[str, Callable[[], ListedPage | None]], ListedPage | None]
"""Waits a limited time for an answer of the store. The text names the request."""

_SECOND = timedelta(seconds=1)


class ObjectCount(msgspec.Struct, array_like=True):
    """A number of objects, and their bytes."""

    objects: int = 0
    size: int = 0

    def add(self, size: int) -> None:
        """Add an object."""
        self.objects += 1
        self.size += size


class Freshness(msgspec.Struct, array_like=True):
    """The newest time folder, and the time the newest object was written (epoch ms)."""

    newest: NewestFolder | None = None
    modified: int = 0

    def update(self, newest: NewestFolder | None, modified: int) -> None:
        """Keep the newer values."""
        if newest is not None and (self.newest is None or newest > self.newest):
            self.newest = newest
        self.modified = max(self.modified, modified)


class TopicInventory(msgspec.Struct, array_like=True):
    """A topic's objects: `older` ones from the last count, and `recent` ones from the last walk, by place.

    `fewer` tells how many fewer objects the last count found. `reported` are the numbers in the last observation.
    """

    older: ObjectCount = msgspec.field(default_factory=ObjectCount)
    recent: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    fresh: Freshness = msgspec.field(default_factory=Freshness)
    fewer: int = 0
    reported: str = ""

    @property
    def objects(self) -> int:
        return self.older.objects + sum(objects for objects, _ in self.recent.values())

    @property
    def size(self) -> int:
        """The bytes of all objects."""
        return self.older.size + sum(size for _, size in self.recent.values())


class TopicCounting(msgspec.Struct, array_like=True):
    """A topic's objects in the unfinished count. The next walks list the `open` ones again."""

    older: ObjectCount = msgspec.field(default_factory=ObjectCount)
    open: ObjectCount = msgspec.field(default_factory=ObjectCount)
    fresh: Freshness = msgspec.field(default_factory=Freshness)


class WalkedTopic(msgspec.Struct, array_like=True):
    """A topic in a walk, with its numbers of objects and bytes by folder."""

    folders: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    fresh: Freshness = msgspec.field(default_factory=Freshness)


class CountUnderWay(msgspec.Struct):
    """An unfinished count, which goes on after the key `after`.

    `begun` is the store's time when the count began, and `since` the border of the next walks (epoch ms).
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
    """The state of an inventory. Times are epoch ms. The time `counted` is from the store's clock.

    Attributes:
        counted: the start of the last finished count, or 0 if there was none.
        since: the border. Walks list the time folders that end later.
        tails: the last name in each folder without a time. None if there are too many, so no walk lists any folder.
        refused: the number of keys the last count could not read; `refusal` is one of them with the reason.
        is_walked: True if every place was walked since the last count, so all numbers are known.
        folder, at: the folder below the root, and the key in it, after which the walk goes on.
        walked: the objects the walk has found so far in the place of this folder.
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


class _OutOfRequests(Exception):  # noqa: N818  no error: the next update goes on
    """This update has made all its requests, or has no time left."""


class Inventory:
    """Updates the inventory of a source once. `state` goes from one update to the next.

    Raises (from `update`):
        ConfigError: the connector's file cannot be used to read keys.
        PlatformError: the store's error. `state` then holds the progress so far.
    """

    def __init__(
        self,
        config: ConnectorConfig,
        state: InventoryState,
        call_store: CallStore,
        is_over: Callable[[], bool],
        store: ObjectStore | None = None,
    ) -> None:
        source = config.source or SourceSettings()
        if source.behavior_on_error == "log":
            # every update would log the same lines
            source = source.model_copy(update={"behavior_on_error": "ignore"})
        self._config = config.model_copy(update={"source": source})
        self._look_back = source.look_back_ms * ONE_MS
        self._state = state
        self._call_store = call_store
        self._is_over = is_over
        self._store = store or ObjectStore(config.store)
        self._judge = KeyJudge(self._config)
        self._reader = self._judge.reader
        self._remaining = REQUESTS
        self._find_span = lru_cache(1_024)(self._reader.find_span)
        self.walked: dict[str, WalkedTopic] = {}
        """The objects of the places this update has walked to their ends, by topic."""

    @property
    def requests(self) -> int:
        """The number of requests so far."""
        return REQUESTS - self._remaining

    def update(self) -> None:
        """Go on with the count if one is under way or due, and with the walk."""
        if self._state.count is not None or self._is_count_due():
            self._count(COUNT_REQUESTS if self._is_walk_possible() else REQUESTS)
        if self._is_walk_possible():
            self._walk()

    def _is_walk_possible(self) -> bool:
        """Return True if a count has been finished, and walks may list folders."""
        return bool(self._state.counted) and self._state.tails is not None

    def _is_count_due(self) -> bool:
        """Return True if there was no count yet, if walks are not possible, or if the last count is a day old."""
        last = EPOCH + self._state.counted * ONE_MS
        return not self._is_walk_possible() or datetime.now(timezone.utc) - last >= COUNT_EVERY

    def _list_pages(
        self, prefix: str, delimiter: str = "", start_after: str = "", spare: int = 0
    ) -> Iterator[ListedPage]:
        """List page by page. Raises _OutOfRequests if only `spare` requests remain, or no time remains."""
        pages = self._store.list_pages(prefix, delimiter=delimiter, start_after=start_after)
        is_last = False
        while not is_last:
            if self._remaining <= spare or (self.requests and self._is_over()):
                raise _OutOfRequests
            self._remaining -= 1
            page = self._call_store(self._store.uri(prefix), lambda: next(pages, None))
            if page is None:
                return
            yield page
            is_last = page.is_last

    def _count(self, requests: int) -> None:
        """Go on with the count. List the next pages of the bucket with at most this number of requests."""
        spare = self._remaining - requests
        last_key = "" if self._state.count is None else self._state.count.after
        try:
            for prefix in self._judge.prefixes:
                is_started = last_key.startswith(prefix)
                if is_started or last_key < prefix:
                    for page in self._list_pages(prefix, start_after=last_key if is_started else "", spare=spare):
                        self._add_page(page)
        except _OutOfRequests:
            return
        self._finish_count()

    def _add_page(self, page: ListedPage) -> None:
        """Add the objects of a page to the count. It goes on after the last of them."""
        count = self._state.count = self._state.count or self._begin_count()
        refused = len(self._judge.wrong)
        items = self._judge_page(page)
        wrong = self._judge.wrong[refused:]
        count.refused += len(wrong)
        count.refusal = count.refusal or "".join(wrong[:1])
        for info, item in items:
            self._add_to_count(count, info, item)
        count.listed += len(page.objects)
        if page.objects:
            count.after = page.objects[-1].key

    def _begin_count(self) -> CountUnderWay:
        """Begin a count at the time of the first answer: all objects written before this time are in the answers."""
        started_at = self._store.clock.earlier_now() - _SECOND
        zone = ZoneInfo(self._config.layout.timezone)
        border = (started_at - self._look_back).astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
        return CountUnderWay(begun=(started_at - EPOCH) // ONE_MS, since=(border - EPOCH) // ONE_MS)

    def _add_to_count(self, count: CountUnderWay, info: ObjectInfo, item: ForeignObject) -> None:
        """Count an object of a topic as older if its folder ended before the border, else as open.

        Walks list open objects again. Names in folders without a time are kept as tails: walks begin after them.
        """
        if item.topic not in count.topics and len(count.topics) == MAX_TOPICS:
            count.unnamed += 1
            return
        topic = count.topics.setdefault(item.topic, TopicCounting())
        folder, name = self._split_key(item.key)
        span = self._find_span(folder)
        (topic.older if span is None or span[1] <= count.since else topic.open).add(info.size)
        topic.fresh.update(span and (*span, folder), _find_modified(info))
        if span is None and count.tails is not None:
            count.tails[folder] = max(name, count.tails.get(folder, ""))
            if len(count.tails) > MAX_TAILS:
                count.tails = None

    def _is_counted(self, folder: str, name: str, span: Window | None) -> bool:
        """Return True if the last count has counted the object, so no walk may count it again."""
        if span is not None:
            return span[1] <= self._state.since
        return self._state.tails is not None and name <= self._state.tails.get(folder, "")

    def _finish_count(self) -> None:
        """Replace the inventory with the finished count, from which the next walks go on.

        If a topic has fewer objects than in the inventory, `fewer` becomes the difference.
        """
        state = self._state
        count = state.count
        if count is None:
            return  # there was no page
        topics: dict[str, TopicInventory] = {}
        for name in sorted({*state.topics, *count.topics}):
            previous = state.topics.get(name, TopicInventory())
            counting = count.topics.get(name, TopicCounting())
            if not counting.fresh.modified and not previous.objects:
                continue  # the lack of objects was already reported
            fewer = max(0, previous.objects - counting.older.objects - counting.open.objects)
            # Without walks, the numbers stay as counted.
            recent = {} if count.tails is not None else {"": (counting.open.objects, counting.open.size)}
            topics[name] = TopicInventory(counting.older, recent, counting.fresh, fewer, previous.reported)
        state.counted = count.begun
        state.since = count.since
        state.tails = count.tails
        state.refused, state.refusal, state.unnamed = count.refused, count.refusal, count.unnamed
        state.topics = topics
        state.count = None
        state.is_walked = count.tails is None
        state.folder = state.at = ""
        state.walked = {}

    def _walk(self) -> None:
        """Walk one place after the other, from where the last update ended. After the last place, begin anew."""
        state = self._state
        try:
            places = self._list_places()
            for place in places:
                resume_place = self._split_path(state.folder)[0]
                if place > resume_place:
                    state.walked = {}  # of a folder that is gone
                if place >= resume_place:
                    self._walk_folder(place)
                    self._finish_place(place)
        except _OutOfRequests:
            return
        state.folder = state.at = ""
        state.is_walked = True
        for topic in state.topics.values():
            topic.recent = {place: numbers for place, numbers in topic.recent.items() if place in places}

    def _list_places(self) -> list[str]:
        """Return the open places, in order. The root itself is the place of objects in no folder."""
        root = self._reader.root
        prefixes = self._judge.prefixes
        if prefixes != [root]:
            return [self._strip_prefix(prefix) for prefix in prefixes]
        folders: set[str] = set()
        for page in self._list_pages(root, self._reader.delimiter, self._find_tail("")):
            folders |= {"" for _ in page.objects[:1]} | {self._strip_prefix(prefix) for prefix in page.folders}
        return sorted(filter(self._is_open, folders))

    def _walk_folder(self, folder: str) -> None:
        """List the open objects of a folder and the folders below it. Skip folders before the state's folder."""
        state = self._state
        path, resume_path = self._split_path(folder), self._split_path(state.folder)
        if path < resume_path and path != resume_path[: len(path)]:
            return
        is_listed = path < resume_path
        if path > resume_path:
            state.folder, state.at = folder, ""
        span = self._find_span(folder) if folder else None
        is_flat = span is not None and span[0] >= state.since
        prefix = self._make_prefix(folder)
        start_after = self._find_tail(folder) if span is None else ""
        if path == resume_path:
            start_after = max(start_after, state.at)
        children: set[str] = set()
        for page in self._list_pages(prefix, "" if is_flat else self._reader.delimiter, start_after):
            if not is_listed:
                self._add_to_walk(page)
            children.update(map(self._strip_prefix, page.folders))
        if folder:
            for child in sorted(filter(self._is_open, children), key=self._split_path):
                self._walk_folder(child)

    def _add_to_walk(self, page: ListedPage) -> None:
        """Add the objects of a page the count does not have."""
        state = self._state
        for info, item in self._judge_page(page):
            folder, name = self._split_key(item.key)
            span = self._find_span(folder)
            is_named = item.topic in state.topics or len(state.topics) < MAX_TOPICS
            if is_named and not self._is_counted(folder, name, span):
                topic = state.walked.setdefault(item.topic, WalkedTopic())
                objects, size = topic.folders.get(folder, (0, 0))
                topic.folders[folder] = (objects + 1, size + item.size)
                topic.fresh.update(span and (*span, folder), _find_modified(info))
        if page.objects:
            state.at = page.objects[-1].key

    def _finish_place(self, place: str) -> None:
        """Replace the numbers of a place in the topics with this walk's numbers."""
        state = self._state
        for topic in state.topics.values():
            topic.recent.pop(place, None)
        for name, walked in state.walked.items():
            topic = state.topics.setdefault(name, TopicInventory())
            numbers = walked.folders.values()
            topic.recent[place] = (sum(objects for objects, _ in numbers), sum(size for _, size in numbers))
            topic.fresh.update(walked.fresh.newest, walked.fresh.modified)
            self.walked.setdefault(name, WalkedTopic()).folders |= walked.folders
        state.walked = {}

    def _judge_page(self, page: ListedPage) -> list[tuple[ObjectInfo, ForeignObject]]:
        """Return the objects of the source on a page of a listing."""
        # Judge all before any is added, because an error must not leave half a page behind.
        return [(info, item) for info in page.objects if (item := self._judge.judge(info)) is not None]

    def _is_open(self, folder: str) -> bool:
        """Return True if walks list a folder, because new objects may appear in it."""
        span = self._find_span(folder) if folder else None
        if is_own_document(self._make_prefix(folder), self._config):
            return False
        return span is None or span[1] > self._state.since

    def _find_tail(self, folder: str) -> str:
        """Return the last key the count found in a folder without a time, or an empty text if there is none."""
        name = (self._state.tails or {}).get(folder, "")
        return name and self._make_prefix(folder) + name

    def _make_prefix(self, folder: str) -> str:
        """Return the prefix of all keys in a folder."""
        return f"{self._reader.root}{folder}{self._reader.delimiter}" if folder else self._reader.root

    def _strip_prefix(self, prefix: str) -> str:
        """Return the folder, below the root, that a prefix stands for."""
        return prefix.removeprefix(self._reader.root).removesuffix(self._reader.delimiter)

    def _split_key(self, key: str) -> tuple[str, str]:
        """Split a key into its folder below the root, and its name."""
        folder, _, name = key.removeprefix(self._reader.root).rpartition(self._reader.delimiter)
        return folder, name

    def _split_path(self, folder: str) -> tuple[str, ...]:
        """Return the names of a folder and the folders around it, the outermost first."""
        return tuple(folder.split(self._reader.delimiter))


def _find_modified(info: ObjectInfo) -> int:
    """Return the time the object was written, in epoch ms."""
    return (info.last_modified - EPOCH) // ONE_MS
