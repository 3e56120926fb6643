"""Chooses the timestamps of a topic to ask about, to know the offsets of all of them."""

from collections.abc import Generator, Iterable, Mapping, Sequence

from kafka_s3_platform.kafka.answers import Answers, RecordOffset

TimeOffsets = Mapping[int, RecordOffset | None]
"""Timestamp in epoch ms -> the first record at or after it, as one answer of a broker says."""

OffsetSearch = Generator[Sequence[int], Answers[int, TimeOffsets], Answers[int, TimeOffsets]]
"""Yields the timestamps to ask about next, receives the answers by kafka partition, and returns those to all."""


def search_offsets(times: Sequence[int]) -> OffsetSearch:
    """Search the offsets of `times`, ascending, in all kafka partitions of one topic.

    o(t) never falls as t grows, so between two timestamps with equal answers nothing is asked: long spans of empty
    hours cost few questions. The searches of many topics take their steps together, and share their requests.
    """
    answers = yield [*times[:1], *times[1:][-1:]]
    spans = [(0, len(times) - 1)] if times else []
    while spans and answers.results:
        answers = _fill_spans(times, spans, answers)
        one_answer = next(iter(answers.results.values()))
        # Where both ends of a span differ, its middle is asked: a step between them is found in few questions.
        halves = [(low, (low + high) // 2, high) for low, high in spans if not one_answer.keys() >= {*times[low:high]}]
        if not halves:
            break
        middles = yield [times[middle] for _, middle, _ in halves]
        answers = answers.zip(middles).checked(lambda _, both: {**both[0], **both[1]})
        spans = []
        for low, middle, high in halves:
            spans += [(low, middle), (middle, high)]
    return answers


def _fill_spans(
    times: Sequence[int], spans: Iterable[tuple[int, int]], answers: Answers[int, TimeOffsets]
) -> Answers[int, TimeOffsets]:
    """Fill in the answers inside spans with equal answers at both ends in every kafka partition."""
    offsets_by_time = answers.results.values()
    inside: dict[int, int] = {}
    for low, high in spans:
        if all(offsets[times[low]] == offsets[times[high]] for offsets in offsets_by_time):
            inside |= dict.fromkeys(times[low + 1 : high], times[low])
    return answers.checked(lambda _, offsets: {**offsets, **{t: offsets[at] for t, at in inside.items()}})
