"""What an administrator may say of the history, and what is wrong with the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from kornel.core.archive.settings import (
    DAY_S,
    DEFAULT_RETENTION,
    HistorySettingsError,
    Retention,
    default_history,
    history_settings,
    parse_retention,
)
from kornel.core.journal.database.settings import JournalSettingsError, journal_settings


@pytest.mark.parametrize(
    ("where", "url", "spool"),
    [
        ("/var/lib/k/h.db", "sqlite+pysqlite:////var/lib/k/h.db", "/var/lib/k/h.db.spool"),
        ("sqlite:////srv/h.db", "sqlite+pysqlite:////srv/h.db", "/srv/h.db.spool"),
        ("postgresql://ann:secret@db/kornel", "postgresql+psycopg://ann:***@db/kornel", "/state/spool"),
        ("postgresql+psycopg://db/kornel", "postgresql+psycopg://db/kornel", "/state/spool"),
        ("postgres://db/kornel?sslmode=require", "postgresql+psycopg://db/kornel?sslmode=require", "/state/spool"),
    ],
)
def test_places(monkeypatch: pytest.MonkeyPatch, where: str, url: str, spool: str) -> None:
    """A path or a URL; what is shown has no password; the spool is beside the file or in the state directory."""
    monkeypatch.setenv("STATE_DIRECTORY", "/state:/other")
    found = history_settings(where)
    assert found is not None
    assert (found.shown, found.spool) == (url, Path(spool))
    chosen = history_settings(where, spool=Path("/elsewhere"))
    assert chosen is not None
    assert chosen.spool == Path("/elsewhere")


def test_off() -> None:
    """A word of its own, not a file."""
    assert history_settings("off") is None


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("", "names no file"),
        ("dir/", "names no file"),
        ("mysql://ann:secret@db/kornel", "'mysql' is no database the history can be in"),
        ("sqlite://", "name a file"),
        ("sqlite:///:memory:", "name a file"),
        ("postgresql://ann:secret@db:port/x", "cannot be read"),
        ("://secret", "cannot be read"),
    ],
)
def test_places_that_are_none(where: str, why: str) -> None:
    """The reason is said, a password is not."""
    with pytest.raises(HistorySettingsError, match=why) as refused:
        history_settings(where)
    assert "secret" not in str(refused.value)


USUAL = "127.0.0.1:50051"


def test_default_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """systemd's directory, else XDG's, else the home's."""
    monkeypatch.setenv("STATE_DIRECTORY", f"{tmp_path}/lib")
    assert default_history(USUAL) == f"{tmp_path}/lib/history.db"
    monkeypatch.delenv("STATE_DIRECTORY")
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}/xdg")
    assert default_history(USUAL) == f"{tmp_path}/xdg/kornel/history.db"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_history(USUAL) == f"{tmp_path}/.local/state/kornel/history.db"


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("0.0.0.0:50051", "history.db"),
        ("[::]:50051", "history.db"),
        ("localhost:50052", "history-50052.db"),
        ("127.0.0.1:50052", "history-50052.db"),
        ("127.0.0.1:0", "history-0.db"),
        ("10.0.0.7:50051", "history-10.0.0.7-50051.db"),
        ("[fe80::1%eth0]:7", "history-fe80--1-eth0-7.db"),
    ],
)
def test_each_core_has_its_own_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str, name: str) -> None:
    """The file is named after the address, and is the same one each time."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    default_history(USUAL)
    assert default_history(address) == default_history(address) == f"{tmp_path}/{name}"


def test_sockets_are_told_apart_by_their_whole_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two sockets of one name in two directories are two cores."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    first, second = default_history("unix:/run/a/core.sock"), default_history("unix:/run/b/core.sock")
    assert first != second
    assert Path(first).name.startswith("history-core.sock-")


@pytest.mark.parametrize("address", ["127.0.0.1:8443", "unix:/run/core.sock", USUAL])
def test_an_existing_file_stays_with_the_first_core(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str
) -> None:
    """The core that starts first after an upgrade goes on with ``history.db``, now and later; others do not."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    (tmp_path / "history.db").touch()
    assert default_history("127.0.0.1:0") == f"{tmp_path}/history-0.db"
    assert default_history(address) == f"{tmp_path}/history.db"
    for other in ("127.0.0.1:7", "10.0.0.7:50051", *({USUAL} - {address})):
        assert default_history(other) not in (f"{tmp_path}/history.db", default_history(address))
    assert default_history(address) == f"{tmp_path}/history.db"


def test_the_usual_core_can_lose_the_plain_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where another core has ``history.db``, the file of the one at the usual port is named after its port."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    (tmp_path / "history.db").touch()
    default_history("127.0.0.1:8443")
    assert default_history(USUAL) == f"{tmp_path}/history-50051.db"
    (tmp_path / "history.db").unlink()
    assert default_history(USUAL) == f"{tmp_path}/history-50051.db"


def test_spools_of_a_shared_database_are_kept_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two cores that write into one PostgreSQL have a spool each."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    url = "postgresql://user@host/kornel"
    first, second = history_settings(url, address=USUAL), history_settings(url, address="127.0.0.1:8443")
    assert first is not None
    assert second is not None
    assert first.spool == tmp_path / "spool"
    assert second.spool == tmp_path / "spool-8443"


def test_retention_is_the_default_with_changes() -> None:
    """Age and rows of a table; the last word counts; tables that are not named keep their defaults."""
    found = parse_retention(["events=36h,500", "applications=0", "applications=0,7", "configurations=2d"])
    assert dict(found) == {
        **DEFAULT_RETENTION,
        "events": Retention(36 * 3_600, 500),
        "applications": Retention(0, 7),
        "configurations": Retention(2 * DAY_S, 0),
    }


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("nodes=7d", "TABLE one of applications, preemptions, events, configurations, usage"),
        ("events", "expected TABLE=AGE"),
        ("events=", "is no age"),
        ("events=7", "is no age"),
        ("events=-7d", "is no age"),
        ("events=7d,many", "is no number of rows"),
        ("events=7d,1,2", "is no number of rows"),
        ("events=\u0667d", "is no age"),
    ],
)
def test_retention_that_is_none(entry: str, why: str) -> None:
    """The reason names the entry."""
    with pytest.raises(HistorySettingsError, match=why):
        parse_retention([entry])


def test_spool_that_is_too_small() -> None:
    """A spool has to hold at least a few batches."""
    with pytest.raises(HistorySettingsError, match="too small"):
        history_settings("h.db", spool_bytes=1_000)


@pytest.mark.parametrize(
    "where",
    [
        "postgresql://u:hunter2@h/db",
        "postgresql://:hunter2@h/db",
        "postgresql://h/db?user=u&password=hunter2",
        "postgresql://h/db?password=hun%74er2",
        "postgresql://u@h/db?sslpassword=hunter2",
        "postgresql://u@h/db?passfile=hunter2",
        "postgresql://u@h/db?options=-c%20a.password%3Dhunter2",
        "postgresql://u@h/db?PassWord=hunter2",
        "postgresql://u:x@hunter2@h/db",
        "postgresql://u:hunter2/x@h/db",
        "postgresql://u:hunter2 x@h/db",
        "host=h user=u password=hunter2",
        "user=u password = 'hunter2'",
        "postgresql:u:hunter2@h/db",
        "postgresql:/u:hunter2@h/db",
        "postgresql//u:hunter2/x@h/db",
        "u:hunter2@h/db",
    ],
)
def test_a_password_is_shown_in_no_form_of_an_address(where: str) -> None:
    """Neither where the address is shown, nor in the reason for refusing it."""
    for find in (history_settings, journal_settings):
        try:
            found = find(where)
        except (HistorySettingsError, JournalSettingsError) as error:
            said = str(error)
        else:
            assert found is not None
            said = found.shown
        assert "hunter2" not in said
        assert "@h/db" in said or "://h/db" in said or "password" in said or "a URL has ://" in said
