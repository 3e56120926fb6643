import stat
from pathlib import Path

import pytest

from kafka_s3_platform.connect.config.config_providers import ConfigProviders
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.operate.local.settings import StackSettings


def test_an_empty_environment_gives_a_folder_below_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = StackSettings.from_environment({})
    assert settings.data_dir == tmp_path / ".local"
    assert settings.cache == Path.home() / ".cache" / "kafka-s3-stack", "what is run is not in the current folder"
    assert settings.bootstrap_servers == "127.0.0.1:29092"
    assert settings.s3_endpoint == "http://127.0.0.1:28333"


def test_the_cache_is_where_it_is_set() -> None:
    both = {"KAFKA_S3_LOCAL_DATA_DIR": "/data", "KAFKA_S3_LOCAL_CACHE": "/jars"}
    assert StackSettings.from_environment(both).cache == Path("/jars")


def test_every_field_comes_back_from_the_environment_it_gives() -> None:
    settings = StackSettings(data_dir=Path("/data"), cache=Path("/jars"), kafka_port=1, s3_port=2, bucket="b-1")
    assert StackSettings.from_environment(settings.environment()) == settings


def test_all_default_ports_differ() -> None:
    ports = [value for name, value in StackSettings().environment().items() if name.endswith("_PORT")]
    assert len(ports) == len(set(ports)) == 11


@pytest.mark.parametrize("value", ["", "http", "0", "65536", "-1", "1.5", "²"])
def test_a_port_that_is_no_port_is_refused_by_the_name_of_its_variable(value: str) -> None:
    with pytest.raises(ConfigError, match=r"KAFKA_S3_LOCAL_S3_PORT=.* is no port number"):
        StackSettings.from_environment({"KAFKA_S3_LOCAL_S3_PORT": value})


def test_an_unknown_variable_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"KAFKA_S3_LOCAL_KAFKAPORT is unknown; .* KAFKA_S3_LOCAL_KAFKA_PORT"):
        StackSettings.from_environment({"KAFKA_S3_LOCAL_KAFKAPORT": "1"})


def test_other_variables_do_not_matter() -> None:
    assert StackSettings.from_environment({"KAFKA_S3_CONNECTORS": "x"}) == StackSettings.from_environment({})


def test_the_secret_is_made_once_for_this_user_and_connector_files_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user of the machine could read and write the archive: it was printed in the repository."""
    secrets = set()
    for home in (tmp_path / "one", tmp_path / "other"):
        home.mkdir()
        monkeypatch.setenv("HOME", str(home))
        made = StackSettings.from_environment({}).aws_secret_access_key
        assert len(made) >= 32
        assert StackSettings().aws_secret_access_key == made
        assert ConfigProviders({}).replace("${env:KAFKA_S3_LOCAL_AWS_SECRET_ACCESS_KEY}") == made
        [file] = [path for path in home.rglob("*") if path.is_file()]
        assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (made, 0o600)
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        secrets.add(made)
    assert len(secrets) == 2
    own = {"KAFKA_S3_LOCAL_AWS_SECRET_ACCESS_KEY": "own"}
    assert StackSettings.from_environment(own).aws_secret_access_key == "own"
    assert ConfigProviders(own).replace("${env:KAFKA_S3_LOCAL_AWS_SECRET_ACCESS_KEY}") == "own"


def test_where_no_secret_can_be_kept_the_variable_to_set_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(ConfigError, match="set KAFKA_S3_LOCAL_AWS_SECRET_ACCESS_KEY"):
        StackSettings.from_environment({})
    assert StackSettings.from_environment({"KAFKA_S3_LOCAL_AWS_SECRET_ACCESS_KEY": "own"}).s3_port


def test_no_repr_shows_the_secret() -> None:
    assert "hush" not in repr(StackSettings(aws_secret_access_key="hush"))
