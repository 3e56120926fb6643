"""Applies `behavior.on.error` to bad objects and records, and reports them."""

import logging
from collections.abc import Mapping

from kafka_s3_platform.config.settings import ConnectorConfig, SourceSettings
from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.model.connect import Int64s
from kafka_s3_platform.sources.objects import MAX_LINES, BadObject, ForeignObject, ObjectGroup
from kafka_s3_platform.sources.report import ReadReport

logger = logging.getLogger(__name__)

# Most bad lines in one error message.
_SHOWN = 3


class Tolerance:
    """Skips and reports bad objects and records, or fails. An earlier run skipped those of `left_out` (key -> why)."""

    def __init__(self, config: ConnectorConfig, group: ObjectGroup, left_out: Mapping[str, str] | None) -> None:
        self._group = group
        self._left_out = left_out
        self._skipped: set[str] = set()
        self.report = ReadReport()
        behavior = (config.source or SourceSettings()).behavior_on_error
        # The earlier run also skipped bad records of good objects, so these must not fail now.
        self._behavior = "ignore" if left_out is not None and behavior == "fail" else behavior

    @property
    def fails(self) -> bool:
        """True if a bad record is an error."""
        return self._behavior == "fail"

    def skip_object(self, item: ForeignObject, err: IntegrityError, start_offset: int) -> None:
        """Skip a bad object, or fail. None of its records lies before `start_offset`.

        Raises:
            IntegrityError: nothing is tolerated, or the object is not in `left_out`.
        """
        if self.fails or self._left_out is not None:
            raise err.retell(f"{item.topic}-{item.kafka_partition}: {err.text}") from err
        self.report.bad_objects.setdefault(item.key, BadObject(item.key, start_offset, err.text))
        self._note_object(item, err.text)

    def leaves_out(self, item: ForeignObject) -> bool:
        """Return True if an earlier run left the object out, and report it."""
        why = (self._left_out or {}).get(item.key)
        if why is not None:
            self._note_object(item, why)
        return why is not None

    def _note_object(self, item: ForeignObject, why: str) -> None:
        """Count and report a skipped object, once however often it is met."""
        if item.key in self._skipped:
            return
        self._skipped.add(item.key)
        self.report.skipped_object_count += 1
        self._add_line(self.report.skipped_objects, why)

    def skip_records(self, item: ForeignObject, bad: Mapping[int, str]) -> None:
        """Count and report the bad records of an object (row -> why)."""
        for why in bad.values():
            self.report.skipped_record_count += 1
            self._add_line(self.report.skipped_records, f"object {item.key}: {why}")

    def skip_repeated(self, key: str, offsets: Int64s) -> None:
        """Count and report records with the offset of an earlier one. The first record of an offset is kept.

        Raises:
            IntegrityError: nothing is tolerated.
        """
        shown = f"offset {offsets[0]}" + (f" and {len(offsets) - 1} others" if len(offsets) > 1 else "")
        line = f"object {key}: it holds {shown} again, as it did before, or an object before it"
        if self.fails:
            where = f"{self._group.topic}-{self._group.kafka_partition}"
            raise IntegrityError(f"{where}: {line}: records would come twice")
        self.report.skipped_record_count += len(offsets)
        self._add_line(self.report.skipped_records, line)

    def explain_bad_lines(self, item: ForeignObject, bad: Mapping[int, str]) -> str:
        """Explain why bad records make the whole object bad. Return an empty text if they are skipped alone."""
        if not bad or not self.fails:
            return ""
        return f"object {item.key} holds what cannot be read: {'; '.join(list(bad.values())[:_SHOWN])}"

    def _add_line(self, lines: list[str], line: str) -> None:
        if len(lines) < MAX_LINES:
            lines.append(line)
        if self._behavior == "log":
            logger.warning("skipped: %s", line)
