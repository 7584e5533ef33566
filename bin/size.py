"""Print the lines of code of each package: without blank lines, docstrings and comments."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of_code(source: str) -> int:
    """Count the lines that are neither blank nor part of a docstring nor a comment."""
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            documentation |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return sum(
        number not in documentation and bool(line.strip()) and not line.strip().startswith("#")
        for number, line in enumerate(source.splitlines(), 1)
    )


def main() -> int:
    """Print the sizes: for each package, then in all."""
    for top, depth in (("streamvault", 2), ("tests", 2), ("testkit", 2), ("benchmarks", 1)):
        code, files = Counter[str](), Counter[str]()
        # the generated stubs are not committed
        listed = subprocess.run(
            ["git", "ls-files", f"{top}/*.py"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        for file in listed.stdout.splitlines():
            package = "/".join(Path(file).parent.parts[:depth])
            code[package] += lines_of_code((ROOT / file).read_text())
            files[package] += 1
        for package in sorted(code):
            print(f"{package:32} {code[package]:7,} lines {files[package]:4} files")
        if len(code) > 1:
            print(f"{top + ', in all':32} {code.total():7,} lines {files.total():4} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
