"""Templates are Aiven's; one that would give two objects the same key is refused when the file is loaded."""

import pytest

from kafka_s3_platform.config.keys.names import Variable, compile_template

REST = "{{topic}}-{{partition}}-{{start_offset}}"


def test_a_template_is_its_texts_and_variables() -> None:
    parts = compile_template("a/{{ topic }}-{{partition:padding=false}}-{{start_offset:padding=true}}.gz").parts
    topic, partition, offset = Variable("topic"), Variable("partition"), Variable("start_offset", "padded")
    assert parts == ("a/", topic, "-", partition, "-", offset, ".gz")


def test_a_timestamp_has_a_unit_and_yyyy_may_be_written_in_capitals() -> None:
    parts = compile_template("{{timestamp:unit=YYYY}}/{{timestamp:unit=HH}}/" + REST).parts
    assert (parts[0], parts[2]) == (Variable("timestamp", "yyyy"), Variable("timestamp", "HH"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "needs {{topic}}"),
        ("{{topic}}-{{start_offset}}", "needs {{partition}}"),
        ("{{topic}}-{{partition}}", "needs {{start_offset}}"),
        ("{{partition}}-{{start_offset}}", "needs {{topic}}"),
        ("k{{key}}", "{{key}} keeps the newest record"),
        ("{{topic}}-{{partition}}-{{key}}", "{{key}} keeps the newest record"),
        (REST + "-{{offset}}", "'{{offset}}' is not known"),
        (REST + "-{{timestamp}}", "'{{timestamp}}' is not known"),
        (REST + "-{{timestamp:unit=mm}}", "'{{timestamp:unit=mm}}' is not known"),
        (REST + "-{{topic:padding=true}}", "'{{topic:padding=true}}' is not known"),
        (REST + "-{{partition:padding=maybe}}", "'{{partition:padding=maybe}}' is not known"),
        (REST + "-{{start_offset:}}", "'{{start_offset:}}' is not known"),
        (REST + "-{{}}", "'{{}}' is not known"),
        (REST + "-{{topic", "'-{{topic' is no variable"),
        (REST + "}}", "'}}' is no variable"),
        (REST + "\n", "holds a control character"),
        ("/" + REST, "is empty, '.' or '..'"),
        ("a//" + REST, "is empty, '.' or '..'"),
        ("../" + REST, "is empty, '.' or '..'"),
        (REST + "/", "is empty, '.' or '..'"),
        ("{{topic}}{{partition}}-{{start_offset}}", "where {{partition}} begins or ends"),
        ("{{topic}}-{{partition}}{{start_offset}}", "where {{start_offset}} begins or ends"),
        ("{{topic}}-1{{partition}}-{{start_offset}}", "where {{partition}} begins or ends"),
        ("{{partition}}1-{{topic}}-{{start_offset}}", "where {{partition}} begins or ends"),
        ("{{topic}}-{{topic}}-{{partition}}-{{start_offset}}", "holds {{topic}} twice"),
        ("{{partition}}-{{start_offset}}-{{topic}}", "cannot end in {{topic}}"),
        ("{{partition}}/{{start_offset}}/{{topic}}.gz", "cannot end in {{topic}}"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("{", r"\{")):
        compile_template(text)
