"""Kafka's messages as kafka-python has them: schemas that are Kafka's own, decoded and encoded in every version."""

import warnings
from typing import Any

with warnings.catch_warnings():
    # it reads its schemas by a function that Python 3.11 calls old
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol import admin, consumer, metadata, producer

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 3, 9, 10
API_VERSIONS, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CLUSTER = 18, 23, 60

MESSAGES: dict[int, tuple[Any, Any]] = {
    PRODUCE: (producer.ProduceRequest, producer.ProduceResponse),
    FETCH: (consumer.FetchRequest, consumer.FetchResponse),
    LIST_OFFSETS: (consumer.ListOffsetsRequest, consumer.ListOffsetsResponse),
    METADATA: (metadata.MetadataRequest, metadata.MetadataResponse),
    OFFSET_FETCH: (consumer.OffsetFetchRequest, consumer.OffsetFetchResponse),
    FIND_COORDINATOR: (metadata.FindCoordinatorRequest, metadata.FindCoordinatorResponse),
    API_VERSIONS: (metadata.ApiVersionsRequest, metadata.ApiVersionsResponse),
    OFFSET_FOR_LEADER_EPOCH: (consumer.OffsetForLeaderEpochRequest, consumer.OffsetForLeaderEpochResponse),
    DESCRIBE_CLUSTER: (admin.DescribeClusterRequest, admin.DescribeClusterResponse),
}
"""Request and response by api key."""
