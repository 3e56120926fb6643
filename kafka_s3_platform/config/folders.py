"""What a part of an object's key may be: the one place that refuses what leaves a folder or cannot be written."""

import re

_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""Control characters, halves of characters, and those that the XML of a listing cannot hold."""


def refusal(folders: str) -> str | None:
    """Why folders joined by slashes cannot be a part of a key, None where they can.

    Some stores (SeaweedFS) read a backslash as a slash, so it leads out of a folder as well.
    """
    if _UNWRITABLE.search(folders):
        return "holds a control character, or another one that no listing can show"
    if "" in folders.split("/"):
        return "holds a folder that is empty"
    if not {".", ".."}.isdisjoint(re.split(r"[/\\]", folders)):
        return "holds a folder that is '.' or '..'"
    return None
