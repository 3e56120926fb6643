"""Makes layouts by their names in `archive.key.layout`."""

from collections.abc import Mapping

from kafka_s3_platform.config.settings import ConnectorConfig, LayoutSettings
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.layouts.connect import ConnectLayout
from kafka_s3_platform.layouts.key_reader import KeyReader, SegmentLayout
from kafka_s3_platform.layouts.lenses import LensesLayout
from kafka_s3_platform.layouts.template import TemplateLayout
from kafka_s3_platform.layouts.time_folders import BlockGzipLayout, ZoozLayout

_WRITTEN: Mapping[str, type[SegmentLayout]] = {
    "connect": ConnectLayout,
    "block_gzip": BlockGzipLayout,
    "zooz": ZoozLayout,
    "template": TemplateLayout,
}
_READ: Mapping[str, type[KeyReader]] = {**_WRITTEN, "lenses": LensesLayout}


def new_segment_layout(layout: LayoutSettings) -> SegmentLayout:
    """Make the layout of the settings, to write and parse keys.

    Raises:
        ConfigError: two objects could get the same key with its delimiters or its template.
    """
    keys = _WRITTEN[layout.key_layout](layout)
    try:
        keys.check_writing()
    except ValueError as error:
        raise ConfigError(f"the keys of objects: {error}") from error
    return keys


def new_key_reader(config: ConnectorConfig) -> KeyReader:
    """Make the reader of the layout in a source's connector file.

    Raises:
        ConfigError: the layout needs a topic by name, or its template is wrong.
    """
    reader = _READ[config.layout.key_layout](config.layout, config.topics[0] if len(config.topics) == 1 else "")
    reader.check_reading()
    return reader
