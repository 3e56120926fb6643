import pytest

from kafka_s3_platform.java.quick_start import choose_options


@pytest.mark.parametrize(
    ("given", "left_out"),
    [
        ("-XX:+UseG1GC", "-XX:+UseSerialGC"),
        ("-Dx=y -XX:-UseParallelGC", "-XX:+UseSerialGC"),
        ("-XX:TieredStopAtLevel=4", "-XX:TieredStopAtLevel=1"),
        ("-XX:-TieredCompilation", "-XX:TieredStopAtLevel=1"),
        ("-Xint", "-XX:TieredStopAtLevel=1"),
        ("-Xlog:gc", "-Xlog:disable"),
    ],
)
def test_what_somebody_chose_of_java_is_left_to_them_and_nothing_else(given: str, left_out: str) -> None:
    all_own = choose_options("-Xmx1g")
    kept = choose_options(given)
    gone = [option for option in all_own if option not in kept]
    assert kept == [option for option in all_own if option in kept]
    assert gone[0].startswith(left_out)
    assert {option.partition(":")[0] for option in gone} == {gone[0].partition(":")[0]}
