from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance that forgets everything."""
    with dg.DagsterInstance.ephemeral(str(tmp_path / "dagster")) as found:
        yield found
