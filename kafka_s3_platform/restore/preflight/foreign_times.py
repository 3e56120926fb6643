"""Checks the effect of a window of time on objects of other sinks, or of values alone."""

from collections.abc import Iterator, Sequence

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.partitioners.folders import Window
from kafka_s3_platform.restore.preflight.target import PreflightFinding, make_doubt, make_refusal
from kafka_s3_platform.sources.objects import ForeignObject, has_record_times, is_covered


def check_times(
    config: ConnectorConfig, objects: Sequence[ForeignObject], times: Sequence[Window]
) -> Iterator[PreflightFinding]:
    """Refuse a time window over objects without record times, and doubt one that they exceed."""
    if not times or has_record_times(config):
        return
    without_time = sorted(o.key for o in objects if o.window is None)
    if without_time:
        yield make_refusal(
            f"the times of records in {len(without_time):,} objects, such as {without_time[0]}, are unknown: neither "
            f"they nor their names have any. A window of time (hours, days, from, to) would restore all of them. "
            f"Choose by offsets, or leave the window out, which restores everything"
        )
    partial = sorted(o.key for o in objects if o.window is not None and not is_covered(o.window, times))
    if partial:
        yield make_doubt(
            f"{len(partial):,} objects, such as {partial[0]}, are only partly in the window of time, and are taken "
            f"whole: their records have no times"
        )
