"""What a command says on stderr while it works: lines and, on a terminal, how far it is."""

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING, TextIO

import click

from kafka_s3_platform.spark.progress import Snapshot, is_progress, watched_by
from kafka_s3_platform.waits import list_waits

if TYPE_CHECKING:
    from rich.progress import Progress as Display

QUIET_SECONDS = 1.0
"""After so long, a terminal shows that the command is at work."""

SILENT_SECONDS = 10.0
"""Elsewhere, a line tells so after so long without any."""

WAIT_SECONDS = 1.5
"""After so long without an answer, a line tells who is waited for. It is told once."""

TICK_SECONDS = 0.25

COLOURS = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}


class Messages(logging.Handler):
    """Writes what is logged as lines without a prefix. On a terminal, a display below them tells how far the work is.

    The display is ended before results are printed.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._guard = RLock()
        self._ended = Event()
        self._display: Display | None = None
        self._terminal: TextIO | None = None
        """Stderr, if it can show what changes in place. While a step runs, Dagster turns stderr itself into a file."""

        self._command = ""
        self._started = self._told = 0.0

    @property
    def is_verbose(self) -> bool:
        """Whether messages of Dagster and other libraries are wanted too."""
        return self.level < logging.INFO

    @contextmanager
    def shown(self, command: str) -> Iterator[None]:
        """Show what is logged while the command runs."""
        root = logging.getLogger()
        root.addHandler(self)
        root.setLevel(logging.WARNING)
        logging.getLogger("kafka_s3_platform").setLevel(logging.INFO)
        self._command = command
        self._started = self._told = time.monotonic()
        self._ended.clear()
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            self._terminal = os.fdopen(os.dup(sys.stderr.fileno()), "w")
        ticking = Thread(target=self._tick, name="messages", daemon=True)
        ticking.start()
        try:
            with watched_by(self._show_snapshot):
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
        """End the display: what follows is the result."""
        self._ended.set()
        with self._guard:
            if self._display is not None:
                self._display.stop()
                self._display = None

    def set_verbosity(self, verbosity: str) -> None:
        """Show warnings only, or also what Dagster and other libraries log."""
        if verbosity == "quiet":
            self.setLevel(logging.WARNING)
        else:
            self.setLevel(logging.DEBUG)
            logging.getLogger().setLevel(logging.INFO)
            self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if self.is_verbose or not (is_progress(record) and self._is_moving()):
            self._write(self.format(_restore_message(record)), COLOURS.get(record.levelno))

    def _write(self, text: str, colour: str | None) -> None:
        with self._guard:
            self._told = time.monotonic()
            if self._display is None:
                click.echo(paint_text(text, colour), err=True)
            else:
                from rich.text import Text

                self._display.console.print(Text(text, style=colour or ""), soft_wrap=True)

    def _tick(self) -> None:
        """Show that the command is at work, so that it is never silent for long."""
        if self.level > logging.INFO:
            return
        told: set[str] = set()
        while not self._ended.wait(TICK_SECONDS):
            now = time.monotonic()
            if self._is_moving():
                if self._display is None and now - self._started >= QUIET_SECONDS:
                    self._start_display()
            elif now - self._told >= SILENT_SECONDS:
                self._write(f"{self._command}: at work for {now - self._started:.0f} s", None)
            for what in list_waits(WAIT_SECONDS):
                if what not in told:
                    told.add(what)
                    self._write(f"{self._command}: waiting for {what}", None)

    def _is_moving(self) -> bool:
        """Whether stderr can show what changes in place."""
        return self._terminal is not None and self.level == logging.INFO

    def _start_display(self) -> None:
        from rich.console import Console, RenderableType
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.text import Text

        class TwoLines(Progress):
            """A bar, and below it what is counted: both in one line would need a wide terminal."""

            def get_renderables(self) -> Iterator[RenderableType]:
                yield from super().get_renderables()
                yield from (Text(f"  {task.fields['told']}", no_wrap=True, overflow="ellipsis") for task in self.tasks)

        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24), TimeElapsedColumn())
        console = Console(file=self._terminal, highlight=False)
        with self._guard:
            if self._ended.is_set() or self._display is not None:
                return
            self._display = TwoLines(
                *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._display.add_task(self._command, total=None, told="")
            self._display.start()

    def _show_snapshot(self, found: Snapshot) -> None:
        if not self._is_moving() or self._ended.is_set():
            return
        self._start_display()
        with self._guard:
            if self._display is None:
                return
            [task] = self._display.tasks
            # One watch may know more than another: tasks that end are counted, and so is what those under way tell.
            if task.description != found.what or task.completed <= found.done:
                total = found.expected or None
                self._display.update(
                    task.id, description=found.what, completed=found.done, total=total, told=found.told
                )


def _restore_message(record: logging.LogRecord) -> logging.LogRecord:
    """Return the record with its own message. Dagster puts run and step before what is logged in a step."""
    told = getattr(record, "dagster_meta", None)
    return record if told is None else logging.makeLogRecord({**vars(record), "msg": told["orig_message"], "args": ()})


MESSAGES = Messages()


def paint_text(text: str, colour: str | None) -> str:
    """Return the text in a colour, or as it is where none is wanted (https://no-color.org).

    `click.echo` takes colours away where no terminal is.
    """
    return click.style(text, fg=colour) if colour and not os.environ.get("NO_COLOR") else text


def add_verbosity_options(command: click.Command) -> None:
    """Give a command `-q` and `-v`."""
    for name, text in (
        ("quiet", "Show only results, warnings and errors."),
        ("verbose", "Show also what Dagster and other libraries log, each line with its time and origin."),
    ):
        names = [f"-{name[0]}", f"--{name}"]
        command.params.append(click.Option(names, is_flag=True, expose_value=False, callback=_set_verbosity, help=text))


def _set_verbosity(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001 - click's signature
    if value and param.name is not None:
        MESSAGES.set_verbosity(param.name)
