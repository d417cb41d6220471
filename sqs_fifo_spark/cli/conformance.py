"""`conformance`: looks at which facts about SQS FIFO queues hold at an endpoint."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import click
from botocore.exceptions import ClientError, NoRegionError

from sqs_fifo_spark.cli.output import Status, print_error, print_line, print_table, progress
from sqs_fifo_spark.conformance.case import Case
from sqs_fifo_spark.conformance.grounds import find_cases
from sqs_fifo_spark.conformance.kit import (
    DIFFERS,
    HOLDS,
    NO_ANSWER,
    VERDICTS,
    Kit,
    Result,
    cost_usd,
    make_client,
    most_calls,
    report,
)
from sqs_fifo_spark.conformance.refusals import code_of


@click.command(short_help="Look at which facts about SQS FIFO hold at an endpoint.")
@click.option("--endpoint-url", metavar="URL", help="Endpoint outside AWS, such as an emulator's.")
@click.option(
    "--against",
    type=click.Choice(["aws", "local"]),
    help="In place of --endpoint-url: AWS itself, which costs money, or a local queue of this command's own.",
)
@click.option("--region", help="Region. Default: the environment's or profile's; outside AWS, else us-east-1.")
@click.option("--queue-prefix", default="conformance", show_default=True, help="How the names of its queues begin.")
@click.option(
    "--only",
    multiple=True,
    metavar="TEXT",
    help="Only this case or ground, such as locks or locks.held-*. Repeatable.",
)
@click.option("--max-seconds", type=float, metavar="N", help="Leave out cases that take longer than this.")
@click.option("--jobs", type=click.IntRange(1, 64), default=16, show_default=True, help="Cases at once.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write the report to this file, or to the standard output with -.",
)
@click.option("--list", "is_list", is_flag=True, help="List the cases and make no call.")
@click.option("--yes", is_flag=True, help="Agree to what the calls on AWS cost.")
def conformance(
    endpoint_url: str | None,
    against: str | None,
    region: str | None,
    queue_prefix: str,
    only: Sequence[str],
    max_seconds: float | None,
    jobs: int,
    json_file: str | None,
    is_list: bool,
    yes: bool,
) -> Status:
    """Look at which facts about SQS FIFO queues hold at an endpoint, each on queues that are made for it and deleted.

    A case holds, differs, is not supported, or is not decided, where SQS may answer in several ways. The exit status is
    0 if all that ran hold and no queue is left, else 1. It touches no queue that it did not make.
    """
    is_aws = against == "aws"
    cases = [case for case in find_cases(only) if max_seconds is None or case.seconds_on(is_aws=is_aws) <= max_seconds]
    if wrong := [text for text in only if not find_cases([text])]:
        raise click.UsageError(f"--only {wrong[0]}: there is no such case or ground. See --list.")
    if not cases:
        raise click.UsageError("no case is left: each takes longer than --max-seconds.")
    if is_list:
        rows = [
            {"case": case.id, "fact": case.fact, "source": case.source, "calls": case.calls, "seconds": case.seconds}
            for case in cases
        ]
        print_table(list(rows[0]), rows)
        return Status.OK
    if bool(endpoint_url) == bool(against):
        raise click.UsageError("give either --endpoint-url or --against.")
    if endpoint_url and (urlsplit(endpoint_url).hostname or "").endswith(
        (".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".api.aws")
    ):
        raise click.UsageError("that endpoint is AWS's own: use --against aws with --region.")
    if endpoint_url and "@" in urlsplit(endpoint_url).netloc:
        raise click.UsageError("give the endpoint without a user: SQS takes credentials from the environment.")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", queue_prefix):
        raise click.UsageError("--queue-prefix has 1 to 40 letters, digits, hyphens and underscores.")
    share = f"{len(cases)} of {len(find_cases())} cases"
    cost = f", which cost at most {cost_usd(cases):.4f} USD at the price of us-east-1, if each fails and is tried again"
    click.echo(f"{share}, at most {most_calls(cases)} calls{cost if is_aws else ''}", err=True)
    if is_aws and not yes:
        raise click.UsageError("AWS bills these calls to your account: agree with --yes.")
    if json_file and json_file != "-":
        try:
            Path(json_file).touch()
        except OSError as error:
            raise click.UsageError(f"--json {json_file} cannot be written: {error.strerror}.") from None
    with _endpoint(endpoint_url, against) as url:
        try:
            kit = Kit(make_client(url, region, jobs), queue_prefix, is_aws=is_aws)
        except (*NO_ANSWER, ValueError) as error:  # of an endpoint that is no URL, a region or a profile
            hint = " Give --region, or set AWS_DEFAULT_REGION." if isinstance(error, NoRegionError) else ""
            raise click.UsageError(f"there is no client for it: {error}{hint}") from None
        results = _run(cases, kit, jobs)
    if results is None:
        return Status.REFUSED
    text = report(against or str(endpoint_url), results)
    if json_file == "-":
        click.echo(text, nl=False)
    else:
        _print(results)
        if json_file:
            Path(json_file).write_text(text, encoding="utf-8")
    return Status.OK if all(each.verdict == HOLDS for each in results) and not kit.left else Status.PROBLEM


@contextmanager
def _endpoint(url: str | None, against: str | None) -> Iterator[str | None]:
    if against != "local":
        yield url
        return
    try:
        from sqs_fifo_spark.local.server import LocalQueueServer
    except ModuleNotFoundError:
        raise click.ClickException("the local queue needs aiohttp: pip install '.[local]'") from None
    with LocalQueueServer() as server:
        yield server.endpoint_url


def _run(cases: Sequence[Case], kit: Kit, jobs: int) -> list[Result] | None:
    try:
        kit.client.list_queues(QueueNamePrefix=kit.prefix)
    except ClientError as error:
        print_error(
            f"the endpoint refuses to list queues ({code_of(error)}): look at credentials, region and permissions."
        )
        return None
    except NO_ANSWER as error:
        print_error(f"the endpoint gives no answer of SQS's: {type(error).__name__}: {str(error)[:200]}")
        return None
    try:
        with progress(is_shown=True) as track, kit.run(cases, jobs) as run:
            try:
                return list(track(run, "cases"))
            except KeyboardInterrupt:
                print_error("the queues are being deleted, which may take half a minute.")
                raise
    finally:
        for name in kit.left:
            print_error(f"the queue {name} may be left: delete it.")


def _print(results: Sequence[Result]) -> None:
    others = sorted((each for each in results if each.verdict != HOLDS), key=lambda each: each.case.id)
    for result in others:
        print_line(f"{result.verdict}: {result.case.id}", "bold red" if result.verdict == DIFFERS else "yellow")
        print_line(f"  {result.case.fact} ({result.case.source})")
        if result.expected:
            print_line(f"  expected: {result.expected}")
        print_line(f"  seen: {result.seen}")
    counts = Counter(result.verdict for result in results)
    print_line(", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]))
