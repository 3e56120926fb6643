import pytest

from kafka_s3_platform.config.settings import StoreSettings
from kafka_s3_platform.errors import SupersededError
from kafka_s3_platform.restore.replay.checkpoint import Checkpoint, Position, read_positions
from kafka_s3_platform.store.objects import ObjectStore

KEY = "_restore/r/0.json"


def test_a_position_comes_back_and_none_before_the_first(store_settings: StoreSettings) -> None:
    store = ObjectStore(store_settings)
    checkpoint = Checkpoint(store, KEY, "one")

    assert checkpoint.load() is None
    checkpoint.save(Position(3, 7, 2))
    checkpoint.save(Position(5, 9, 4))

    assert Checkpoint(store, KEY, "two").load() == Position(5, 9, 4)
    assert read_positions(store, [KEY, "_restore/r/1.json"]) == [Position(5, 9, 4), None]


def test_a_run_that_another_one_has_overtaken_is_told_at_its_next_checkpoint(store_settings: StoreSettings) -> None:
    store = ObjectStore(store_settings)
    older, newer = Checkpoint(store, KEY, "older"), Checkpoint(store, KEY, "newer")
    older.save(Position(0, 0))

    newer.load()
    newer.save(Position(0, 0))

    with pytest.raises(SupersededError, match="another run of this restore id"):
        older.save(Position(5, 5, 5))
    assert newer.load() == Position(0, 0)


def test_two_runs_that_begin_at_once_are_told_apart(store_settings: StoreSettings) -> None:
    store = ObjectStore(store_settings)
    first, second = Checkpoint(store, KEY, "first"), Checkpoint(store, KEY, "second")
    assert first.load() is second.load() is None
    first.save(Position(0, 0))

    with pytest.raises(SupersededError, match="another run of this restore id"):
        second.save(Position(0, 0))
