"""Check that modules import only from lower layers, and foreign packages only where they belong.

`python .ci/layers.py [PACKAGE_DIRECTORY]` prints one line for each violation and exits 1 if there is one. All
imports count: lazy ones, and those for type checking only.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "sqs_fifo_spark"

# Lowest first. A module may import from the lines above its own, not from its own line.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "clock"),
    ("option_rules",),
    ("options", "message", "offset"),
    ("retry", "refusal", "aws", "segment", "ledger", "schema"),
    ("calls", "store"),
    ("queue", "outgoing", "sink_schema"),
    ("journal", "lease", "sink_queue"),
    ("settling", "verdict", "sent_record"),
    ("partition", "sender"),
    ("epoch", "opening", "planning", "sink"),
    ("available_now",),
    ("driver",),
    ("reader", "writer", "ordering"),  # what Spark and its users call: adaptors of those above
    ("datasource",),
    ("registration",),
    ("cli", "__init__", "__main__"),
)
LAYER_OF = {module: number for number, layer in enumerate(LAYERS) for module in layer}

# The local queue stands beside the layers. These two are programs of their own.
LOCAL = "local"
DEMO, BENCH = "local.demo", "local.bench"
LOCAL_MAY_IMPORT = {"clock"}

# The modules in which a foreign package may be imported; "local" stands for all of local/.
ONLY_IN: dict[str, set[str]] = {
    "boto3": {"aws", DEMO, BENCH},
    "botocore": {"aws", "calls", DEMO, BENCH},
    "obstore": {"store"},
    "pyspark": {"schema", "sink_schema", "reader", "writer", "ordering", "datasource", "registration", DEMO},
    "time": {"clock"},
    "aiohttp": {LOCAL},
}


def module_name(path: Path, package: Path) -> str:
    """Return a file's name inside the package: `queue`, `local.server`, `local` for its `__init__`."""
    parts = path.relative_to(package).with_suffix("").parts
    if len(parts) > 1 and parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts)


def imports(path: Path, package: Path) -> Iterator[tuple[int, str]]:
    """Yield line and absolute dotted name of all that a file imports, relative imports resolved."""
    here = (PACKAGE, *path.relative_to(package).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: len(here) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                # Of `from package import x`, x may be a module; of `from package.m import x`, m is one.
                yield node.lineno, f"{source}.{alias.name}"


def own_module(dotted: str, modules: set[str]) -> str | None:
    """Return which of our modules the dotted name means, or None if it is foreign."""
    first, _, rest = dotted.partition(".")
    if first != PACKAGE:
        return None
    while rest and rest not in modules:
        rest = rest.rpartition(".")[0]
    return rest or "__init__"


def is_local(module: str) -> bool:
    return module == LOCAL or module.startswith(f"{LOCAL}.")


def refusal(module: str, target: str) -> str | None:
    """Return why our `module` must not import our `target`, or None if it may."""
    if is_local(target):
        if is_local(module) or LAYER_OF.get(module) == len(LAYERS) - 1:
            return None
        return "only the top layer and local/ itself may import local/"
    if is_local(module):
        if target in LOCAL_MAY_IMPORT or module == DEMO:
            return None
        return f"local/ may import only {', '.join(sorted(LOCAL_MAY_IMPORT))}"
    own, other = LAYER_OF.get(module), LAYER_OF.get(target)
    if own is None or other is None:
        unknown = module if own is None else target
        return f"{unknown} has no layer; give it one in .ci/layers.py"
    if other < own:
        return None
    return f"{target} is in layer {other}, {module} in layer {own}: import only from lower layers"


def violations(package: Path) -> list[str]:
    """Return one line for each import in the package that the layers forbid."""
    paths = sorted(package.rglob("*.py"))
    modules = {module_name(path, package) for path in paths}
    found = []
    for path in paths:
        module = module_name(path, package)
        place = path.relative_to(package.parent)
        if not is_local(module) and module not in LAYER_OF:
            found.append(f"{place}:1: {module} has no layer; give it one in .ci/layers.py")
            continue
        for line, dotted in imports(path, package):
            target = own_module(dotted, modules)
            if target is not None:
                reason = None if target == module else refusal(module, target)
            else:
                foreign = dotted.partition(".")[0]
                allowed = ONLY_IN.get(foreign)
                if allowed is None or module in allowed or (LOCAL in allowed and is_local(module)):
                    continue
                reason = f"{foreign} belongs only in {', '.join(sorted(allowed))}"
            if reason is not None:
                found.append(f"{place}:{line}: {module} imports {dotted}: {reason}")
    return sorted(set(found))


def main(arguments: list[str]) -> int:
    package = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent / PACKAGE
    found = violations(package)
    print("\n".join(found) if found else "layers: every import goes to a lower layer")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
