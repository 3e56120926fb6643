"""After two topics in a row without an answer, the others are not tried."""

from collections.abc import Sequence

import pytest

from kafka_s3_platform.core.errors import (
    BrokerUnavailableError,
    ErrorCode,
    IndexDamagedError,
    PlatformError,
    StoreUnavailableError,
)
from kafka_s3_platform.core.model.silence import try_each

KAFKA, STORE, OTHER = BrokerUnavailableError("kafka"), StoreUnavailableError("store"), IndexDamagedError("index")
TRIED = "asked"


def try_all(outcomes: Sequence[PlatformError | None]) -> list[str]:
    """Try topics with these outcomes. Return of each whether it was asked, answered or not tried, by its code."""
    asked: list[int] = []

    def ask(topic: int) -> None:
        asked.append(topic)
        if (err := outcomes[topic]) is not None:
            raise err

    answers, failures = try_each(range(len(outcomes)), ask)
    assert answers.keys() | failures.keys() == set(range(len(outcomes)))
    return [TRIED if topic in asked else failures[topic].code.value for topic in range(len(outcomes))]


@pytest.mark.parametrize(
    ("outcomes", "rest"),
    [
        ([], []),
        ([None, None, None], [TRIED] * 3),
        ([KAFKA, None, KAFKA, None], [TRIED] * 4),
        ([KAFKA, OTHER, KAFKA, None], [TRIED] * 4),
        ([OTHER, OTHER, OTHER, None], [TRIED] * 4),
        ([KAFKA, STORE, None, None], [TRIED] * 2 + [ErrorCode.STORE_DOWN.value] * 2),
        ([None, STORE, KAFKA, None], [TRIED] * 3 + [ErrorCode.KAFKA_DOWN.value]),
    ],
)
def test_two_in_a_row_without_an_answer_end_the_asking(
    outcomes: Sequence[PlatformError | None], rest: list[str]
) -> None:
    assert try_all(outcomes) == rest


def test_an_error_that_all_share_ends_it_at_once() -> None:
    def ask(topic: str) -> None:
        raise STORE if topic == "b" else KAFKA

    with pytest.raises(StoreUnavailableError):
        try_each("abc", ask, (StoreUnavailableError,))
