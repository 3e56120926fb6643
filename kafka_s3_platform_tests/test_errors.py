"""Codes of errors, and the page that they lead to."""

import pickle
import re

import pytest

from kafka_s3_platform.core.errors import (
    ConfigError,
    ErrorCode,
    MissingBucketError,
    PermanentError,
    PlatformError,
    StoreUnavailableError,
    find_code,
)
from kafka_s3_platform_tests.conftest import REPOSITORY

RUNBOOK = (REPOSITORY / "docs" / "runbook.md").read_text()
SECTIONS = re.split(r"^### ", RUNBOOK, flags=re.MULTILINE)[1:]


def test_each_code_has_its_section_and_no_section_is_without_a_code() -> None:
    headings = [section.partition("\n")[0] for section in SECTIONS]
    assert sorted(headings) == sorted(code.heading for code in ErrorCode)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition(":")[0])
def test_each_section_says_whether_it_heals_by_itself(section: str) -> None:
    assert len(re.findall(r"\*\*(?:Heals by itself|Does not)\*\*", section)) == 1


def test_no_code_is_used_twice() -> None:
    assert len({code.value for code in ErrorCode}) == len(ErrorCode.__members__)
    assert all(re.fullmatch(r"KS(?:-[A-Z]+)+", code.value) for code in ErrorCode)


def test_an_error_is_told_with_the_code_of_its_class_or_of_its_kind() -> None:
    assert str(MissingBucketError("no bucket b")) == "[KS-STORE-BUCKET] no bucket b"
    of_kind = ConfigError("no TLS there", code=ErrorCode.STORE_TLS)
    assert str(of_kind) == "[KS-STORE-TLS] no TLS there"
    assert (of_kind.text, find_code(str(of_kind))) == ("no TLS there", ErrorCode.STORE_TLS)
    crossed = pickle.loads(pickle.dumps(of_kind))  # noqa: S301
    assert (type(crossed), str(crossed)) == (ConfigError, str(of_kind))
    assert str(of_kind.retell("and more")) == "[KS-STORE-TLS] and more"


def test_of_an_error_that_tells_another_one_the_code_is_that_of_the_cause() -> None:
    cause = StoreUnavailableError("no answer")
    assert str(PermanentError(f"topic t: {cause}")) == "topic t: [KS-STORE-DOWN] no answer"
    assert str(PlatformError("what is this")) == "[KS-OTHER] what is this"
    assert find_code("the code of nobody [KS-NOBODY] and none") is None
