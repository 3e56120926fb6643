"""What others named moves no cursor, hides nothing and makes no line of its own: in errors, in logs, on terminals."""

import json
import logging
import pickle
import re

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.cli import PlatformGroup
from kafka_s3_platform.cli.messages import print_result
from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.errors import ConfigError, IntegrityError, PlatformError, TransientError
from kafka_s3_platform.core.store.errors import NotFoundError
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.text import escape_unprintable, format_entry

HOSTILE = "topics/\x1b[2J\x1b]0;title\x07\x9b31m\u202eevil\u2028a\rb\x08\x7f\nfake: restored and verified"
UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]")


@given(st.text(st.characters()))
def test_no_text_moves_a_cursor_or_makes_a_second_entry(text: str) -> None:
    found = format_entry(text)
    assert not UNSAFE.search(found)
    assert all(line.startswith("  ") for line in found.split("\n")[1:])
    assert escape_unprintable(escape_unprintable(text)) == escape_unprintable(text)
    found.encode()


@pytest.mark.parametrize("text", ["", "plain", "é 日本 \U0001f600", "a\tb", "two\nlines", "back\\slash"])
def test_what_is_printable_stays(text: str) -> None:
    assert escape_unprintable(text) == text


def test_errors_are_printable_and_still_pickle() -> None:
    error = IntegrityError(f"object {HOSTILE} is damaged")
    assert not UNSAFE.search(str(error))
    assert "\\x1b[2J" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301


@pytest.mark.parametrize("name", ["kafka_s3_platform.core.store.objects", "kafka_s3_platform"])
def test_what_is_logged_is_one_entry(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        logging.getLogger(name).warning("object %s: %d", HOSTILE, 3)
    [record] = caplog.records
    assert record.getMessage().endswith("\n  fake: restored and verified: 3")
    assert not UNSAFE.search(record.getMessage())


def test_logs_of_others_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("kafka_s3_platformer").warning("a\nb %s", 1)
    assert [(r.msg, r.args) for r in caplog.records] == [("a\nb %s", (1,))]


def test_a_record_that_is_made_without_a_name_is_left_alone() -> None:
    """Dagster makes such ones."""
    assert logging.makeLogRecord({}).name is None


@pytest.mark.parametrize("kind", [ConfigError, TransientError])
def test_a_command_s_error_is_one_entry(kind: type[PlatformError]) -> None:
    @click.group(cls=PlatformGroup)
    def group() -> None: ...

    def fails() -> None:
        raise kind(f"object {HOSTILE}")

    group.get_command = lambda *_: click.Command("fails", callback=fails)  # type: ignore[method-assign]
    found = CliRunner().invoke(group, ["fails"]).output
    assert not UNSAFE.search(found)
    assert "\nfake" not in found
    assert "\n  fake: restored and verified" in found


def test_a_command_s_lines_are_one_entry_each(capsys: pytest.CaptureFixture[str]) -> None:
    print_result({}, False, ["first", f"skipped: object {HOSTILE}", "last"])
    lines = capsys.readouterr().out.split("\n")
    assert [line for line in lines if not line.startswith("  ")] == ["first", lines[1], "last", ""]
    assert not UNSAFE.search("".join(lines))


def test_a_command_s_json_holds_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    print_result({"key": HOSTILE}, True, [])
    found = capsys.readouterr().out
    assert not UNSAFE.search(found)
    assert json.loads(found) == {"key": HOSTILE}


def test_an_object_s_hostile_key_is_told_in_one_piece(store_settings: StoreSettings) -> None:
    with pytest.raises(NotFoundError) as raised:
        ObjectStore(store_settings).get("a\x1b[31m\u202eb")
    assert "/a\\x1b[31m\\u202eb at " in str(raised.value)
