"""Digests: what is told apart, where it stands, and how many fit into how much memory."""

from __future__ import annotations

import random
import sys

import pytest

from sqs_fifo_spark.sink.digests import (
    LEAF_BYTES,
    WIDTH,
    Digests,
    digest_of,
    pieces,
    shard,
    sorted_once,
    spark_hash,
    split,
)

pytestmark = pytest.mark.law("sink-3", "sink-5")


def many(count: int, *, seed: int = 0, group: str | None = None) -> list[bytes]:
    dice = random.Random(seed)
    return sorted(digest_of("id", group or f"g{number}", dice.randbytes(8).hex()) for number in range(count))


@pytest.mark.parametrize(("text", "number"), [("Spark", 228093765), ("g1", 3481366665), ("é✓abc", 788103523)])
def test_the_hash_is_sparks(text: str, number: int) -> None:
    """As Spark 4.3 gives them: `SELECT hash('Spark')`, without a sign."""
    assert spark_hash(text) == number


@pytest.mark.parametrize("partitions", [2, 4, 8, 40, 200])
def test_the_shards_of_a_partition_stand_side_by_side(partitions: int) -> None:
    """Of what is sorted by digest, a task needs an eighth in one piece, or its part, if that is more."""
    share = min(partitions, 8)
    groups = [f"group-{number}" for number in range(4_000)]
    hashes = {group: spark_hash(group) for group in groups}
    signed = {group: number - (number >> 31 << 32) for group, number in hashes.items()}
    mine = [digest_of("id", group, "1") for group in groups if signed[group] % partitions == 3 % partitions]
    first, last = min(mine), max(mine)
    assert sum(first <= digest_of("id", group, "1") <= last for group in groups) <= len(groups) / share * 1.2
    assert len(mine) > 4


@pytest.mark.parametrize("group", [None, "hot"], ids=["many groups", "one group"])
@pytest.mark.parametrize("in_bulk", [True, False])
def test_what_was_added_is_there_and_nothing_else(group: str | None, in_bulk: bool) -> None:
    """Beyond what one leaf holds, several times over, and whatever is added twice."""
    known, others = many(20_000, group=group), many(2_000, seed=1, group=group)
    digests = Digests()
    for part in (known[::2], known[1::2], known[::3]):
        if in_bulk:
            digests.extend(b"".join(part))
        else:
            assert {digests.add(digest) for digest in part} == {part != known[::3]}
    assert all(digest in digests for digest in known)
    assert not any(digest in digests for digest in others)
    assert all(len(leaf) <= LEAF_BYTES for leaf in digests._leaves.values())


def test_the_end_of_one_digest_and_the_beginning_of_the_next_is_none() -> None:
    """They stand one behind the other."""
    digests = Digests()
    digests.extend(bytes(2 * WIDTH))
    assert bytes(WIDTH) in digests
    first, second = b"\0\0" + b"a" * 22, b"\0\0" + b"b" * 22
    mixed = (first + second)[1 : 1 + WIDTH]
    digests = Digests()
    digests.extend(first + second)
    assert mixed[:2] == b"\0a"
    digests._leaves["006"] = digests._leaves["000"]  # where it is looked for
    assert mixed in first + second
    assert mixed not in digests


def test_digests_take_little_memory() -> None:
    """Not an object each: 32 bytes at most, also while they are added one by one."""
    digests = Digests()
    known = many(100_000)
    for digest in known:
        digests.add(digest)
    taken = sum(map(sys.getsizeof, (*digests._leaves, *digests._leaves.values()))) + sys.getsizeof(digests._leaves)
    assert taken < 32 * len(known)


def one_leaf() -> tuple[Digests, list[bytes]]:
    """Return digests of one group that fill a leaf, as they are held and as they are."""
    known, digests = many(LEAF_BYTES // WIDTH, group="hot"), Digests()
    digests.extend(b"".join(known))
    return digests, known


def test_who_asks_while_a_leaf_is_split_finds_what_was_there() -> None:
    """Other threads ask at any time: a row that seems new would be sent again."""

    class Watched(dict[str, bytearray]):
        def __setitem__(self, key: str, leaf: bytearray) -> None:
            super().__setitem__(key, leaf)
            assert all(digest in digests for digest in before)

    digests, before = one_leaf()
    (leaf,) = digests._leaves.items()
    digests._leaves = Watched([leaf])
    for digest in many(100, seed=1, group="hot"):
        digests.add(digest)
    assert len(digests._leaves) > 2


def test_pieces_share_no_shard_and_hold_each_digest_once() -> None:
    """The reader of a shard reads one piece."""
    known = many(1_000)
    made = list(pieces(sorted_once(b"".join(known[::-1] + known)), 50 * WIDTH))
    assert [digest for piece in made for digest in split(piece)] == known
    shards = [{shard(digest) for digest in split(piece)} for piece in made]
    assert sum(map(len, shards)) == len(set.union(*shards))
    assert all(len(piece) >= 50 * WIDTH for piece in made[:-1])
    assert len(made) > 10


def test_a_leaf_that_is_split_while_it_is_looked_up_is_still_searched() -> None:
    """Another thread's look may split it just then: what is recorded was never new."""

    class Hasty(dict[str, bytearray]):
        def get(self, key: str, default: bytearray | bytes | None = None) -> bytearray | bytes | None:  # type: ignore[override]
            leaf = super().get(key, default)
            if more:
                digests.extend(more.pop())
            return leaf

    digests, before = one_leaf()
    more: list[bytes] = []
    digests._leaves = Hasty(digests._leaves)
    more.append(b"".join(many(100, seed=1, group="hot")))
    assert before[0] in digests
    assert len(digests._leaves) > 2
