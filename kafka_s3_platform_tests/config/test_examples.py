"""The repository's own connector files and their documentation."""

import re
from pathlib import Path

import pytest

from bench.tables import DOCUMENTS, render_tables
from kafka_s3_platform.connect.config.files import load_connectors
from kafka_s3_platform.connect.config.keys.table import TypedKey, keys_by_field
from kafka_s3_platform.connect.config.mapping import ALL_KEYS, CONNECTOR_KEYS, OWN_KEYS
from kafka_s3_platform.core.config.settings import Settings
from kafka_s3_platform_tests.conftest import present

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "connector-files.md"


def test_the_file_of_the_first_page_is_that_of_a_whole_archive(tmp_path: Path) -> None:
    shown = present(re.search(r"```json\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL))
    (tmp_path / "orders.json").write_text(shown[1])
    (tmp_path / "worker.properties").write_text("bootstrap.servers=kafka:9092\n")
    (orders,) = load_connectors(tmp_path, {}).connectors
    assert (orders.name, orders.topics, orders.store.bucket) == ("orders", ("orders",), "my-archive")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_documents_tables_are_those_of_the_loader(document: Path) -> None:
    text = (ROOT / document).read_text()
    assert render_tables(text) == text, f"the tables of {document} are old: run `make tables`"


def test_no_key_is_declared_twice() -> None:
    names = [key.name for key in ALL_KEYS]
    assert len(names) == len(set(names))
    assert all(CONNECTOR_KEYS.find(name) for name in names)
    assert all(key.name.startswith("archive.") for key in OWN_KEYS)


TYPED_KEYS = [key for key in ALL_KEYS if isinstance(key, TypedKey)]
ALL_SETTINGS = Settings.__subclasses__()


@pytest.mark.parametrize("key", TYPED_KEYS, ids=lambda key: key.name)
def test_the_documents_default_of_a_key_is_what_it_is_read_as_where_no_file_sets_it(key: TypedKey[object]) -> None:
    shown = re.findall(rf"^\| `{re.escape(key.name)}` \| (.*?) ?\|", DOCUMENT.read_text(), re.MULTILINE)
    default = key.default or ""
    assert default in shown
    is_unset = key.unset in (None, "", ())
    is_in_words = " " in default or "`" in default
    assert is_in_words or (is_unset and not default.isdigit()) or key.parse(default) == key.unset


@pytest.mark.parametrize("part", ALL_SETTINGS)
def test_each_key_of_a_field_is_one_of_a_connector_file(part: type[Settings]) -> None:
    assert [name for name, key in keys_by_field(part).items() if key not in ALL_KEYS] == []
