"""Where earlier docs showed `KafkaPartitioner` to plug-ins, which import it from `plugins` now."""

from kafka_s3_platform.restore.outgoing.partitioning import KafkaPartitioner

__all__ = ["KafkaPartitioner"]
