"""`fencepost completion`: the script with which a shell completes this command."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print the script with which a shell completes `fencepost`.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes commands, options, topics, groups and transactional ids.

    The names come from the broker that the command line, the environment or the profile names. If it does not answer
    within a second, nothing is completed.

    \b
    Examples:
      eval "$(fencepost completion bash)"                                           in ~/.bashrc
      eval "$(fencepost completion zsh)"                                            in ~/.zshrc
      fencepost completion fish > ~/.config/fish/completions/fencepost.fish
    """
    root = context.find_root()
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(root.command, {}, "fencepost", "_FENCEPOST_COMPLETE").source())
