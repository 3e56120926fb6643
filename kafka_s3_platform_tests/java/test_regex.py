"""What `java.util.regex` makes of the same pattern, topic and replacement (observed with JDK 17)."""

import pytest

from kafka_s3_platform.core.java.regex import compile_java_regex, compile_java_replacement


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"\Qa.b\E.*", "a.bc", True),
        (r"\Qa.b\E.*", "axbc", False),
        (r"\p{Alpha}+[\p{Digit}_]", "abc_", True),
        (r"(?<x>a)\k<x>\z", "aa", True),
        (r"(?i)ABC", "abc", True),
        (r"[a\]]+", "a]", True),
        (r"a{2,3}", "aaa", True),
        (r"\d", "٣", False),
        (r"[(?]+", "(?", True),
        (r"[*+]+", "+*", True),
    ],
)
def test_a_pattern_matches_what_it_matches_in_java(pattern: str, text: str, matches: bool) -> None:
    assert (compile_java_regex(pattern).fullmatch(text) is not None) == matches


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("a*+", r"possessive quantifier '\*\+' is not honoured"),
        ("(?>a)", r"'\(\?>' is not honoured; known groups"),
        ("[a-z&&[^b]]", "'&&' inside a character class is not honoured"),
        ("[a[b]]", r"'\[' inside a character class is not honoured"),
        (r"\p{IsGreek}", r"'\\p\{IsGreek\}' is not honoured: write the characters out"),
        (r"\R", r"'\\R' is not honoured"),
        ("(a", "is no regular expression: missing"),
    ],
)
def test_what_python_cannot_do_is_refused_in_words(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        compile_java_regex(pattern)


@pytest.mark.parametrize(
    ("pattern", "replacement", "text", "result"),
    [
        ("(a)(b)?", "[$1|$2|$0]", "a", "[a||a]"),
        ("(?<n>a+)", "${n}${n}", "aa", "aaaa"),
        ("(a)", "$11", "a", "a1"),
        ("a", r"\$1\\", "a", "$1\\"),
    ],
)
def test_a_replacement_reads_groups_as_java_does(pattern: str, replacement: str, text: str, result: str) -> None:
    compiled = compile_java_regex(pattern)
    assert compiled.sub(compile_java_replacement(replacement, compiled), text, count=1) == result


@pytest.mark.parametrize(
    ("replacement", "said"),
    [
        ("$2", "the regex has no group 2, but 1"),
        ("${x}", "no group named x"),
        ("$", "a \\$ needs a group's number"),
        ("a\\", "ends in a lone backslash"),
    ],
)
def test_a_replacement_that_stands_for_nothing_is_refused(replacement: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        compile_java_replacement(replacement, compile_java_regex("(a)"))
