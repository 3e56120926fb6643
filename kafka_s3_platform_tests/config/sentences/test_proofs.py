"""Every sentence about a key without meaning is shown to be true. A new sentence needs its test here."""

from collections.abc import Callable, Mapping

import pytest

from kafka_s3_platform.connect.config.keys.clients import REFUSED_PROPERTIES
from kafka_s3_platform.connect.config.keys.converters import OPTION_KEYS, OWN_SCHEMAS
from kafka_s3_platform.connect.config.mapping import ALL_KEYS
from kafka_s3_platform_tests.archive import test_evolution, test_sink
from kafka_s3_platform_tests.config import test_topics
from kafka_s3_platform_tests.config.sentences import (
    test_archive,
    test_belonging,
    test_clients,
    test_objects,
    test_registry,
    test_same_settings,
    test_schemas,
)
from kafka_s3_platform_tests.config.sentences.collected import list_sentences
from kafka_s3_platform_tests.config.sentences.files import file_of, resolve, without_meaning
from kafka_s3_platform_tests.converters import test_json_envelope
from kafka_s3_platform_tests.converters.json_schema import test_objects as test_objects_of_json
from kafka_s3_platform_tests.defs import test_runs
from kafka_s3_platform_tests.faults import test_archive_killed
from kafka_s3_platform_tests.restore import test_round_trip
from kafka_s3_platform_tests.restore.outgoing import test_values
from kafka_s3_platform_tests.restore.preflight import test_checks
from kafka_s3_platform_tests.segments import test_uploads
from kafka_s3_platform_tests.sources import test_order
from kafka_s3_platform_tests.store import test_upload, test_writing
from kafka_s3_platform_tests.store.clients import test_environment

NEEDLESS = (
    test_same_settings.test_keys_that_never_have_a_meaning_leave_each_kind_of_file_as_it_is,
    test_same_settings.test_keys_of_the_worker_that_have_no_meaning_leave_it_as_it_is,
    test_archive.test_an_archive_forms_no_group_keeps_no_topic_and_listens_nowhere,
)
BELONGING = (
    test_belonging.test_a_key_that_belongs_elsewhere_changes_nothing_here,
    test_belonging.test_where_it_belongs_it_decides,
)
PROOFS: Mapping[str, tuple[Callable[..., None], ...]] = {
    **dict.fromkeys(
        (
            "Belongs to Connect's own runtime.",
            "Connect's own state is not kept.",
            "Metrics of a Java client.",
            "Not needed here.",
            "Says where Confluent Cloud runs the connector.",
            "Tasks read ranges of offsets that they are given: there is no consumer group to keep alive.",
            "There is no Connect REST interface here.",
            "Workers form no group here: the index holds the state, and Dagster runs the work.",
        ),
        NEEDLESS,
    ),
    **dict.fromkeys((case.sentence for case in test_belonging.BELONGINGS), BELONGING),
    "The format compresses its objects itself.": (
        test_belonging.test_objects_that_are_compressed_inside_take_no_codec_of_lines,
    ),
    "Belongs to the Java client.": (test_clients.test_librdkafka_has_no_such_property,),
    "OpenSSL does this by its own rules.": (test_clients.test_librdkafka_has_no_such_property,),
    "Keys and values are read and written as bytes.": (
        test_clients.test_librdkafka_has_no_such_property,
        test_archive.test_header_values_keys_and_values_are_archived_as_the_bytes_that_they_are,
        test_round_trip.test_envelopes_give_back_every_topic_byte_for_byte_by_their_keys_alone,
    ),
    "A waiting record is never given up, because later ones would overtake it. A restore fails when no record is"
    " acknowledged for two minutes.": (
        test_objects.test_a_restore_waits_two_minutes_for_an_acknowledgement_and_for_no_record_less,
    ),
    "`topics.regex` matches none of Kafka's own topics. `topics` may name them.": (
        test_topics.test_names_that_begin_with_two_underscores_never_match,
    ),
    "A restore creates its topic only with `--create-topic`.": (
        test_checks.test_an_absent_target_is_refused_or_checked_against_the_brokers,
    ),
    "No Java plugin is loaded.": (test_clients.test_no_java_plugin_is_loaded_though_a_path_of_plugins_is_there,),
    "No licence is needed, and no topic that stores one.": (
        test_clients.test_no_licence_is_needed_and_one_that_is_there_changes_nothing,
        test_archive.test_an_archive_forms_no_group_keeps_no_topic_and_listens_nowhere,
    ),
    "Connectors may override any property that is honoured.": (
        test_clients.test_a_connector_overrides_any_honoured_property_whatever_the_policy,
    ),
    "A run that failed for a temporary reason is run again.": (
        test_runs.test_a_request_waits_by_the_end_of_earlier_ones_and_their_inputs,
    ),
    "Temporary failures are tried again in any case.": (
        test_writing.test_a_request_is_repeated_as_often_as_asked,
        test_runs.test_a_request_waits_by_the_end_of_earlier_ones_and_their_inputs,
    ),
    "No converter reads header values: each comes back with its bytes.": (
        test_archive.test_header_values_keys_and_values_are_archived_as_the_bytes_that_they_are,
    ),
    "No folder of this layout tells that records are out of range.": (
        test_archive.test_a_folder_that_names_no_time_is_that_of_records_out_of_range_too,
    ),
    "A null stays null, as with `true`.": (
        test_objects_of_json.test_a_null_stays_null_whatever_the_default,
        test_json_envelope.test_the_option_against_defaults_is_known,
        test_json_envelope.test_a_null_stays_null_as_there,
    ),
    "A run keeps its schemas.": (test_registry.test_a_run_asks_for_a_schema_once_however_small_a_cache_the_file_wants,),
    "Set by Connect's runtime.": (test_registry.test_a_converter_is_that_of_its_side_whatever_the_file_calls_its_type,),
    "A value is read by the schema that its id names, and by no later one.": (
        test_registry.test_a_value_is_read_by_its_own_schema_though_the_file_wants_the_latest,
    ),
    "An archive registers no schema. A restore registers those of what it writes anew, whatever this says.": (
        test_registry.test_to_decode_and_archive_schemas_nothing_is_written_to_the_registry,
        test_registry.test_a_version_is_that_of_the_topics_own_subject_whatever_strategy_the_file_names,
        test_registry.test_a_restore_that_would_register_otherwise_than_asked_is_refused,
    ),
    OWN_SCHEMAS: (
        test_schemas.test_json_names_types_of_a_union_without_namespaces_unless_two_would_have_one_name,
        test_schemas.test_an_avro_schema_is_written_as_registered_docs_defaults_and_blanks_included,
        test_schemas.test_another_schema_becomes_avro_with_its_full_name,
    ),
    "A map whose keys are texts is a map, also where they are optional.": (
        test_schemas.test_a_map_with_texts_as_keys_is_a_map,
        test_schemas.test_a_map_of_protobuf_is_a_map,
    ),
    "Names stay as they are. One that Avro does not allow fails its records in Avro objects.": (
        test_schemas.test_a_name_that_avro_does_not_allow_fails_its_records_in_avro_objects,
        test_schemas.test_in_other_objects_any_name_stays_as_it_is,
    ),
    "Belongs to `hive.integration`.": (test_clients.test_tables_of_hive_are_refused_so_their_settings_mean_nothing,),
    "Open writers and buffers have limits without it.": (
        test_uploads.test_open_and_closed_segments_share_one_cap,
        test_sink.test_however_many_places_records_go_to_few_objects_are_open_and_none_is_lost,
    ),
    "An object holds the records of one folder, and ends where they end.": (
        test_archive.test_an_object_holds_one_folder_and_goes_on_when_records_of_another_lie_between,
    ),
    "An object is always written only once: the write requires that it does not exist.": (
        test_upload.test_the_object_of_another_tool_stays,
        test_archive_killed.test_an_object_that_another_tool_wrote_is_never_overwritten,
    ),
    "Every upload carries its checksum as a signed header.": (
        test_environment.test_each_put_carries_a_checksum_as_a_bucket_with_object_lock_asks_for,
    ),
    "Small bodies are sent at once, larger ones when the store says `100 Continue`.": (
        test_objects.test_small_bodies_are_sent_at_once_and_larger_ones_wait_for_the_store,
    ),
    "No wait is longer than 20 seconds.": (test_writing.test_waits_double_up_to_twenty_seconds,),
    "Objects are read batch by batch, whatever their size.": (test_objects.test_a_large_object_is_read_batch_by_batch,),
    "If access keys are set, they are used, else the default chain.": (
        test_clients.test_access_keys_are_used_where_they_are_set_whatever_lenses_calls_the_mode,
    ),
    "Delivery is exactly once without Lenses' index files.": (
        test_archive_killed.test_a_run_killed_at_any_stage_is_made_good_by_the_next,
    ),
    "`schema.compatibility` decides when a new schema begins a new object.": (
        test_evolution.test_records_are_written_with_the_schema_that_the_mode_says,
    ),
    "Offsets in names are written with 20 digits, and read with any padding.": (
        test_objects.test_lenses_names_have_20_digits_whatever_padding_the_file_asks_for,
        test_objects.test_lenses_names_are_read_with_any_padding,
    ),
    "Objects are found by listing, and read in the order of their offsets within each kafka partition.": (
        test_order.test_whatever_objects_tell_each_offset_comes_once_in_order_from_any_offset_on,
    ),
    "The envelope keeps the bytes of {}s unchanged.": (
        test_archive.test_header_values_keys_and_values_are_archived_as_the_bytes_that_they_are,
    ),
    "{} No restore can change them: {}": (
        test_values.test_what_cannot_be_decoded_is_restored_as_it_is_and_never_changed,
    ),
    "No record without a value is left out beside a dead letter topic.": (
        test_clients.test_a_letter_for_an_ignored_null_is_refused_and_no_other_null_is_left_out,
    ),
}
ASKS_NOTHING = "Asks for nothing beyond what happens anyway ({})."
"""Said of those values of a key that are not refused."""

NEUTRAL = [
    (prefix + key.name, value)
    for prefix, keys in (("", ALL_KEYS), ("value.converter.", OPTION_KEYS), ("consumer.override.", REFUSED_PROPERTIES))
    for key in keys
    for value in key.neutral
    if value
]


def test_each_sentence_has_the_tests_that_show_it() -> None:
    assert list_sentences() == {*PROOFS, ASKS_NOTHING}


@pytest.mark.parametrize(("name", "value"), NEUTRAL)
def test_a_neutral_value_changes_nothing_and_another_is_refused(name: str, value: str) -> None:
    bare = file_of("source" if name == "mode" else "json")
    found = resolve({**bare, name: value})
    assert found.config == resolve(bare).config is not None
    assert name in without_meaning(found)
    assert resolve({**bare, name: "of another kind"}).config is None
