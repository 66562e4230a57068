"""The options with which a core is started. An option of ``kornel serve`` is a field here, and wherever it is used."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from kornel.core.archive.defaults import DEFAULT_SPOOL_BYTES
from kornel.core.journal.database.choices import DEFAULT_KEEP, DEFAULT_SNAPSHOT_MINUTES, JournalSync
from kornel.core.service.logs.log_choices import LogFormat, LogLevel
from kornel.core.service.resolvers.ldap_settings import DEFAULT_LDAP_SETTINGS
from kornel.core.state.options import MOST_ENDED, RESERVATION_PERCENT
from kornel.shared.addresses import DEFAULT_ADDRESS


@dataclass(frozen=True)
class ServeOptions:
    """The options of ``kornel serve``, each described where its help is."""

    address: Annotated[
        str,
        typer.Option("--grpc", metavar="ADDR", help="Where to listen: host:port (port 0: any free one) or unix:path."),
    ] = DEFAULT_ADDRESS
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Queue configuration for a shim that registers with an empty one. A configuration that the shim sends"
            " takes precedence; without either, the built-in default applies.",
        ),
    ] = None
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Read --config FILE again whenever it changes. SIGHUP makes the core read it in any case."
        ),
    ] = False
    log_format: Annotated[LogFormat, typer.Option("--log-format", help="Format of log lines.")] = LogFormat.CONSOLE
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="Lowest severity to log.")] = LogLevel.INFO
    ready_file: Annotated[
        Path | None,
        typer.Option(
            "--ready-file",
            metavar="PATH",
            help="File that receives the address, written atomically, once the core serves.",
        ),
    ] = None
    callback_timeout_s: Annotated[
        float,
        typer.Option(
            "--callback-timeout",
            metavar="SECONDS",
            min=0.01,
            max=60,
            help="How long a shim may take to answer a question, unless it says so itself.",
        ),
    ] = 1.0
    reserved_nodes: Annotated[
        int,
        typer.Option(
            "--reserved-nodes",
            metavar="PERCENT",
            min=0,
            max=100,
            help="For how many waiting asks room may be held, in percent of the number of nodes; at least one.",
        ),
    ] = RESERVATION_PERCENT
    ended: Annotated[
        int,
        typer.Option(
            "--ended",
            metavar="N",
            min=1,
            help="How many ended applications a partition remembers, and as many rejected ones, three days at most.",
        ),
    ] = MOST_ENDED
    disable_reservation: Annotated[
        bool,
        typer.Option(
            "--disable-reservation",
            envvar="DISABLE_RESERVATION",
            help="Never keep a node free for an ask because it has waited. Nodes are still kept for asks that preempted"
            " and for those that must run there.",
        ),
    ] = False
    history_place: Annotated[
        str | None,
        typer.Option(
            "--history",
            metavar="FILE|URL|off",
            envvar="KORNEL_HISTORY",
            help="Where applications, preemptions, events and configurations are kept: an SQLite file, or the URL of"
            " a PostgreSQL database such as postgresql+psycopg://user@host/kornel. By default kornel/history.db in"
            " the state directory; a port other than 50051 is part of the name: history-50052.db.",
        ),
    ] = None
    history_keep: Annotated[
        list[str] | None,
        typer.Option(
            "--history-keep",
            metavar="TABLE=AGE[,ROWS]",
            help="How long records are kept, and how many: of applications, preemptions, events or configurations, for"
            " instance events=7d,2000000; 0: without a limit. May be given several times.",
        ),
    ] = None
    history_spool: Annotated[
        Path | None,
        typer.Option(
            "--history-spool",
            metavar="DIR",
            help="Where records wait for the database. By default beside the SQLite file, else in the state directory.",
        ),
    ] = None
    history_spool_mb: Annotated[
        int,
        typer.Option(
            "--history-spool-mb", metavar="MIB", min=1, help="The most MiB of records that may wait in the spool."
        ),
    ] = DEFAULT_SPOOL_BYTES // 2**20
    journal_place: Annotated[
        str | None,
        typer.Option(
            "--journal",
            metavar="FILE|URL|off",
            envvar="KORNEL_JOURNAL",
            help="Where the core records every call of the engine before its decisions leave the core, and from"
            " where the next core continues: an SQLite file, or the URL of a PostgreSQL database. By default no"
            " journal is kept.",
        ),
    ] = None
    journal_sync: Annotated[
        JournalSync,
        typer.Option(
            "--journal-sync",
            help="What a decision waits for: full: its record is on the disk; written: the operating system or the"
            " database has it, so that it survives the core; off: nothing.",
        ),
    ] = JournalSync.FULL
    journal_afresh: Annotated[
        bool,
        typer.Option(
            "--journal-afresh",
            help="Begin with an empty core although the journal has records, for instance after a change of version.",
        ),
    ] = False
    journal_accept_loss: Annotated[
        bool,
        typer.Option(
            "--journal-accept-loss",
            help="Go on with a journal in a file that has lost its end, which a core refuses otherwise.",
        ),
    ] = False
    journal_keep: Annotated[
        str,
        typer.Option(
            "--journal-keep",
            metavar="AGE[,MIB]",
            help="How much of the journal is kept, besides what the next core needs to start: records and snapshots of"
            " this age, such as 12h or 7d, and at most so many MiB of both; 0: any.",
        ),
    ] = DEFAULT_KEEP
    journal_snapshots: Annotated[
        float,
        typer.Option(
            "--journal-snapshots",
            metavar="MINUTES",
            min=0.1,
            help="The longest time between two snapshots of the engine, from which the next core starts. A core that"
            " decides much makes them more often.",
        ),
    ] = DEFAULT_SNAPSHOT_MINUTES
    advertised: Annotated[
        str,
        typer.Option(
            "--advertise",
            metavar="ADDR",
            envvar="KORNEL_ADVERTISE",
            help="Address at which others reach this core: host:port. A standby core sends callers to the leader's"
            " address. By default the address of --grpc, with the name of this machine in place of a wildcard host.",
        ),
    ] = ""
    test_clock: Annotated[
        bool,
        typer.Option(
            "--test-clock",
            help="For tests: time stands still unless kornel.v1.TestClockService advances it. Only for loopback"
            " addresses and unix sockets.",
        ),
    ] = False
    rest_address: Annotated[
        str,
        typer.Option(
            "--rest-address",
            metavar="HOST:PORT",
            envvar="KORNEL_REST_ADDRESS",
            help="Where to serve HTTP: the REST interface and the web page. Port 0: any free one; off: nowhere.",
        ),
    ] = "127.0.0.1:9080"
    rest_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--rest-host",
            metavar="NAME",
            help="A name of this machine that browsers may use besides localhost and its own. On a loopback address"
            " without --security, requests to other names are refused, because they come from pages of other sites."
            " May be given several times.",
        ),
    ] = None
    rest_origins: Annotated[
        list[str] | None,
        typer.Option(
            "--rest-cors-origin",
            metavar="ORIGIN",
            help="Web pages of this origin may read the REST interface, such as http://localhost:9889 for YuniKorn's; *"
            " for all. May be given several times.",
        ),
    ] = None
    rest_connections: Annotated[
        int,
        typer.Option(
            "--rest-connections",
            metavar="NUMBER",
            min=4,
            help="The most HTTP connections at a time.",
        ),
    ] = 512
    docs_url: Annotated[
        str,
        typer.Option(
            "--docs-url",
            metavar="URL",
            envvar="KORNEL_DOCS_URL",
            help="The documentation that the web page links to: a built site, or an address with {page} in it. By"
            " default that of the repository, if the installed package names one.",
        ),
    ] = ""
    grafana_url: Annotated[
        str,
        typer.Option(
            "--grafana-url",
            metavar="URL",
            envvar="KORNEL_GRAFANA_URL",
            help="The dashboard that the web page links to.",
        ),
    ] = ""
    metric_aliases: Annotated[
        bool,
        typer.Option(
            "--metric-aliases",
            envvar="KORNEL_METRIC_ALIASES",
            help="Also publish metrics under the names that dashboards of older YuniKorn versions use.",
        ),
    ] = False
    ldap_settings: Annotated[
        Path,
        typer.Option(
            "--ldap-settings",
            metavar="DIR",
            help="Directory with the settings of the ldap resolver, one file for each; needed if a shim uses that"
            " resolver.",
        ),
    ] = DEFAULT_LDAP_SETTINGS
    connections: Annotated[
        int,
        typer.Option("--max-connections", metavar="N", min=1, help="The most gRPC connections."),
    ] = 256
    calls: Annotated[
        int,
        typer.Option(
            "--max-calls",
            metavar="N",
            min=16,
            help="The most gRPC calls, including streams.",
        ),
    ] = 1_024
    managers: Annotated[
        int,
        typer.Option(
            "--managers",
            metavar="N",
            min=1,
            max=64,
            help="The most resource managers at a time, each with partitions of its own.",
        ),
    ] = 16
    keep_freed_mb: Annotated[
        int,
        typer.Option(
            "--keep-freed-mb",
            metavar="MIB",
            min=0,
            max=32,
            help="Freed memory that the C library may keep in each of its two arenas; 0: the library decides how"
            " much, and in how many. Environment variables of glibc (MALLOC_...) take precedence.",
        ),
    ] = 1
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="PEM certificate chain; serve with TLS.")
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="PEM private key of --tls-cert.")
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(
            "--tls-client-ca",
            metavar="FILE",
            help="Accept only connections with a client certificate that these PEM CAs signed.",
        ),
    ] = None
    security_file: Annotated[
        Path | None,
        typer.Option(
            "--security", metavar="FILE", help="Who may do what: identities, rules, limits. Read again when it changes."
        ),
    ] = None
    insecure_anywhere: Annotated[
        bool,
        typer.Option(
            "--insecure-anywhere",
            help="Serve other machines without TLS or without checking identities: everybody on the network may do"
            " everything.",
        ),
    ] = False
    tracing_endpoint: Annotated[
        str,
        typer.Option(
            "--tracing-endpoint",
            metavar="URL",
            help="OTLP receiver (HTTP) for spans, such as http://127.0.0.1:4318. By default no spans are sent.",
        ),
    ] = ""
