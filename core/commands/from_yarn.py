"""Command ``kornel config from-yarn``: translates files of YARN's Capacity Scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml

from kornel.cli.configuration_file import read_file
from kornel.cli.options import refuse_input
from kornel.cli.terminal import echo_document
from kornel.cli.text.tables import wrap_text
from kornel.cli.yarn.capacity_file import read_properties
from kornel.cli.yarn.conversion import Conversion, describe_remarks
from kornel.core.commands.configuration import check_text
from kornel.shared.quantities import parse_quantity


def from_yarn(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="capacity-scheduler.xml, and yarn-site.xml for preemption.")
    ],
    cluster: Annotated[
        str,
        typer.Option(
            metavar="AMOUNTS",
            help="What the cluster has, such as vcore=100,memory=400Gi; for percentages, weights.",
        ),
    ] = "",
) -> None:
    """Translate a Capacity Scheduler file of YARN into a queue configuration.

    Comments at its end list what has no counterpart, with the way by hand. Exits 2 if it needs a hand to be accepted.
    """
    sizes = [part.partition("=") for part in cluster.replace(" ", "").split(",") if part]
    try:
        has = {kind: parse_quantity(kind, text) for kind, _, text in sizes}
    except ValueError as error:
        raise refuse_input(f"--cluster {cluster}: {error}; write it as in vcore=100,memory=400Gi") from error
    try:
        properties = {name: value for file in files for name, value in read_properties(read_file(file), file).items()}
        converted = Conversion(properties, has).convert_file()
    except ValueError as error:
        raise refuse_input(error) from error
    text = yaml.safe_dump(converted.configuration, sort_keys=False, default_flow_style=None, width=120)
    lines = [line for said in describe_remarks(converted.remarks) for line in wrap_text(said, indent="# - ")]
    echo_document("\n".join([text.rstrip(), "", "# What has no counterpart, or will surprise:", *lines]))
    check_text(Path("queues.yaml"), text)
