"""`fencepost cluster cores`: another number of cores, while the broker runs."""

from typing import TYPE_CHECKING

import click

from fencepost.cli.connect import Broker, broker_options, wait_until
from fencepost.cli.plain_text import counted

if TYPE_CHECKING:
    from fencepost.client.admin import Admin


@click.command("cores", short_help="Change the number of cores while the broker runs.")
@click.argument("count", metavar="N", type=click.IntRange(min=1))
@broker_options
def cores_command(count: int, broker: Broker) -> None:
    """Run the broker on N cores, and wait until they share its partitions. Clients go on meanwhile.

    The broker must have been started with --cores 2 or more. No record is copied. If you end the command early, the
    change goes on. The next start has the number of its own --cores.

    \b
    Example:
      fencepost cluster cores 4
    """

    async def query(admin: "Admin") -> None:
        from fencepost.client.admin.client import parts_of
        from fencepost.client.admin.requests import failure
        from fencepost.protocol.api_keys import ApiKey
        from fencepost.protocol.messages.api45_alter_partition_reassignments import AlterPartitionReassignmentsRequest
        from fencepost.protocol.messages.api60_describe_cluster import DescribeClusterRequest

        first = min(one.broker_id for one in (await admin.describe_cluster()).brokers)  # it stays
        asked = parts_of(admin).cluster

        async def change() -> None:
            answer = await asked.ask(first, AlterPartitionReassignmentsRequest(topics=[], cores=count))
            error = failure(answer, "changing the number of cores", ApiKey.ALTER_PARTITION_REASSIGNMENTS)
            if error is not None:
                raise error

        async def running() -> int:
            return len((await asked.ask(first, DescribeClusterRequest())).brokers)

        async def done() -> bool:
            found = await asked.policy.run(running, what="describing the cluster")
            return found == count and not await admin.list_partition_reassignments()

        await asked.policy.run(change, what="changing the number of cores")  # core 0 may be starting again
        late = (
            f"the change to {counted(count, 'core')} takes longer than {broker.timeout_s:g} s, and continues:"
            " `fencepost cluster reassignments` shows what is left, and the broker's log what it waits for"
        )
        await wait_until(done, broker.timeout_s, late)

    broker.ask(query)
    broker.print({"cores": count}, f"The broker runs on {counted(count, 'core')}.")
