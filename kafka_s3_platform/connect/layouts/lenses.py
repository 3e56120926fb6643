"""Reads the keys of Lenses' sink. None are written, since they hold the last offset, unknown until an object ends."""

import re

from kafka_s3_platform.connect.config.formats_of_connect import find_lenses_endings
from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.layouts.segment_key import KeyReader, ReadKey, Refusal, build_segment_key, refuse_ending
from kafka_s3_platform.core.model.object_key import TOPIC

_NUMBERS = r"(?:partition=)?(?P<partition>\d+)/(?P<end_offset>\d+)(?:_(?P<earliest>-?\d+)_(?P<latest>-?\d+))?"
_SUFFIX = r"(?:[^0-9/][^/]*)?"
# Lenses keeps files of its own in these folders.
_OWN_FOLDERS = re.compile(r"\.(indexes|temp-upload)")
_NAMES = (
    rf"(?:.*/)?(?P<topic>{TOPIC})\((?P<partition>\d+)_(?P<end_offset>\d+)\){_SUFFIX}",
    rf"(?:.*/)?(?:topic=)?(?P<topic>{TOPIC})/{_NUMBERS}{_SUFFIX}",
)


class LensesLayout(KeyReader):
    """The keys of Lenses' S3 sink: `.../<topic>/<kafka partition>/<last offset>_<earliest>_<latest>.<extension>`.

    With PARTITIONBY or NOPARTITION they are `.../<topic>(<kafka partition>_<last offset>).<extension>`, in any folders.
    Numbers may be padded. `earliest` and `latest` are the bounds of the records' timestamps.
    """

    def __init__(self, layout: LayoutSettings, topic: str = "") -> None:
        super().__init__(layout, topic)
        configured = (f".{layout.extension}",) if layout.extension else ()
        self._endings = configured or find_lenses_endings(layout.format)
        self._names = [re.compile(name, re.ASCII | re.DOTALL) for name in _NAMES]

    @property
    def notes(self) -> tuple[str, ...]:
        return note_envelope(self._layout)

    def read(self, key: str) -> ReadKey | Refusal:
        """Return the facts in the key of an object, or the reason why the sink did not write the object."""
        # The whole key is matched, not what follows `root`: `root` may be the folder that names the topic.
        if _OWN_FOLDERS.match(key):
            return Refusal("index", "it is a document of Lenses' own")
        ending = next((ending for ending in self._endings if key.endswith(ending)), None)
        if ending is None:
            return refuse_ending(self._endings)
        matches = (name.fullmatch(key.removesuffix(ending)) for name in self._names)
        match = next((m for m in matches if m is not None), None)
        if match is None:
            return Refusal("unparsable", "its name is not of the sink's: it has no topic, kafka partition and offset")
        folder = key.removeprefix(self.root).rpartition("/")[0]
        times = match.groupdict()
        earliest = int(times.get("earliest") or -1)
        latest = int(times.get("latest") or -1)
        window = (earliest, latest + 1) if 0 <= earliest <= latest else None
        segment = build_segment_key(match.groupdict(), self._topic, folder, ending.removeprefix("."))
        return ReadKey(segment, window=window, last_offset=int(match["end_offset"]))


def note_envelope(layout: LayoutSettings) -> tuple[str, ...]:
    """Explain the losses of Lenses' envelopes. The losses are the same in every layout of keys."""
    row = find_format(layout.format)
    if row.envelope != "lenses":
        return ()
    note = "Lenses' envelope keeps headers as a map: their order, and all but one of each name, are not known"
    if not row.needs_schema:
        note += "; headers of bytes are base64 there, and stay so without header.converter=ByteArrayConverter"
    return (note,)
