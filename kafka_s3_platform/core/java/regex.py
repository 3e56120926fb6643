"""Translates Java's regular expressions and replacements for Python's `re`.

Source of the rules: the Java SE documentation of `java.util.regex.Pattern` and `Matcher`. A pattern that Python's
engine cannot run, or that would have another meaning there, is refused when it is compiled.
"""

import re
from collections.abc import Callable

Replacement = Callable[[re.Match[str]], str]

_TOKEN = re.compile(
    r"""
    (?P<quoted> \\Q .*? (?:\\E|$))
  | (?P<escape> \\ (?: k<(?P<backreference>\w+)> | [pP](?:\{\w*\}|.)? | .?))
  | (?P<group> \( \? (?: <(?P<name>[A-Za-z]\w*)> | [^\]])?)
  | (?P<possessive> (?: [*+?] | \{\d+(?:,\d*)?\} ) \+)
  | (?P<intersection> &&)
  | (?P<other> .)
    """,
    re.VERBOSE | re.DOTALL,
)

_ESCAPES = frozenset("dDwWsStnrfAbBxu123456789")
_GROUPS = ("(?:", "(?=", "(?!", "(?<", "(?i", "(?m", "(?s", "(?x", "(?-")
_CLASSES = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "A-Za-z",
    "Digit": "0-9",
    "Alnum": "A-Za-z0-9",
    "XDigit": "0-9a-fA-F",
}


def compile_java_regex(pattern: str) -> re.Pattern[str]:
    """Return the Python pattern equivalent to `java.util.regex.Pattern.compile(pattern)`.

    Raises ValueError if the pattern is invalid, or if Python's engine has no equivalent for a part of it.
    """
    translated = ""
    in_class = False
    for token in _TOKEN.finditer(pattern):
        translated += _translate_token(token, in_class)
        in_class = token[0] == "[" or (in_class and token[0] != "]")
    try:
        # ASCII: Java's \d, \w and \s match no other characters by default.
        return re.compile(translated, re.ASCII)
    except (re.error, OverflowError) as error:
        raise ValueError(f"'{pattern}' is no regular expression: {error}") from error


def replace_whole_match(text: str, pattern: re.Pattern[str], replacement: str) -> str:
    """Return the text as RegexRouter renames it: unchanged, unless all of it matches.

    Raises ValueError if the replacement does not fit the pattern.
    """
    replace = compile_java_replacement(replacement, pattern)
    # the first match may be shorter than the text
    return pattern.sub(replace, text, count=1) if pattern.fullmatch(text) else text


def compile_java_replacement(replacement: str, pattern: re.Pattern[str]) -> Replacement:
    r"""Compile the replacement of a match, as in Java's `Matcher.replaceFirst`.

    In the text, `$n` and `${name}` are groups, and `\` quotes the next character. Raises ValueError if the pattern has
    no such group, or if nothing valid follows a `$` or `\`.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(replacement):
        part, at = _parse_replacement_part(replacement, at, pattern)
        parts.append(part)
    return lambda match: "".join(part if isinstance(part, str) else match[part] or "" for part in parts)


def _translate_token(token: re.Match[str], in_class: bool) -> str:
    """Return a token of Java's pattern as Python writes it. Raises ValueError if Python has no equivalent."""
    if token["quoted"]:
        return re.escape(token["quoted"][2:].removesuffix("\\E"))
    if token["escape"]:
        return _translate_escape(token, in_class)
    if in_class:
        return _translate_in_class(token)
    if token["possessive"]:
        raise ValueError(f"the possessive quantifier '{token[0]}' is not honoured: write it without its last '+'")
    if token["group"]:
        return _translate_group(token)
    return token[0]


def _translate_in_class(token: re.Match[str]) -> str:
    """Return a token inside [...] as Python writes it. Raises ValueError for intersections and nested classes."""
    if token["intersection"] or token[0] == "[":
        raise ValueError(f"'{token[0]}' inside a character class is not honoured: write the characters out")
    return token[0]


def _translate_group(token: re.Match[str]) -> str:
    """Return the beginning of a group as Python writes it."""
    if token["name"]:
        return f"(?P<{token['name']}>"
    if token[0] not in _GROUPS:
        raise ValueError(f"'{token[0]}' is not honoured; known groups: {' '.join(_GROUPS)} (?<name>")
    return token[0]


def _translate_escape(token: re.Match[str], in_class: bool) -> str:
    """Return an escape (of a character, a class of characters or a group) as Python writes it."""
    text = token["escape"]
    if token["backreference"]:
        return f"(?P={token['backreference']})"
    letter = text[1:2]
    # Java's \z is Python's \Z. Java's \Z also matches before a last line break.
    if text == "\\z":
        return "\\Z"
    if text == "\\Z":
        return "(?=\\n?\\Z)"
    if letter == "p" and (characters := _CLASSES.get(text[3:-1])):
        return characters if in_class else f"[{characters}]"
    if not letter or (letter.isalnum() and letter not in _ESCAPES):
        raise ValueError(f"'{text}' is not honoured: write the characters out, such as [A-Za-z]")
    return text


def _parse_replacement_part(text: str, at: int, pattern: re.Pattern[str]) -> tuple[str | int, int]:
    """Parse the part at position `at`. Return its text or the number of its group, and the position after it."""
    if text[at] == "\\":
        if at + 1 == len(text):
            raise ValueError(f"'{text}' ends in a lone backslash")
        return text[at + 1], at + 2
    if text[at] != "$":
        return text[at], at + 1
    if named := re.compile(r"\$\{([A-Za-z]\w*)\}").match(text, at):
        if named[1] not in pattern.groupindex:
            raise ValueError(f"'{text}': the regex has no group named {named[1]}")
        return pattern.groupindex[named[1]], named.end()
    return _parse_group_number(text, at, pattern)


def _parse_group_number(text: str, at: int, pattern: re.Pattern[str]) -> tuple[int, int]:
    """Parse a group's number as Java does: take a further digit only if the group of the longer number exists."""
    end = at + 2
    if not text[at + 1 : end].isdigit():
        raise ValueError(f"'{text}': a $ needs a group's number or ${{name}} behind it; write \\$ for the character")
    number = int(text[at + 1])
    if number > pattern.groups:
        raise ValueError(f"'{text}': the regex has no group {number}, but {pattern.groups}")
    while text[end : end + 1].isdigit() and number * 10 + int(text[end]) <= pattern.groups:
        number = number * 10 + int(text[end])
        end = end + 1
    return number, end
