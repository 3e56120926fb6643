"""Fixtures that archiving, restores and the upkeep of an archive share."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from kafka_s3_platform.core.errors import StoreUnavailableError
from kafka_s3_platform.core.store.index import ConnectorSnapshot
from kafka_s3_platform_tests.archive.conftest import _led_at_epoch_nine
from kafka_s3_platform_tests.restore.conftest import archive_once, copied_archive, shared_archive

__all__ = ["_led_at_epoch_nine", "archive_once", "copied_archive", "shared_archive"]


@pytest.fixture
def lose_answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that loses the answer to one of the next commits to an index, which is written: to the n-th."""
    commit = ConnectorSnapshot.commit

    def lose(number: int) -> None:
        numbers = count(1)

        def commit_without_answer(snapshot: ConnectorSnapshot, *args: Any) -> int:
            version = commit(snapshot, *args)
            if next(numbers) == number:
                raise StoreUnavailableError("the answer was lost")
            return version

        monkeypatch.setattr(ConnectorSnapshot, "commit", commit_without_answer)

    return lose
