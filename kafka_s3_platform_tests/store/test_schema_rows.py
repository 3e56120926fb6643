import pytest

from kafka_s3_platform.model.schema import ArchivedSchema, SchemaReference, SubjectVersion
from kafka_s3_platform.store.index import TopicIndex
from kafka_s3_platform.store.index_commit import Change

pytestmark = pytest.mark.integration


def test_schemas_come_back_as_they_were_committed(index: TopicIndex) -> None:
    common = ArchivedSchema("http://r", 1, "PROTOBUF", 'message "M"', (SubjectVersion("it's", 3, None),))
    main = ArchivedSchema(
        "http://r",
        2,
        "PROTOBUF",
        "text\nof two lines",
        (SubjectVersion("a-value", 1, "FULL"), SubjectVersion("b-value", 2, "NONE")),
        (SchemaReference("m.proto", "it's", 3, 1), SchemaReference("n.proto", "n", 1, 3)),
    )
    index.open().commit(Change((common, main), run_id="run"))
    assert index.open().state.schemas == (common, main)
