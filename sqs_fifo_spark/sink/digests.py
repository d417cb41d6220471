"""Digests: they set a row apart from others in 24 bytes, and many stand in little memory.

    2 bytes    the shard: of the group's hash, by which Spark's shuffle deals groups to partitions
    22 bytes   the first of the SHA-256 of group and id, or of group and body; and of the queue, if a row names another
               one than the option's

Spark gives a group to the partition `hash % n`. The shard is the low end of that hash with its bits in reverse order:
so if n has a factor of 2, 4, 8 ..., the shards of one partition stand side by side among sorted digests.
"""

from __future__ import annotations

import functools
import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

WIDTH = 24
"""Bytes of a digest."""
SHARD_WIDTH = 2
LEAF_BYTES = 24 << 10
"""The most bytes of digests that stand together: a look-up searches them from the first to the last."""
_FIRST_NIBBLES = 3
_SPLIT = bytearray()
"""Stands for a leaf that has become several. Never added to."""
_MASK = 0xFFFFFFFF


def digest_of(kind: str, group: str, key: str) -> bytes:
    """Return the digest of a message of `group` by `key`, which is its id or its body, as `kind` says.

    `kind` names the queue, too, if that is not the option's.
    """
    # Neither kind nor group holds a line break, so nothing else gives the same bytes.
    return _shard_of(group) + hashlib.sha256(f"{kind}\n{group}\n{key}".encode()).digest()[: WIDTH - SHARD_WIDTH]


def mark_of(what: str) -> bytes:
    """Return bytes to record like a row's digest, which are no row's. All are in one shard, so one look finds all."""
    return b"\xff" * SHARD_WIDTH + hashlib.sha256(what.encode()).digest()[: WIDTH - SHARD_WIDTH]


def shard(digest: bytes) -> str:
    return digest[:SHARD_WIDTH].hex()


def sorted_once(data: bytes) -> bytes:
    """Return the digests of `data`, which stand one behind the other, sorted and each once."""
    whole = pa.FixedSizeBinaryArray.from_buffers(pa.binary(WIDTH), len(data) // WIDTH, [None, pa.py_buffer(data)])
    once = pc.unique(whole)
    in_order: bytes = once.take(pc.array_sort_indices(once)).buffers()[1].to_pybytes()
    return in_order


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Yield sorted digests in pieces of `size` bytes or more that share no shard; the last one may be shorter."""
    begin, count, least = 0, len(data) // WIDTH, max(1, -(-size // WIDTH))

    def shard_at(index: int) -> str:
        return shard(data[index * WIDTH : (index + 1) * WIDTH])

    while begin < count:
        last = min(begin + least, count) - 1
        end = bisect_right(range(count), shard_at(last), last, key=shard_at)
        yield data[begin * WIDTH : end * WIDTH]
        begin = end


def split(data: bytes) -> Iterator[bytes]:
    return (data[at : at + WIDTH] for at in range(0, len(data), WIDTH))


class Digests:
    """A set of digests, in about 27 bytes each. One thread adds; others may ask at the same time.

    They stand one behind the other in leaves, by how they begin in hexadecimal. A leaf that grows long is split by one
    more digit.
    """

    def __init__(self) -> None:
        self._leaves: dict[str, bytearray] = {}

    def __contains__(self, digest: bytes) -> bool:
        name, length = digest.hex(), _FIRST_NIBBLES
        # Each leaf is looked up once: another thread may split it meanwhile, and then this one is still whole.
        while (leaf := self._leaves.get(name[:length], b"")) is _SPLIT:
            length += 1
        return _is_in(leaf, digest)

    def add(self, digest: bytes) -> bool:
        """Add it; return False if it was there."""
        name, length = digest.hex(), _FIRST_NIBBLES
        while (leaf := self._leaves.get(key := name[:length], b"")) is _SPLIT:
            length += 1
        if _is_in(leaf, digest):
            return False
        self._append(key, digest)
        return True

    def extend(self, data: bytes) -> None:
        """Add sorted digests that stand one behind the other. Those already there may take room twice for a while.

        Much faster than one by one: those that begin alike are copied at once.
        """
        begin, count = 0, len(data) // WIDTH

        def first_nibbles(index: int) -> str:
            return data[index * WIDTH : index * WIDTH + 2].hex()[:_FIRST_NIBBLES]

        while begin < count:
            key = first_nibbles(begin)
            step = 1  # a small object has few of each leaf, a large one many
            while begin + step < count and first_nibbles(begin + step) == key:
                step *= 2
            end = bisect_right(range(count), key, begin + step // 2, min(begin + step, count), key=first_nibbles)
            if self._leaves.get(key) is _SPLIT:
                for digest in split(data[begin * WIDTH : end * WIDTH]):
                    self.add(digest)
            else:
                self._append(key, data[begin * WIDTH : end * WIDTH])
            begin = end

    def _append(self, key: str, data: bytes) -> None:
        leaf = self._leaves.setdefault(key, bytearray())
        leaf += data
        if len(leaf) > LEAF_BYTES:
            self._place(key, sorted(set(split(bytes(leaf)))))

    def _place(self, key: str, digests: Iterable[bytes]) -> None:
        """Make a leaf of them, or several. The old one stays until all of these are there: somebody may ask now."""
        data = b"".join(digests)
        if len(data) <= LEAF_BYTES // 2:
            self._leaves[key] = bytearray(data)
            return
        for name, alike in groupby(split(data), lambda digest: digest.hex()[: len(key) + 1]):
            self._place(name, alike)
        self._leaves[key] = _SPLIT


def _is_in(leaf: bytes | bytearray, digest: bytes) -> bool:
    at = leaf.find(digest)
    while at > 0 and at % WIDTH:  # the end of one and the beginning of another
        at = leaf.find(digest, at + 1)
    return at >= 0


@functools.lru_cache(maxsize=4_096)
def _shard_of(group: str) -> bytes:
    bits = SHARD_WIDTH * 8
    return int(f"{spark_hash(group) % (1 << bits):0{bits}b}"[::-1], 2).to_bytes(SHARD_WIDTH, "big")


def spark_hash(text: str) -> int:
    """Return Spark's `hash(text)`, as a number without a sign: Murmur3 with seed 42, the last bytes one by one."""
    data = text.encode()
    whole = len(data) & ~3
    words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, whole, 4)]
    words += [byte - (byte >> 7 << 8) & _MASK for byte in data[whole:]]
    mixed = 42
    for word in words:
        word = word * 0xCC9E2D51 & _MASK
        mixed ^= (word << 15 | word >> 17) * 0x1B873593 & _MASK
        mixed = ((mixed << 13 | mixed >> 19) & _MASK) * 5 + 0xE6546B64 & _MASK
    mixed ^= len(data)
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _MASK
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _MASK
    return mixed ^ mixed >> 16
