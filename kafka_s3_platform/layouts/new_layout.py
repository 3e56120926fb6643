"""Makes layouts by their names in `archive.key.layout`."""

from collections.abc import Mapping

from kafka_s3_platform.config.settings import ConnectorConfig, LayoutSettings
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.layouts.block_gzip import BlockGzipLayout
from kafka_s3_platform.layouts.connect import ConnectLayout
from kafka_s3_platform.layouts.key_reader import KeyReader, SegmentLayout
from kafka_s3_platform.layouts.lenses import LensesLayout
from kafka_s3_platform.layouts.template import TemplateLayout
from kafka_s3_platform.layouts.zooz import ZoozLayout

_WRITTEN: Mapping[str, type[SegmentLayout]] = {
    "connect": ConnectLayout,
    "block_gzip": BlockGzipLayout,
    "zooz": ZoozLayout,
    "template": TemplateLayout,
}
_READ: Mapping[str, type[KeyReader]] = {**_WRITTEN, "lenses": LensesLayout}


def new_segment_layout(layout: LayoutSettings) -> SegmentLayout:
    """Make the layout that the settings name, to write and parse keys.

    Raises:
        ConfigError: two objects could get the same key with its delimiters or its template.
    """
    made = _WRITTEN[layout.key_layout](layout)
    try:
        made.check_writing()
    except ValueError as error:
        raise ConfigError(f"the keys of objects: {error}") from error
    return made


def new_key_reader(config: ConnectorConfig) -> KeyReader:
    """Make the reader of the layout that the connector file of a source names.

    Raises:
        ConfigError: the layout needs a topic by name, or its template is wrong.
    """
    made = _READ[config.layout.key_layout](config.layout, config.topics[0] if len(config.topics) == 1 else "")
    made.check_reading()
    return made
