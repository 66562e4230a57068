"""``kornel completion``: prints the script with which a shell completes commands, options and their values."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script

from kornel.cli.options import COMPLETE_VARIABLE
from kornel.cli.terminal import echo_text

ZSH_PRELUDE = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }\n"
"""Sets up what a script for zsh needs, in case the file of the user that reads it does so only later, or never."""


class Shell(StrEnum):
    """The shells for which there is a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="Which shell the script is for.")]) -> None:
    """Print a script that completes commands and options of kornel.

    bash: source <(kornel completion bash). zsh: source <(kornel completion zsh). fish: kornel completion fish | source
    """
    script = get_completion_script(prog_name="kornel", complete_var=COMPLETE_VARIABLE, shell=shell.value)
    echo_text(f"{ZSH_PRELUDE if shell is Shell.ZSH else ''}{script}")
