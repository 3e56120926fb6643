"""Writes the output of commands: lines and progress on stderr while they work, and the result as lines or as JSON."""

import json
import logging
import os
import re
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING, Any, TextIO

import click

from kafka_s3_platform.core.spark.progress import Snapshot, call_with_progress, is_progress
from kafka_s3_platform.core.text import format_entry
from kafka_s3_platform.core.waits import list_waits

if TYPE_CHECKING:
    from rich.progress import Progress as Display

INCOMPLETE = 3
"""The exit status if all was done, but not all came back: records, schemas, or the subjects of evidence."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


@dataclass(frozen=True)
class Verdict:
    """A line with good or bad news. A terminal shows it in a colour."""

    text: str
    is_good: bool


def print_result(value: Any, as_json: bool, lines: Sequence[str | Verdict]) -> None:
    """Print a command's result as JSON or as lines. Without lines, print nothing."""
    MESSAGES.end()
    if as_json:
        # JSON escapes all control characters but this one.
        click.echo(json.dumps(value, indent=2, default=datetime.isoformat).replace("\x7f", "\\u007f"))
    elif lines:
        click.echo("\n".join(map(_format_line, lines)))


def _format_line(line: str | Verdict) -> str:
    """Return a line without control characters, in the colour of its verdict."""
    if isinstance(line, str):
        return format_entry(line)
    return paint_text(format_entry(line.text), "green" if line.is_good else "yellow")


def align_columns(rows: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> list[str]:
    """Return the rows of a table as aligned lines. The columns `numbers` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_format_cells(row, widths, numbers)).rstrip() for row in rows]


def _format_cells(row: Sequence[str], widths: Sequence[int], numbers: Collection[int]) -> Iterator[str]:
    """Yield the cells of a row, each padded to the width of its column."""
    for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.rjust(width) if number in numbers else cell.ljust(width)


def strip_links(text: str) -> str:
    """Return a text of the documentation with only the labels of its links, since a terminal follows no links."""
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)


QUIET_SECONDS = 1.0
"""After this time a terminal shows the progress."""

SILENT_SECONDS = 10.0
"""After this time without a line, the command prints that it is at work, if there is no terminal."""

WAIT_SECONDS = 1.5
"""After this time without an answer, one line names the silent server."""

TICK_SECONDS = 0.25

COLOURS = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}


class Messages(logging.Handler):
    """Writes log messages as lines without a prefix. On a terminal, a display below them shows the progress.

    The display ends before results are printed.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._guard = RLock()
        self._ended = Event()
        self._display: Display | None = None
        self._terminal: TextIO | None = None
        """Stderr, if it is a terminal. While a step runs, Dagster turns stderr itself into a file."""

        self._command = ""
        self._started = self._last_output = 0.0

    @property
    def is_verbose(self) -> bool:
        """True if messages of Dagster and other libraries are shown too."""
        return self.level < logging.INFO

    @contextmanager
    def shown(self, command: str) -> Iterator[None]:
        """Show log messages while the command runs."""
        root = logging.getLogger()
        root.addHandler(self)
        root.setLevel(logging.WARNING)
        logging.getLogger("kafka_s3_platform").setLevel(logging.INFO)
        self._command = command
        self._started = self._last_output = time.monotonic()
        self._ended.clear()
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            self._terminal = os.fdopen(os.dup(sys.stderr.fileno()), "w")
        ticking = Thread(target=self._report_activity, name="messages", daemon=True)
        ticking.start()
        try:
            with call_with_progress(self._show_snapshot):
                yield
        finally:
            self.end()
            ticking.join()
            root.removeHandler(self)
            self.setLevel(logging.INFO)
            self.setFormatter(None)
            if self._terminal is not None:
                self._terminal.close()
                self._terminal = None

    def end(self) -> None:
        """End the display, before the result."""
        self._ended.set()
        with self._guard:
            if self._display is not None:
                self._display.stop()
                self._display = None

    def set_verbosity(self, verbosity: str) -> None:
        """Show warnings only, or also messages of Dagster and other libraries."""
        if verbosity == "quiet":
            self.setLevel(logging.WARNING)
        else:
            self.setLevel(logging.DEBUG)
            logging.getLogger().setLevel(logging.INFO)
            self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log message, unless the display shows the same progress."""
        if self.is_verbose or not (is_progress(record) and self._shows_progress()):
            self._write(self.format(_restore_message(record)), COLOURS.get(record.levelno))

    def _write(self, text: str, colour: str | None) -> None:
        """Write a line to stderr, above the display if there is one."""
        with self._guard:
            self._last_output = time.monotonic()
            if self._display is None:
                click.echo(paint_text(text, colour), err=True)
            else:
                from rich.text import Text

                self._display.console.print(Text(text, style=colour or ""), soft_wrap=True)

    def _report_activity(self) -> None:
        """Until the command ends, write a line after each longer silence, and one for each longer wait."""
        if self.level > logging.INFO:
            return
        announced: set[str] = set()
        while not self._ended.wait(TICK_SECONDS):
            now = time.monotonic()
            if self._shows_progress():
                if self._display is None and now - self._started >= QUIET_SECONDS:
                    self._start_display()
            elif now - self._last_output >= SILENT_SECONDS:
                self._write(f"{self._command}: at work for {now - self._started:.0f} s", None)
            for wait_name in list_waits(WAIT_SECONDS):
                if wait_name not in announced:
                    announced.add(wait_name)
                    self._write(f"{self._command}: waiting for {wait_name}", None)

    def _shows_progress(self) -> bool:
        """Return True if stderr is a terminal, and shows progress."""
        return self._terminal is not None and self.level == logging.INFO

    def _start_display(self) -> None:
        """Begin to show progress on the terminal, unless the command has ended."""
        from rich.console import Console, RenderableType
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.text import Text

        class TwoLines(Progress):
            """A bar, and the counts below it: both in one line would need a wide terminal."""

            def get_renderables(self) -> Iterator[RenderableType]:
                yield from super().get_renderables()
                for task in self.tasks:
                    yield Text(f"  {task.fields['counts']}", no_wrap=True, overflow="ellipsis")

        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24), TimeElapsedColumn())
        console = Console(file=self._terminal, highlight=False)
        with self._guard:
            if self._ended.is_set() or self._display is not None:
                return
            self._display = TwoLines(
                *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._display.add_task(self._command, total=None, counts="")
            self._display.start()

    def _show_snapshot(self, snapshot: Snapshot) -> None:
        """Show the newest counts of a run on the terminal."""
        if not self._shows_progress() or self._ended.is_set():
            return
        self._start_display()
        with self._guard:
            if self._display is None:
                return
            [task] = self._display.tasks
            # One watch may lag behind another: both count ended tasks, and the reports of running ones.
            if task.description != snapshot.what or task.completed <= snapshot.done:
                total = snapshot.expected or None
                self._display.update(
                    task.id, description=snapshot.what, completed=snapshot.done, total=total, counts=snapshot.text
                )


def _restore_message(record: logging.LogRecord) -> logging.LogRecord:
    """Return the record with its own message. Dagster puts run and step before it."""
    meta = getattr(record, "dagster_meta", None)
    return record if meta is None else logging.makeLogRecord({**vars(record), "msg": meta["orig_message"], "args": ()})


MESSAGES = Messages()


def paint_text(text: str, colour: str | None) -> str:
    """Return the text in a colour, or as it is under NO_COLOR (https://no-color.org).

    `click.echo` removes colours if the output is no terminal.
    """
    return click.style(text, fg=colour) if colour and not os.environ.get("NO_COLOR") else text


def add_verbosity_options(command: click.Command) -> None:
    """Give a command `-q` and `-v`."""
    for name, text in (
        ("quiet", "Show only results, warnings and errors."),
        ("verbose", "Also show messages of Dagster and other libraries, each with its time and origin."),
    ):
        names = [f"-{name[0]}", f"--{name}"]
        command.params.append(click.Option(names, is_flag=True, expose_value=False, callback=_set_verbosity, help=text))


def _set_verbosity(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001 - click's signature
    """Apply the option `-q` or `-v`."""
    if value and param.name is not None:
        MESSAGES.set_verbosity(param.name)
