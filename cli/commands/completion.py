"""``kornel completion``: scripts that complete commands and options in a shell."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import typer
from typer.core import TyperGroup

from kornel.cli.terminal import echo_text


class Shell(StrEnum):
    """The shells for which there is a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    context: typer.Context, shell: Annotated[Shell, typer.Argument(help="Which shell the script is for.")]
) -> None:
    """Print a script that completes commands and options of kornel.

    bash: source <(kornel completion bash). zsh: source <(kornel completion zsh). fish: kornel completion fish | source
    """
    root = context.find_root().command
    words = dict(_collect_words(root, ()))
    echo_text({Shell.BASH: bash_script, Shell.ZSH: zsh_script, Shell.FISH: fish_script}[shell](words))


Words = dict[tuple[str, ...], list[str]]
"""The words that may follow each chain of commands: further commands, and options."""


def bash_script(words: Words) -> str:
    """Returns a function that follows the commands on the line and offers the next words; files after an option."""
    return f"""_kornel() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} path="" word next
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        next="${{path:+$path }}$word"
        case "$next" in
            {_list_known(words)}) path=$next ;;
        esac
    done
    local words=""
    case "$path" in
{_list_cases(words)}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _kornel kornel"""


def zsh_script(words: Words) -> str:
    """Returns the function of :func:`bash_script` for zsh."""
    return f"""_kornel() {{
    local reached="" word next
    local -a offered
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        next="${{reached:+$reached }}$word"
        case "$next" in
            {_list_known(words)}) reached=$next ;;
        esac
    done
    local words_here=""
    case "$reached" in
{_list_cases(words, "words_here")}
    esac
    offered=(${{=words_here}})
    compadd -a offered
    _files
}}
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }}
compdef _kornel kornel"""


def fish_script(words: Words) -> str:
    """Returns the function of :func:`bash_script` for fish."""
    known = " ".join(f"'{' '.join(path)}'" for path in words if path)
    lines = [
        "function __kornel_at",
        "    set -l reached ''",
        f"    set -l known {known}",
        "    for word in (commandline -opc)[2..-1]",
        '        set -l next (string trim "$reached $word")',
        "        contains -- $next $known; and set reached $next",
        "    end",
        '    test "$reached" = "$argv[1]"',
        "end",
    ]
    for path, here in words.items():
        offered = " ".join(here)
        lines.append(f"complete -c kornel -n \"__kornel_at '{' '.join(path)}'\" -a '{offered}'")
    return "\n".join(lines)


def _collect_words(command: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    commands = command.commands if isinstance(command, TyperGroup) else {}
    shown = {name: found for name, found in sorted(commands.items()) if not found.hidden}
    parameters = getattr(command, "params", [])
    options = [name for found in parameters for name in (*found.opts, *found.secondary_opts) if name.startswith("--")]
    yield path, [*shown, *sorted({*options, "--help"})]
    for name, found in shown.items():
        yield from _collect_words(found, (*path, name))


def _list_known(words: Words) -> str:
    return "|".join(f'"{" ".join(path)}"' for path in words if path)


def _list_cases(words: Words, variable: str = "words") -> str:
    return "\n".join(f'        "{" ".join(path)}") {variable}="{" ".join(here)}" ;;' for path, here in words.items())
