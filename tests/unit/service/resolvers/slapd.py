"""A real directory server with a few people in it, for as long as a test needs it. Serves loopback addresses only."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ldap3 import Connection, Server

from tests.patience import PATIENCE_S
from tests.ports import reserve_port

BASE = "dc=example,dc=com"
READER = f"cn=reader,{BASE}"
PASSWORD = "a word only the directory knows"

_CONF = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload memberof
pidfile {home}/slapd.pid
{tls}
database mdb
suffix "{base}"
rootdn "{reader}"
rootpw "{password}"
directory {home}/data
overlay memberof
memberof-group-oc groupOfNames
access to * by * none
"""

_TLS = """
TLSCACertificateFile {home}/ca.pem
TLSCertificateFile {home}/server.pem
TLSCertificateKeyFile {home}/server.key
"""


@dataclass(frozen=True)
class Directory:
    """``home`` holds ``ca.pem``, which the server's certificate for ``localhost`` goes back to."""

    home: Path
    port: int
    tls_port: int

    def settings(self, where: Path, **changes: str) -> Path:
        """A directory with settings that work, but for *changes*."""
        texts = {
            "Host": "localhost",
            "Port": str(self.port),
            "BaseDN": BASE,
            "Filter": "(&(objectClass=inetOrgPerson)(uid=%s))",
            "GroupAttr": "memberOf",
            "ReturnAttr": "memberOf",
            "BindUser": READER,
            "BindPassword": PASSWORD,
        }
        for name, text in (texts | changes).items():
            (where / name).write_text(text)
        return where


def why_missing() -> str:
    """What this machine lacks; empty: nothing."""
    missing = [program for program in ("slapd", "openssl") if shutil.which(program, path=_PATH) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"


@contextmanager
def directory(home: Path) -> Iterator[Directory]:
    """A directory server whose files are in *home*."""
    (home / "data").mkdir()
    make_certificates(home)
    conf = home / "slapd.conf"
    conf.write_text(_CONF.format(home=home, tls=_TLS.format(home=home), base=BASE, reader=READER, password=PASSWORD))
    served = Directory(home, reserve_port(), reserve_port())
    program = shutil.which("slapd", path=_PATH)
    assert program is not None
    urls = f"ldap://localhost:{served.port}/ ldaps://localhost:{served.tls_port}/"
    with (home / "log").open("wb") as log:
        # A debug level, even 0, keeps it in the foreground.
        process = subprocess.Popen([program, "-f", str(conf), "-h", urls, "-d", "0"], stdout=log, stderr=log)
    try:
        _fill(served, process)
        yield served
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _fill(served: Directory, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("localhost", served.port), PATIENCE_S).close()
            break
        except OSError:
            running = process.poll() is None and time.monotonic() < deadline
            assert running, (served.home / "log").read_text(errors="replace")
            time.sleep(0.02)
    connection = Connection(Server("localhost", served.port), READER, PASSWORD, raise_exceptions=True)
    connection.bind()
    connection.add(BASE, ["dcObject", "organization"], {"dc": "example", "o": "Example"})
    connection.add(f"ou=people,{BASE}", "organizationalUnit")
    connection.add(f"ou=teams,{BASE}", "organizationalUnit")
    for uid in ("bob", "sue", "loner", "twin", "o.neil"):
        connection.add(f"uid={uid},ou=people,{BASE}", "inetOrgPerson", {"cn": uid, "sn": uid})
    connection.add(f"uid=twin,ou=teams,{BASE}", "inetOrgPerson", {"cn": "twin", "sn": "twin"})
    for team, members in {
        "cn=dev": ("bob", "sue"),
        "cn=ops\\, EU": ("bob",),
        "cn=caf\\C3\\A9": ("bob",),
        "ou=nameless": ("sue",),
    }.items():
        people = [f"uid={uid},ou=people,{BASE}" for uid in members]
        attributes = {"member": people, **({"cn": "x"} if team.startswith("ou=") else {})}
        connection.add(f"{team},ou=teams,{BASE}", "groupOfNames", attributes)
    connection.unbind()


def make_certificates(home: Path) -> None:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=home, check=True, capture_output=True, timeout=PATIENCE_S)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test CA",
        "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )  # fmt: skip
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (home / "names").write_text("subjectAltName=DNS:localhost\nauthorityKeyIdentifier=keyid\n")
    openssl(
        "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "names", "-out", "server.pem",
    )  # fmt: skip
