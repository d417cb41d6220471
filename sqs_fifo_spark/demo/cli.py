"""The flags of the command `demo`. The module that plays it is imported when needed: Arrow, boto3 and Spark."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Play an auction through a local queue and Spark.")
@click.option("--messages", type=click.IntRange(min=1), default=4000, show_default=True, help="Bids.")
@click.option(
    "--auctions", type=click.IntRange(min=1), default=40, show_default=True, help="Auctions, each a message group."
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Work in this new or empty directory, not in one below the system's for temporary files.",
)
@click.option("--no-crash", is_flag=True, help="Kill nothing meanwhile: shorter.")
@click.option(
    "--queue-url",
    metavar="URL",
    help="Play on this empty FIFO queue, of AWS or an emulator, with the credentials of the environment.",
)
@click.option("--endpoint-url", metavar="URL", help="Endpoint of --queue-url. Default: by the queue's URL.")
@click.option("--region", help="Region of --queue-url. Default: by the queue's URL.")
def demo(
    messages: int,
    auctions: int,
    keep: Path | None,
    no_crash: bool,
    queue_url: str | None,
    endpoint_url: str | None,
    region: str | None,
) -> int:
    """Play an auction through a local queue and Spark, kill the query meanwhile, and audit what arrived."""
    from sqs_fifo_spark.demo.play import run

    options = {"queueUrl": queue_url, "endpointUrl": endpoint_url, "region": region}
    given = {name: value for name, value in options.items() if value is not None}
    if given and queue_url is None:
        raise click.UsageError("--endpoint-url and --region are for a queue that --queue-url names.")
    return run(messages, auctions, keep, given, crash=not no_crash)
