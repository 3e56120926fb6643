"""The envelope, in three formats. Plug-ins of earlier versions import `Sink` from here; its place is `plugins` now."""

from kafka_s3_platform.formats.sink import Sink

__all__ = ["Sink"]
