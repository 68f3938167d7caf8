"""`fencepost console`: the web console of any Kafka cluster, in a process of its own."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.client_options import bootstrap_option, trust_options
from fencepost.cli.connect import check_config, client_config, fail
from fencepost.cli.errors import first_of
from fencepost.cli.log_format import FORMATS, LEVELS, configure_logging
from fencepost.cli.parameters import SecondsType
from fencepost.extras import needed_for

if TYPE_CHECKING:
    from fencepost.console.serving import Options

DEFAULT_LISTEN = "127.0.0.1:8080"
OF_A_USER = ("sasl.username", "sasl.password", "sasl.jaas.config", "sasl.oauthbearer.config")


@click.command()
@bootstrap_option
@trust_options
@click.option(
    "--listen", metavar="HOST:PORT", default=DEFAULT_LISTEN, show_default=True, help="Where browsers find the console."
)
@click.option(
    "--login/--no-login",
    "login",
    default=None,
    help="Have each user log in with a name and password of the cluster. [default: if the connection is by SASL and no"
    " user is configured]",
)
@click.option("--host", "hosts", metavar="NAME", multiple=True, help="Accept this name in URLs, too; repeatable.")
@click.option(
    "--data",
    "data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Show the history of the metadata from this data directory of a broker.",
)
@click.option(
    "--certificate",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Serve HTTPS with this certificate (PEM, with its chain).",
)
@click.option(
    "--key",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The key of the certificate. [default: in the same file]",
)
@click.option("--timeout", "timeout_s", type=SecondsType(at_least=0.1), default=5.0, show_default=True,
              metavar="DURATION", help="How long a page waits for a broker.")  # fmt: skip
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True)
def console(
    bootstrap: str,
    listen: str,
    login: bool | None,
    hosts: tuple[str, ...],
    data: Path | None,
    certificate: Path | None,
    key: Path | None,
    timeout_s: float,
    log_level: str,
    log_format: str,
) -> None:
    """Serve the web console until SIGTERM or SIGINT.

    It shows topics with a live tail, the log of each partition as a picture, transactions, why readers are stuck,
    groups with their true lag, metadata, settings and an audit. It works with fencepost and with Apache Kafka.

    \b
    Examples:
      fencepost console
      fencepost console --bootstrap kafka:9092 --command-config client.properties
      fencepost console --listen 0.0.0.0:8443 --host console.example --certificate server.pem --login
    """
    configure_logging(log_level, log_format)
    config = client_config(bootstrap, timeout_s, "fencepost-console")
    mechanisms = login_mechanisms(config, login)
    user = {"sasl.mechanism": mechanisms[0], "sasl.username": "u", "sasl.password": "p"} if mechanisms else {}
    check_config({**config, **user})
    if key is not None and certificate is None:
        raise click.UsageError("--key needs --certificate")
    with needed_for("the console", "console", fail):
        from fencepost.console.serving import Options, warn_if_open
    options = Options(listen, config, mechanisms, bootstrap, data, hosts, certificate, key)
    warn_if_open(options)
    import trio

    try:
        trio.run(_serve, options)
    except OSError as error:
        fail(str(error), "choose another address with --listen HOST:PORT")
    except BaseExceptionGroup as group:
        if group.split(OSError)[1] is not None:
            raise
        fail(str(first_of(group)), "choose another address with --listen HOST:PORT")


def login_mechanisms(config: dict[str, Any], login: bool | None) -> tuple[str, ...]:
    """The mechanisms by which users log in, tried one after the other; none if the console has a user of its own, or
    needs none.
    """
    from fencepost.client.core.sasl import PASSWORD_MECHANISMS

    by_sasl = str(config.get("security.protocol", "")).lower().startswith("sasl")
    has_user = any(name in config for name in OF_A_USER)
    if login and not by_sasl:
        raise click.UsageError("--login needs a listener with SASL: set security.protocol=SASL_SSL or SASL_PLAINTEXT")
    if login is False or not by_sasl or (login is None and has_user):
        return ()
    for name in OF_A_USER:
        config.pop(name, None)
    named = config.pop("sasl.mechanism", config.pop("sasl.mechanisms", None))
    return PASSWORD_MECHANISMS if named is None else (str(named),)


async def _serve(options: "Options") -> None:
    import trio

    from fencepost.console.serving import run

    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_signal, stop, nursery.cancel_scope)
        await run(options, stop, lambda url: print(f"fencepost console ready on {url}", flush=True))
        nursery.cancel_scope.cancel()


async def _stop_on_signal(stop: Any, scope: Any) -> None:
    import trio

    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            if stop.is_set():
                scope.cancel()
            stop.set()
