"""Why the records are no Delta table (ADR 16): what other engines do to one deletes what the index holds."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.schema import Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

SCHEMA = pa.schema([("offset", pa.int64())])


def objects(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True)
    for n, name in enumerate(names):
        pq.write_table(pa.table({"offset": [n]}, schema=SCHEMA), folder / name)


def table_of(folder: Path, paths: list[str]) -> DeltaTable:
    """A table in `folder` whose files are said to be at these paths."""
    size = next(folder.parent.glob("topics/*.parquet")).stat().st_size
    adds = [AddAction(path, size, {}, 0, True, "{}") for path in paths]
    folder.mkdir(parents=True, exist_ok=True)
    create_table_with_add_actions(str(folder), Schema.from_arrow(SCHEMA), adds, "append", [])
    return DeltaTable(str(folder))


def swept(folder: Path) -> None:
    DeltaTable(str(folder)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def test_a_foreign_vacuum_deletes_hours_that_a_table_of_the_records_does_not_name(tmp_path: Path) -> None:
    root = tmp_path / "topics"
    objects(root, ["merged-hour.parquet", "live.parquet"])
    table_of(root, ["live.parquet"])
    swept(root)
    assert [p.name for p in root.glob("*.parquet")] == ["live.parquet"]


def test_a_foreign_optimize_and_vacuum_delete_what_is_live(tmp_path: Path) -> None:
    root = tmp_path / "topics"
    live = ["one.parquet", "two.parquet"]
    objects(root, live)
    table_of(root, live).optimize.compact()
    swept(root)
    assert not any((root / name).exists() for name in live)


@pytest.mark.parametrize("where", ["../topics/", "{root}/"])
def test_a_table_beside_the_objects_cannot_be_read(tmp_path: Path, where: str) -> None:
    root = tmp_path / "topics"
    objects(root, ["one.parquet"])
    path = f"{where.format(root=root.as_uri())}one.parquet"
    with pytest.raises(FileNotFoundError):
        table_of(tmp_path / "table", [path]).to_pyarrow_table()
