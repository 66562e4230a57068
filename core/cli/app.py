"""The ``kornel`` command: run a core, and ask a running one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.json_format import MessageToJson

from core.cli.bench import bench
from core.cli.completion import completion
from core.cli.config import checked, config_app, read_file
from core.cli.events import events
from core.cli.explain import explain, what_if_app
from core.cli.health import health
from core.cli.history import history_app
from core.cli.lists import apps, drain_app, nodes, queues, undrain_app
from core.cli.options import DEFAULT_ADDRESS, DEFAULT_REST_ADDRESS, EXIT_BAD_INPUT, EXIT_FAILED, Address, Timeout
from core.cli.quota import queue_app, user_app
from core.cli.security import security_app
from core.cli.top import top
from core.partition.engine import Engine
from core.partition.state import RESERVATION_DELAY_NS, RESERVATION_PERCENT
from core.process import entry
from core.process.history import DEFAULT_SPOOL_BYTES, HistorySettingsError, HistoryUnusable, chosen_history
from core.process.server import AddressTooOpen, AddressUnavailable, ServerSettings
from core.security.errors import SecurityError
from core.security.security import Security, SecurityOptions
from core.service import client
from core.service.channels import CONNECTION, Connection, ConnectionNotPossible
from core.service.clock import SECOND_NS, SystemClock
from core.service.logs import LevelSwitch, LogFormat, LogLevel, build_logger
from core.service.resolvers.ldap_settings import LdapSettingsError
from core.service.resolvers.sources import DEFAULT_LDAP_SETTINGS, find_sources
from core.service.status_text import render_explanation, render_status

app = typer.Typer(
    name="kornel",
    help="Kornel, a cluster-scheduler core served over gRPC.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(config_app, name="config")
app.add_typer(history_app, name="history")
app.add_typer(queue_app, name="queue")
app.add_typer(user_app, name="user")
app.add_typer(what_if_app, name="what-if")
app.add_typer(security_app, name="security")
app.add_typer(drain_app, name="drain")
app.add_typer(undrain_app, name="undrain")
app.command()(explain)
app.command()(events)
app.command()(queues)
app.command()(apps)
app.command()(nodes)
app.command()(top)
app.command()(bench)
app.command()(health)
app.command()(completion)
ask_app = typer.Typer(help="Look at single asks.", no_args_is_help=True)
app.add_typer(ask_app, name="ask")


@app.callback()
def connect(
    ca: Annotated[
        Path | None, typer.Option("--ca", envvar="KORNEL_CA", metavar="FILE", help="Who signs the core's certificate.")
    ] = None,
    cert: Annotated[
        Path | None, typer.Option("--cert", envvar="KORNEL_CERT", metavar="FILE", help="Certificate to show the core.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", envvar="KORNEL_KEY", metavar="FILE", help="Private key of --cert.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", envvar="KORNEL_TOKEN_FILE", metavar="FILE", help="Bearer token to show the core."),
    ] = None,
    server_name: Annotated[
        str,
        typer.Option(
            "--server-name",
            envvar="KORNEL_SERVER_NAME",
            metavar="NAME",
            help="Whom the core's certificate is for, if not the host of its address.",
        ),
    ] = "",
) -> None:
    """Kornel, a cluster-scheduler core served over gRPC."""
    CONNECTION.set(Connection(ca, cert, key, token_file, server_name))


@app.command()
def serve(
    grpc: Annotated[
        str,
        typer.Option("--grpc", metavar="ADDR", help="Where to listen: host:port (port 0: any free one) or unix:path."),
    ] = DEFAULT_ADDRESS,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Queue configuration for a shim that registers with an empty one. A configuration that the shim sends"
            " wins; without either, the built-in default holds.",
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Follow --config FILE when it changes. SIGHUP has it read again in any case."),
    ] = False,
    log_format: Annotated[LogFormat, typer.Option("--log-format", help="How a log line looks.")] = LogFormat.CONSOLE,
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="Least severity to log.")] = LogLevel.INFO,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            "--ready-file",
            metavar="PATH",
            help="File to write the address to, in one piece, once the core serves.",
        ),
    ] = None,
    callback_timeout: Annotated[
        float,
        typer.Option(
            "--callback-timeout",
            metavar="SECONDS",
            min=0.01,
            max=60,
            help="How long a shim may take to answer a question, unless it says so itself.",
        ),
    ] = 1.0,
    reserved_nodes: Annotated[
        int,
        typer.Option(
            "--reserved-nodes",
            metavar="PERCENT",
            min=0,
            max=100,
            help="How many of a hundred nodes may be kept free at once for asks that have waited, at least one.",
        ),
    ] = RESERVATION_PERCENT,
    disable_reservation: Annotated[
        bool,
        typer.Option(
            "--disable-reservation",
            envvar="DISABLE_RESERVATION",
            help="Never keep a node free for an ask because it has waited. Nodes are still kept for asks that preempted"
            " and for those that must run there.",
        ),
    ] = False,
    history: Annotated[
        str | None,
        typer.Option(
            "--history",
            metavar="FILE|URL|off",
            envvar="KORNEL_HISTORY",
            help="Where applications, preemptions, events and configurations are kept: an SQLite file, or the URL of a"
            " PostgreSQL database such as postgresql+psycopg://user@host/kornel. By default kornel/history.db in the"
            " state directory.",
        ),
    ] = None,
    history_keep: Annotated[
        list[str] | None,
        typer.Option(
            "--history-keep",
            metavar="TABLE=AGE[,ROWS]",
            help="How long records stay and how many of them: applications, preemptions, events or configurations, for"
            " instance events=7d,2000000; 0 for any. May be given several times.",
        ),
    ] = None,
    history_spool: Annotated[
        Path | None,
        typer.Option(
            "--history-spool",
            metavar="DIR",
            help="Where records wait for the database. By default beside the SQLite file, else in the state directory.",
        ),
    ] = None,
    history_spool_mb: Annotated[
        int,
        typer.Option("--history-spool-mb", metavar="MIB", min=1, help="Most that may wait there, in MiB."),
    ] = DEFAULT_SPOOL_BYTES // 2**20,
    test_clock: Annotated[
        bool,
        typer.Option(
            "--test-clock",
            help="For tests: time stands still unless kornel.v1.TestClockService moves it. Loopback addresses and unix"
            " sockets only.",
        ),
    ] = False,
    rest_address: Annotated[
        str,
        typer.Option(
            "--rest-address",
            metavar="HOST:PORT",
            envvar="KORNEL_REST_ADDRESS",
            help="Where to serve HTTP: the REST interface and the web page. Port 0: any free one; off: nowhere.",
        ),
    ] = DEFAULT_REST_ADDRESS,
    metric_aliases: Annotated[
        bool,
        typer.Option(
            "--metric-aliases",
            envvar="KORNEL_METRIC_ALIASES",
            help="Publish metrics also under the names that dashboards of older YuniKorn versions ask for.",
        ),
    ] = False,
    ldap_settings: Annotated[
        Path,
        typer.Option(
            "--ldap-settings",
            metavar="DIR",
            help="Directory with the settings of the ldap resolver, a file each; needed where one asks for it.",
        ),
    ] = DEFAULT_LDAP_SETTINGS,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="PEM certificate chain; serve with TLS.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="PEM private key of --tls-cert.")
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(
            "--tls-client-ca",
            metavar="FILE",
            help="Let nobody connect without a certificate that these PEM CAs signed.",
        ),
    ] = None,
    security: Annotated[
        Path | None,
        typer.Option("--security", metavar="FILE", help="Who may do what: identities, rules, limits. Followed."),
    ] = None,
    insecure_anywhere: Annotated[
        bool,
        typer.Option(
            "--insecure-anywhere",
            help="Serve other machines without TLS or without asking who they are: everybody on the network may do"
            " everything.",
        ),
    ] = False,
    tracing_endpoint: Annotated[
        str,
        typer.Option(
            "--tracing-endpoint",
            metavar="URL",
            help="OTLP receiver (HTTP) for spans, such as http://127.0.0.1:4318. Off without.",
        ),
    ] = "",
) -> None:
    """Run a core until SIGTERM or SIGINT, then finish what it has been sent and exit 0.

    Exits 2 when a file it was given or the combination of options cannot be used, 1 when the address cannot be
    listened on or the history cannot be begun where --history says.
    """
    if watch and config is None:
        typer.echo("--watch takes a file to watch: --config FILE", err=True)
        raise typer.Exit(EXIT_BAD_INPUT)
    levels = LevelSwitch(log_level)
    logger = build_logger(log_format, levels)
    try:
        sources = find_sources(ldap_settings, logger)
    except LdapSettingsError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_BAD_INPUT) from error
    text = ""
    if config is not None:
        text = read_file(config)
        checked(config, text, sources.unavailable)
    try:
        kept = chosen_history(history, history_keep or [], history_spool, history_spool_mb * 2**20)
    except HistorySettingsError as error:
        typer.echo(f"--history: {error}", err=True)
        raise typer.Exit(EXIT_BAD_INPUT) from error
    try:
        settings = ServerSettings(
            address=grpc,
            version=entry.core_version(),
            default_config=text,
            config_file=config,
            watch=watch,
            ready_file=ready_file,
            callback_timeout_ns=int(callback_timeout * SECOND_NS),
            history=kept,
            test_clock=test_clock,
            rest_address="" if rest_address.lower() == "off" else rest_address,
            metric_aliases=metric_aliases,
        )
    except AddressTooOpen as error:
        typer.echo(f"--test-clock: {error}", err=True)
        raise typer.Exit(EXIT_BAD_INPUT) from error
    try:
        guarded = Security(
            SecurityOptions(tls_cert, tls_key, tls_client_ca, security, insecure_anywhere),
            clock=SystemClock(),
            logger=logger,
        )
        guarded.check(grpc)
        if settings.rest_address:
            guarded.check(settings.rest_address, "--rest-address")
        tracing = entry.tracing_to(tracing_endpoint, logger)
    except (SecurityError, entry.TracingUnavailable) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_BAD_INPUT) from error
    delay_ns = None if disable_reservation else RESERVATION_DELAY_NS
    engine = Engine(reservation_delay_ns=delay_ns, reservation_percent=reserved_nodes)
    try:
        well = entry.run(engine, settings, sources, logger, levels, guarded, tracing)
    except (AddressUnavailable, HistoryUnusable) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_FAILED) from error
    if not well:
        raise typer.Exit(EXIT_FAILED)


@app.command()
def status(
    grpc: Address = DEFAULT_ADDRESS,
    partition: Annotated[str, typer.Option(help="Only this partition; empty means all.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print kornel.v1.GetStatusResponse as JSON.")] = False,
    audit: Annotated[bool, typer.Option(help="Check the books too; stops scheduling for as long as it takes.")] = False,
    timeout: Timeout = client.DEFAULT_TIMEOUT_S,
) -> None:
    """Show partitions and queues of a core. Exits 1 when none answers."""
    try:
        found = client.fetch_status(grpc, partition, timeout, audit=audit)
    except client.CoreUnreachable as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_FAILED) from error
    if as_json:
        typer.echo(MessageToJson(found, always_print_fields_with_no_presence=True, preserving_proto_field_name=True))
    else:
        typer.echo(render_status(found))


@app.command()
def dump(
    grpc: Address = DEFAULT_ADDRESS,
    as_json: Annotated[bool, typer.Option("--json", help="Changes nothing: a dump is JSON in any case.")] = True,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer.")
    ] = client.DUMP_TIMEOUT_S,
) -> None:
    """Print everything a core and its shim say of themselves, as one JSON object. Exits 1 when none answers."""
    try:
        typer.echo(client.fetch_dump(grpc, timeout))
    except client.CoreUnreachable as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_FAILED) from error


@ask_app.command("show")
def ask_show(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the ask or allocation.")],
    grpc: Address = DEFAULT_ADDRESS,
    partition: Annotated[str, typer.Option(help="Its partition; empty means default.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print kornel.v1.ExplainAskResponse as JSON.")] = False,
    timeout: Timeout = client.DEFAULT_TIMEOUT_S,
) -> None:
    """Show where an ask stands and what it waits for. Exits 1 for one that the core does not know."""
    try:
        found = client.explain_ask(grpc, key, partition, timeout)
    except client.CoreUnreachable as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_FAILED) from error
    if as_json:
        typer.echo(MessageToJson(found, always_print_fields_with_no_presence=True, preserving_proto_field_name=True))
    else:
        typer.echo(render_explanation(key, found))


@app.command()
def unregister(
    rm_id: Annotated[str, typer.Argument(metavar="RM_ID", help="Resource manager to forget.")],
    grpc: Address = DEFAULT_ADDRESS,
    timeout: Timeout = client.DEFAULT_TIMEOUT_S,
) -> None:
    """Have a core forget a resource manager and everything it reported. Exits 1 when the core refuses."""
    try:
        client.unregister(grpc, rm_id, timeout)
    except client.CoreUnreachable as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_FAILED) from error


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"kornel {entry.core_version()}")


def main() -> None:
    """Entry point of the ``kornel`` command."""
    try:
        app()
    except ConnectionNotPossible as error:
        typer.echo(str(error), err=True)
        sys.exit(EXIT_BAD_INPUT)
