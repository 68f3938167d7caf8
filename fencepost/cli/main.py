"""The `fencepost` command: a group that imports a command when it runs."""

import importlib
from typing import Any

import click

from fencepost import __version__
from fencepost.cli.errors import EXIT_INTERRUPTED
from fencepost.protocol.compiled import record_code

COMMANDS = {
    "acl": "fencepost.cli.acl.commands:acl",
    "backup": "fencepost.cli.backup.commands:backup",
    "bench": "fencepost.cli.bench.commands:bench",
    "cluster": "fencepost.cli.cluster.commands:cluster",
    "completion": "fencepost.cli.completion.commands:completion",
    "config": "fencepost.cli.config.commands:config",
    "console": "fencepost.cli.console:console",
    "consume": "fencepost.cli.records.consume:consume",
    "group": "fencepost.cli.group.commands:group",
    "log": "fencepost.cli.log.commands:log",
    "metadata-shell": "fencepost.cli.metadata.shell:metadata_shell",
    "produce": "fencepost.cli.records.produce:produce",
    "profile": "fencepost.cli.profile.commands:profile",
    "queue": "fencepost.cli.queue.commands:queue",
    "quota": "fencepost.cli.quota.commands:quota",
    "restore": "fencepost.cli.backup.commands:restore",
    "serve": "fencepost.cli.serve:serve",
    "spark": "fencepost.cli.spark.commands:spark",
    "store": "fencepost.cli.store.commands:store",
    "topic": "fencepost.cli.topic.commands:topic",
    "txn": "fencepost.cli.txn.commands:txn",
    "user": "fencepost.cli.user.commands:user",
    "verify": "fencepost.cli.verify:verify",
}
"""Command name -> where its click command lives."""


class LazyGroup(click.Group):
    """Knows its commands by name, so that starting one does not pay for the imports of the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None for an unknown name."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module_name, _, attribute = place.partition(":")
        command = getattr(importlib.import_module(module_name), attribute)
        assert isinstance(command, click.Command), f"{place} is not a command"
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """As click does, but Ctrl-C ends any command with 130, and without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; the error also names the groups that have a command of this name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            groups = [(name, self.get_command(ctx, name)) for name in COMMANDS]
            found = [
                f"`fencepost {name} {args[0]}`"
                for name, group in groups
                if isinstance(group, click.Group) and args[0] in group.list_commands(ctx)
            ]
            if not found:
                raise
            raise click.UsageError(f"{error.format_message()} There is {', '.join(found)}.", ctx) from None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="fencepost", message=f"%(prog)s %(version)s (records: {record_code()})")
def cli() -> None:
    """Exactly-once messaging for Python teams: a broker that speaks Kafka's protocol, without a JVM."""
