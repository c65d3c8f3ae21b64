"""``cometmq completion``: what makes a shell complete commands, options, topics and groups."""

import click
from click.shell_completion import get_completion_class

from cometmq.cli.command import Command, Example
from cometmq.cli.frame import Frame, pass_frame

VARIABLE = "_COMETMQ_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    cls=Command,
    examples=(
        Example("For this bash", "cometmq completion bash > /dev/null && echo 'then source it'"),
        Example("What fish would read", "cometmq completion fish"),
    ),
)
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
@pass_frame
def command(frame: Frame, /, shell: str) -> None:
    """Print a script that makes a shell complete our commands.

    SHELL is bash, zsh or fish. Topics and groups are completed too, from the cluster that the rest
    of the line names. To have it in every shell:

    \b
      bash  echo 'eval "$(cometmq completion bash)"' >> ~/.bashrc
      zsh   echo 'eval "$(cometmq completion zsh)"' >> ~/.zshrc
      fish  mkdir -p ~/.config/fish/completions
            cometmq completion fish > ~/.config/fish/completions/cometmq.fish
    """
    made = get_completion_class(shell)
    assert made is not None, shell
    root = click.get_current_context().find_root().command
    frame.write(_mended(shell, made(root, {}, "cometmq", VARIABLE).source()) + "\n")


def _mended(shell: str, script: str) -> str:
    """The parser's script, with what it forgets."""
    if shell == "fish":
        # Each answer is "plain,name<Tab>explanation", and explanations have commas.
        return script.replace('string split ","', 'string split --max 1 ","')
    if shell == "zsh":
        # A .zshrc that says nothing of completion has no compdef, and the script needs it.
        # Autoloaded from fpath it is there, and the first line must stay the first.
        tag, _, rest = script.partition("\n")
        start = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }"
        return f"{tag}\n\n{start}\n{rest}"
    return script
