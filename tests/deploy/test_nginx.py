"""The proxy in front of a core that strangers can reach."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.e2e.harness import Conversation, Core, create, node_request, running_core
from tests.e2e.security.site import HOST, Authority, Pair
from tests.patience import PATIENCE_S
from tests.ports import reserve_port
from tests.waiting import until

CONF = Path(__file__).resolve().parents[2] / "deploy/nginx/kornel.conf"
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


@asynccontextmanager
async def proxied(folder: Path, core: Core, authority: Authority) -> AsyncIterator[int]:
    """Runs nginx with the file of ``deploy`` in front of *core*, and yields its port."""
    port, own = reserve_port(), authority.issue("core")
    text = CONF.read_text(encoding="utf-8")
    for before, after in {
        "listen 443": f"listen 127.0.0.1:{port}",
        "/etc/kornel/core.pem": str(own.certificate),
        "/etc/kornel/core-key.pem": str(own.key),
        "/etc/kornel/ca.pem": str(authority.file),
        "127.0.0.1:50051;": f"{core.address};",
        "127.0.0.1:9080;": f"{core.server.rest_address};",
    }.items():
        assert before in text
        text = text.replace(before, after)
    (folder / "kornel.conf").write_text(text, encoding="utf-8")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/log; events {{}}\n"
        f"http {{ access_log off; {temporary}\ninclude {folder}/kornel.conf; }}\n",
        encoding="utf-8",
    )
    assert NGINX is not None
    process = await asyncio.create_subprocess_exec(NGINX, "-c", str(folder / "nginx.conf"), "-e", str(folder / "log"))

    async def listens() -> bool:
        assert process.returncode is None, (folder / "log").read_text(encoding="utf-8")
        return await answers(port)

    try:
        await until(listens, "nginx to listen")
        yield port
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def channel(port: int, authority: Authority, pair: Pair | None) -> grpc.aio.Channel:
    proof = (None, None) if pair is None else (pair.key.read_bytes(), pair.certificate.read_bytes())
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes(), *proof)
    options = [("grpc.ssl_target_name_override", HOST), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options)


async def test_who_shows_a_certificate_reaches_the_core_and_nobody_else(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with (
        running_core(rest_address="127.0.0.1:0") as core,
        proxied(tmp_path, core, authority) as port,
    ):
        await core.register()
        shim = authority.issue("shim-1")
        async with channel(port, authority, shim) as known:
            stream: Any = known.stream_stream("/si.v1.Scheduler/UpdateNode")()
            async with Conversation.open(stream) as nodes:
                # Answers come while the stream is open: nothing on the way waits for its end.
                for name in ("n1", "n2"):
                    await nodes.send(node_request(create(name)).SerializeToString())
                    assert name.encode() in await nodes.receive()
        calls = core.server.admission.refused.total()
        async with channel(port, authority, None) as stranger:
            check: Any = stranger.unary_unary("/grpc.health.v1.Health/Check")
            with pytest.raises(grpc.aio.AioRpcError):
                await check(b"", timeout=PATIENCE_S)
        assert core.server.admission.refused.total() == calls, "the core has not heard of it"
        context = ssl.create_default_context(cafile=str(authority.file))
        context.load_cert_chain(shim.certificate, shim.key)
        context.check_hostname = False

        def fetch() -> bytes:
            address = f"https://127.0.0.1:{port}/healthz/ready"
            with urllib.request.urlopen(address, context=context, timeout=PATIENCE_S) as answer:
                body: bytes = answer.read()
                return body

        assert await asyncio.to_thread(fetch)
