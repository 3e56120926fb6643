"""How objects are named, out of a connector file."""

from collections.abc import Mapping
from typing import Any

from kafka_s3_platform.config import values
from kafka_s3_platform.config.delimiters import check_delimiters
from kafka_s3_platform.config.dialects import Dialect, KeyLayout
from kafka_s3_platform.config.file_name_template import compile_template
from kafka_s3_platform.config.folders import refusal
from kafka_s3_platform.config.sheet import Sheet

DEFAULT_TEMPLATE = "{{topic}}-{{partition}}-{{start_offset}}"

_KEY_LAYOUTS: tuple[KeyLayout, ...] = ("connect", "block_gzip", "zooz", "template", "lenses")
_AIVEN_ENDINGS: Mapping[str, str] = {"gzip": "gz", "zstd": "zst", "snappy": "snappy"}
_CONNECT_KEYS = ("directory.delim", "file.delim", "filename.offset.zero.pad.width")


def key_settings(sheet: Sheet, dialect: Dialect, output: Mapping[str, Any]) -> dict[str, Any]:
    """The layout of keys, and the folder and the names that it makes them of, for objects of some format and codec."""
    layout = sheet.read("archive.key.layout", values.choice(_KEY_LAYOUTS), dialect.key_layout)
    own = sheet.text("archive.source.template") if dialect.is_source else ""
    if own or (layout == dialect.key_layout == "connect" and "file.name.template" in sheet):
        layout = "template"
    if layout == "lenses" and not dialect.is_source:
        sheet.refuse(
            "archive.key.layout", "only read: names there hold the last offset, known when an object has ended"
        )
    if own or layout != "template":
        whose = "archive.source.template" if own else f"The layout {layout}"
        sheet.leave(("file.name.template",), f"{whose} names objects its own way.")
    if layout != "connect":
        sheet.leave(_CONNECT_KEYS, f"The layout {layout} names objects its own way.")
    return {
        "key_layout": layout,
        **_prefix(sheet, dialect, layout, own),
        "extension": sheet.read("archive.key.extension", values.extension, _extension(sheet, dialect, output)),
        **_delimiters(sheet),
        "offset_pad_width": sheet.read("filename.offset.zero.pad.width", values.integer(0, 64), 10),
    }


def _extension(sheet: Sheet, dialect: Dialect, output: Mapping[str, Any]) -> str | None:
    """Aiven's template is the whole name; its default one ends with the codec's extension, Avro's before it."""
    if dialect.name != "aiven":
        return None
    if "file.name.template" in sheet:
        return ""
    avro = ["avro"] if output["format"] == "avro" else []
    return ".".join([*avro, *(_AIVEN_ENDINGS[codec] for codec in [output["codec"]] if codec in _AIVEN_ENDINGS)])


def _delimiters(sheet: Sheet) -> dict[str, Any]:
    folders, parts = sheet.text("directory.delim") or "/", sheet.text("file.delim") or "+"
    try:
        check_delimiters(folders, parts)
    except ValueError as err:
        sheet.refuse("file.delim" if str(err).startswith("file.delim") else "directory.delim", str(err))
        return {"directory_delim": "/", "file_delim": "+"}
    return {"directory_delim": folders, "file_delim": parts}


def _prefix(sheet: Sheet, dialect: Dialect, layout: str, own: str) -> dict[str, Any]:
    """The folder, and the template: what follows the last slash of Aiven's prefix begins the file's name."""
    parse = values.directory if layout == "connect" and not dialect.is_source else values.folder_or_root
    folder, template = sheet.read("topics.dir", parse, dialect.topics_dir), None
    prefix = sheet.read("aws.s3.prefix", _plain_prefix, "")
    if prefix and "topics.dir" in sheet:
        sheet.refuse("aws.s3.prefix", f"{sheet.written('topics.dir')} sets the same; keep one")
    elif prefix:
        folder = prefix.rpartition("/")[0].strip("/")
    if layout == "template":
        template = own or _template(sheet, prefix.rpartition("/")[2], dialect)
    return {"topics_dir": folder, "file_name_template": template}


def _template(sheet: Sheet, start: str, dialect: Dialect) -> str:
    template = start + (sheet.text("file.name.template") or DEFAULT_TEMPLATE)
    if dialect.is_source:
        return template  # judged as one that is only read by
    try:
        compile_template(template)
    except ValueError as err:
        sheet.refuse("file.name.template" if "file.name.template" in sheet else "aws.s3.prefix", str(err))
    return template


def _plain_prefix(text: str) -> str:
    if "{{" in text:
        raise ValueError("holds a placeholder; write it into file.name.template")
    folders = [folder for folder in text.split("/") if folder]
    if folders and (why := refusal("/".join(folders))):
        raise ValueError(f"{text!r} is no beginning of keys: it {why}")
    return text
