"""Instructions an instance under valgrind, which no load of the machine can change: `python benches/instructions.py`.

Runs the example `life` of shoal-core (its argument: the number of instances) with two sizes and divides the
difference, so that starting up does not count. Says so and ends well where valgrind is not installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SMALL, LARGE = 100_000, 300_000


def instructions(program: Path, count: int) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(program), str(count)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    found = re.search(r"Collected : (\d+)", told)
    if found is None:
        raise RuntimeError(f"valgrind gave no count:\n{told}")
    return int(found[1])


def main() -> int:
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not installed (Debian, Ubuntu: apt install valgrind)")
        return 0
    if not (ROOT / "rust/core/examples/life.rs").exists():
        print("skipped: rust/core has no example `life`")
        return 0
    subprocess.run(
        ["cargo", "build", "--quiet", "--release", "-p", "shoal-core", "--example", "life"], check=True, cwd=ROOT
    )
    program = ROOT / "target/release/examples/life"
    each = (instructions(program, LARGE) - instructions(program, SMALL)) / (LARGE - SMALL)
    print(f"whole life of an instance: {each:.2f} instructions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
