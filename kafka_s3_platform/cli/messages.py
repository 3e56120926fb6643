"""Messages of a command on stderr while it works: lines and, on a terminal, its progress."""

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
"""After this time a terminal shows the progress."""

SILENT_SECONDS = 10.0
"""After this time without a line, elsewhere, the command prints that it is at work."""

WAIT_SECONDS = 1.5
"""After this time without an answer, one line names the server that is waited for."""

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
        self._started = self._told = 0.0

    @property
    def is_verbose(self) -> bool:
        """Whether messages of Dagster and other libraries are shown too."""
        return self.level < logging.INFO

    @contextmanager
    def shown(self, command: str) -> Iterator[None]:
        """Show log messages while the command runs."""
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
        """Show that the command is at work: it is never silent for long."""
        if self.level > logging.INFO:
            return
        announced: set[str] = set()
        while not self._ended.wait(TICK_SECONDS):
            now = time.monotonic()
            if self._is_moving():
                if self._display is None and now - self._started >= QUIET_SECONDS:
                    self._start_display()
            elif now - self._told >= SILENT_SECONDS:
                self._write(f"{self._command}: at work for {now - self._started:.0f} s", None)
            for what in list_waits(WAIT_SECONDS):
                if what not in announced:
                    announced.add(what)
                    self._write(f"{self._command}: waiting for {what}", None)

    def _is_moving(self) -> bool:
        """Whether stderr is a terminal, and shows progress."""
        return self._terminal is not None and self.level == logging.INFO

    def _start_display(self) -> None:
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
        if not self._is_moving() or self._ended.is_set():
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
                    task.id, description=snapshot.what, completed=snapshot.done, total=total, counts=snapshot.told
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
    if value and param.name is not None:
        MESSAGES.set_verbosity(param.name)
