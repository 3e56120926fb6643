"""The code location is loaded again when a connector file changes."""

from pathlib import Path

import pytest

from kafka_s3_platform.core.config.folder import hash_connector_files
from kafka_s3_platform.operate.instance.watch import Watch, reload_server


class Server:
    """Counts how often it was told to reload."""

    def __init__(self) -> None:
        self.reloads = 0
        self.answers = True

    def reload(self) -> None:
        if not self.answers:
            raise ConnectionError("nobody there")
        self.reloads += 1


def look(watch: Watch, times: int = 3) -> None:
    for _ in range(times):
        watch.check()


def test_a_new_a_changed_and_a_removed_file_are_read_once_each(tmp_path: Path) -> None:
    server = Server()
    watch = Watch(tmp_path, server.reload)
    look(watch)
    assert server.reloads == 1, "what the server has read before the watch began is not known"
    file = tmp_path / "one.json"
    for change in (lambda: file.write_text("{}"), lambda: file.write_text("{ }"), file.unlink):
        before = server.reloads
        change()
        look(watch)
        assert server.reloads == before + 1


def test_a_file_that_still_grows_is_left_until_it_is_whole(tmp_path: Path) -> None:
    server = Server()
    watch = Watch(tmp_path, server.reload)
    for size in range(5):
        (tmp_path / "one.json").write_text("x" * size)
        watch.check()
    assert server.reloads == 0
    watch.check()
    assert server.reloads == 1


def test_a_server_that_does_not_answer_is_told_later(tmp_path: Path) -> None:
    server = Server()
    server.answers = False
    watch = Watch(tmp_path, server.reload)
    look(watch)
    server.answers = True
    look(watch)
    assert server.reloads == 1


def test_worker_properties_counts_and_other_files_do_not(tmp_path: Path) -> None:
    digests = {hash_connector_files(tmp_path), hash_connector_files(tmp_path / "missing")}
    for name in ("notes.txt", ".one.json.swp"):
        (tmp_path / name).write_text("x")
        digests.add(hash_connector_files(tmp_path))
    assert len(digests) == 1
    (tmp_path / "worker.properties").write_text("bootstrap.servers=a:1")
    assert hash_connector_files(tmp_path) not in digests


def test_a_server_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "code-location.sock")
    with pytest.raises(ConnectionError, match=missing):
        reload_server(missing)
