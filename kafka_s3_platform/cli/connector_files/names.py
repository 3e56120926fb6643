"""Arguments that name connectors. Shells complete them."""

import os

import click

from kafka_s3_platform.connect.config.files import guess_name
from kafka_s3_platform.core.config.folder import find_connectors_folder, list_connector_files


def complete_connector(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of connectors that begin with the text, also from files that do not load."""
    folder = find_connectors_folder(os.environ)
    names = map(guess_name, list_connector_files(folder) if folder.is_dir() else ())
    return sorted(name for name in names if name.startswith(incomplete))


connector_argument = click.argument("connector", shell_complete=complete_connector)

connectors_argument = click.argument(
    "connectors", metavar="[CONNECTOR]...", nargs=-1, shell_complete=complete_connector, required=False
)
"""Any number of connectors."""
