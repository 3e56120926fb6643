from collections import OrderedDict
from pathlib import Path

import pytest

from kafka_s3_platform.config.plugins import load_class
from kafka_s3_platform.errors import ConfigError


def test_a_dotted_name_is_its_class() -> None:
    assert load_class("collections.OrderedDict") is OrderedDict


@pytest.mark.parametrize(
    ("dotted", "said"),
    [
        ("OrderedDict", "no dotted Python name"),
        ("collections.", "no dotted Python name"),
        ("collections.Ordered-Dict", "no dotted Python name"),
        ("no_such_package.module.Thing", "cannot import the module no_such_package.module .* No module named"),
        ("collections.NoSuchClass", "the module collections has no attribute NoSuchClass"),
        ("collections.namedtuple", "the module collections has function, not a class, as its attribute namedtuple"),
    ],
)
def test_what_could_not_be_imported_is_named(dotted: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_class(dotted)


def test_a_module_that_fails_while_it_is_imported_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_plugin.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"broken_plugin .* RuntimeError: no licence"):
        load_class("broken_plugin.Thing")
