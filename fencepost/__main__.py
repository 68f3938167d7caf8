"""`python -m fencepost`: the same as the `fencepost` command."""


def main() -> None:
    """Run the command line."""
    from fencepost.cli.main import cli  # here: importing the package must not import click

    cli(prog_name="fencepost")


if __name__ == "__main__":
    main()
