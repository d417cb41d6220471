"""Workers of pytest-xdist share the files of tests so that none of them plays for long alone."""

from __future__ import annotations

import pytest

from tests.workers import costly_first, next_file, of_share

pytest_plugins = ["pytester"]

SPARK = ["tests/spark/test_a.py", "tests/spark/test_b.py"]
OTHERS = ["tests/unit/test_a.py", "tests/unit/test_b.py"]


@pytest.mark.parametrize(
    ("files", "of_spark", "expected"),
    [
        ([*SPARK, *OTHERS], True, SPARK[0]),
        ([*SPARK, *OTHERS], False, OTHERS[0]),
        ([*OTHERS, *SPARK], True, SPARK[0]),
        (OTHERS, True, OTHERS[0]),
        (SPARK, False, SPARK[0]),
    ],
)
def test_a_worker_plays_files_of_its_own_kind_and_helps_when_none_is_left(
    files: list[str], of_spark: bool, expected: str
) -> None:
    """In the order in which they are given."""
    assert next_file(files, of_spark) == expected


def test_files_with_costly_tests_come_first_and_stay_whole(pytester: pytest.Pytester) -> None:
    """A test that is long counts more than one that is slow; what costs nothing stays as it is."""
    of = "import pytest\n@pytest.mark.{}\ndef test_it(): pass\ndef test_more(): pass\n"
    plain = of.replace("@pytest.mark.{}\n", "")
    given = {"test_a": plain, "test_b": of.format("slow"), "test_c": of.format("long"), "test_d": plain}
    pytester.makepyfile(**given)
    pytester.makeini("[pytest]\nmarkers =\n    slow\n    long")
    items, _ = pytester.inline_genitems()
    assert [item.nodeid for item in costly_first(items)] == [
        f"test_{letter}.py::{name}" for letter in "cbad" for name in ("test_it", "test_more")
    ]


def test_shares_have_each_long_test_once_and_all_others_each(pytester: pytest.Pytester) -> None:
    """Files stay whole: what is set up for one is set up in one share."""
    text = "import pytest\n@pytest.mark.long\ndef test_it(): pass\ndef test_more(): pass\n"
    pytester.makepyfile(**{f"test_{letter}": text for letter in "abc"})
    pytester.makeini("[pytest]\nmarkers =\n    long")
    items, _ = pytester.inline_genitems()
    shares = [{item.nodeid for item in of_share(items, share)} for share in ("0/2", "1/2")]
    assert shares[0] ^ shares[1] == {f"test_{letter}.py::test_it" for letter in "abc"}
    assert shares[0] & shares[1] == {f"test_{letter}.py::test_more" for letter in "abc"}
    assert all(shares[0] ^ shares[1] ^ share for share in shares)
