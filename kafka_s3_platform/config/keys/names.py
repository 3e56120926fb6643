"""The keys of the names of objects."""

from collections.abc import Mapping
from typing import Any, get_args

from kafka_s3_platform.config.codecs import CODECS
from kafka_s3_platform.config.dialects import Dialect, KeyLayout
from kafka_s3_platform.config.keys import values
from kafka_s3_platform.config.keys.sheet import Sheet
from kafka_s3_platform.config.keys.table import Key, TypedKey, declare_alias, declare_key
from kafka_s3_platform.config.name_templates import check_delimiters, compile_template
from kafka_s3_platform.model.object_key import explain_bad_folders

_KEY_LAYOUTS: tuple[KeyLayout, ...] = get_args(KeyLayout)


def _parse_prefix(text: str) -> str:
    if "{{" in text:
        raise ValueError("holds a placeholder; write it into file.name.template")
    folders = [folder for folder in text.split("/") if folder]
    if folders and (why := explain_bad_folders("/".join(folders))):
        raise ValueError(f"{text!r} is no beginning of keys: it {why}")
    return text


TOPICS_DIR = declare_key(
    "topics.dir",
    values.parse_folder_or_root,
    "Folder of all objects. Slashes at both ends are removed. For a source connector, `/` is the root of the bucket.",
    default="topics",
)
PREFIX = declare_key(
    "aws.s3.prefix",
    _parse_prefix,
    "Aiven's key: the beginning of every object key. The part up to its last slash is the folder.",
    default="",
)
PAD_WIDTH = declare_key(
    "filename.offset.zero.pad.width",
    values.expect_integer(0, 64),
    "How many digits the offset in an object's key is padded to.",
    default=10,
    for_sinks=True,
)
DIRECTORY_DELIM = declare_key(
    "directory.delim",
    str,
    "Separator between folders.",
    default="/",
)
FILE_DELIM = declare_key(
    "file.delim",
    str,
    "Separator between the parts of a file name.",
    default="+",
)
TEMPLATE = declare_key(
    "file.name.template",
    str,
    "Aiven's key for the template of file names, folders included.",
    default="{{topic}}-{{partition}}-{{start_offset}}",
    shown="`{{topic}}-{{partition}}-{{start_offset}}`",
)
KEY_LAYOUT: TypedKey[KeyLayout] = declare_key(
    "archive.key.layout",
    values.expect_one_of(_KEY_LAYOUTS),
    "How to name objects: `connect` as Connect's sink; `block_gzip` as DeviantArt's; `zooz` as Zooz's; `template`"
    " by `file.name.template`; or `lenses`, for source connectors only, as Lenses' sink.",
    default="connect",
)
EXTENSION: TypedKey[str | None] = declare_key(
    "archive.key.extension",
    values.parse_extension,
    "Extension of objects, without its leading dot. `.`: no extension.",
    default=None,
    shown="the format's own",
)
SOURCE_TEMPLATE = declare_key(
    "archive.source.template",
    str,
    "Template of the object keys below `topics.dir`, whatever tool wrote them; see"
    " [layouts](layouts.md#names-that-others-gave). For Secor:"
    " `{{topic}}/dt={{any}}/{{any}}_{{partition}}_{{start_offset}}.gz`.",
    default="",
)

NAME_KEYS: tuple[Key, ...] = (
    TOPICS_DIR,
    declare_alias("s3.prefix", "topics.dir", "DeviantArt's"),
    PREFIX,
    declare_alias("file.name.prefix", "aws.s3.prefix", "Aiven's new"),
    declare_alias("file.prefix.template", "aws.s3.prefix", "Aiven's newest"),
    declare_alias("aws_s3_prefix", "aws.s3.prefix", "Aiven's old"),
    PAD_WIDTH,
    DIRECTORY_DELIM,
    FILE_DELIM,
    TEMPLATE,
    KEY_LAYOUT,
    EXTENSION,
)

_CONNECT_KEYS = (DIRECTORY_DELIM.name, FILE_DELIM.name, PAD_WIDTH.name)


def read_names(sheet: Sheet, dialect: Dialect, output: Mapping[str, Any]) -> dict[str, Any]:
    """Read the layout of keys, their folder and their parts. `output` holds the format and the codec of objects."""
    layout = sheet.value_or(KEY_LAYOUT, dialect.key_layout)
    source_template = sheet.text(SOURCE_TEMPLATE.name) if dialect.is_source else ""
    # In files of Connect's own connectors, a template is enough to choose the layout.
    if source_template or (layout == dialect.key_layout == "connect" and TEMPLATE.name in sheet):
        layout = "template"
    if layout == "lenses" and not dialect.is_source:
        sheet.refuse(KEY_LAYOUT.name, "only read: names there hold the last offset, known when an object has ended")
    if source_template or layout != "template":
        whose = SOURCE_TEMPLATE.name if source_template else f"The layout {layout}"
        sheet.leave((TEMPLATE.name,), f"{whose} names objects its own way.")
    if layout != "connect":
        sheet.leave(_CONNECT_KEYS, f"The layout {layout} names objects its own way.")
    return {
        "key_layout": layout,
        **_read_folder(sheet, dialect, layout, source_template),
        "extension": sheet.value_or(EXTENSION, _find_default_extension(sheet, dialect, output)),
        **_read_delimiters(sheet),
    }


def _find_default_extension(sheet: Sheet, dialect: Dialect, output: Mapping[str, Any]) -> str | None:
    """Return the extension of objects in Aiven's names. None: the extension of the format.

    Aiven's template is the whole name. Its default ends with the codec's extension, and with `avro` before it for Avro.
    """
    if dialect.name != "aiven":
        return None
    if TEMPLATE.name in sheet:
        return ""
    avro = "avro" if output["format"] == "avro" else ""
    codec = CODECS.get(output["codec"])
    return (avro + (codec.suffix if codec and codec.aiven_word else "")).removeprefix(".")


def _read_delimiters(sheet: Sheet) -> dict[str, Any]:
    folders = sheet.value(DIRECTORY_DELIM)
    parts = sheet.value(FILE_DELIM)
    try:
        check_delimiters(folders, parts)
    except ValueError as err:
        sheet.refuse("file.delim" if str(err).startswith("file.delim") else "directory.delim", str(err))
        return {"directory_delim": DIRECTORY_DELIM.unset, "file_delim": FILE_DELIM.unset}
    return {"directory_delim": folders, "file_delim": parts}


def _read_folder(sheet: Sheet, dialect: Dialect, layout: str, source_template: str) -> dict[str, Any]:
    """Read the folder and the template. The part of Aiven's prefix after its last slash begins the file's name."""
    parse = values.parse_folder if layout == "connect" and not dialect.is_source else values.parse_folder_or_root
    folder = sheet.read(TOPICS_DIR.name, parse, dialect.topics_dir)
    template = None
    prefix = sheet.value(PREFIX)
    if prefix and TOPICS_DIR.name in sheet:
        sheet.refuse(PREFIX.name, f"{sheet.written(TOPICS_DIR.name)} sets the same; keep one")
    elif prefix:
        folder = prefix.rpartition("/")[0].strip("/")
    if layout == "template":
        template = source_template or _read_template(sheet, prefix.rpartition("/")[2], dialect)
    return {"topics_dir": folder, "file_name_template": template}


def _read_template(sheet: Sheet, start: str, dialect: Dialect) -> str:
    template = start + sheet.value(TEMPLATE)
    if dialect.is_source:
        return template  # `_judge_template` of sources checks it: it only reads keys
    try:
        compile_template(template)
    except ValueError as err:
        sheet.refuse(TEMPLATE.name if TEMPLATE.name in sheet else PREFIX.name, str(err))
    return template
