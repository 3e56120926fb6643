"""Checks what a window of time chooses among objects that others wrote, or that hold values alone."""

from collections.abc import Iterator, Sequence

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.partitioners.folders import Window
from kafka_s3_platform.restore.preflight.target import PreflightFinding, make_doubt, make_refusal
from kafka_s3_platform.sources.objects import ForeignObject, is_covered
from kafka_s3_platform.sources.offset_facts import has_record_times


def check_times(
    config: ConnectorConfig, objects: Sequence[ForeignObject], times: Sequence[Window]
) -> Iterator[PreflightFinding]:
    """Check that the windows `times` choose no more than they say, of the objects that are chosen by them."""
    if not times or has_record_times(config):
        return
    untold = sorted(o.key for o in objects if o.window is None)
    if untold:
        yield make_refusal(
            f"nothing tells the times of records in {len(untold):,} objects, such as {untold[0]}: neither they nor "
            f"their names. A window of time (hours, days, from, to) would restore all of them. Choose by offsets, or "
            f"leave the window out, which restores everything"
        )
    cut = sorted(o.key for o in objects if o.window is not None and not is_covered(o.window, times))
    if cut:
        yield make_doubt(
            f"{len(cut):,} objects, such as {cut[0]}, are only partly in the window of time, and are taken whole: "
            f"their records tell no times"
        )
