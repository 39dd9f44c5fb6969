"""Instructions an instance under valgrind, which no load of the machine can change: `python benches/instructions.py`.

Runs the example `life` of shoal-core (its arguments: the number of instances, and of those in a chunk) with two
numbers of instances and divides the difference, so that starting up does not count. Chunks are of a fixed size, and so
small that the number of looks at the clock is fixed too: time is stretched under valgrind, and what follows it would
differ from run to run. Two sizes of chunk tell an instance's share from a chunk's.
Says so and ends well where valgrind is not installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FEW, MANY = 100_000, 2_100_000
SMALL, LARGE = 5, 17
# A machine that is busy elsewhere only adds: a thread that was put aside looks at the clock more often.
ROUNDS = 3


def instructions(program: Path, count: int, chunk: int) -> int:
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command += [str(program), str(count), str(chunk)]
    counts = []
    for _ in range(ROUNDS):
        told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
        found = re.search(r"I\s+refs:\s+([\d,]+)", told)
        if found is None:
            raise RuntimeError(f"valgrind gave no count:\n{told}")
        counts.append(int(found[1].replace(",", "")))
    return min(counts)


def whole_life(program: Path, chunk: int) -> float:
    """Instructions an instance, from creation to the gate, in chunks of this size."""
    return (instructions(program, MANY, chunk) - instructions(program, FEW, chunk)) / (MANY - FEW)


def main() -> int:
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not installed (Debian, Ubuntu: apt install valgrind)")
        return 0
    subprocess.run(
        ["cargo", "build", "--quiet", "--release", "-p", "shoal-core", "--example", "life"], check=True, cwd=ROOT
    )
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    program = ROOT / target / "release/examples/life"
    small, large = whole_life(program, SMALL), whole_life(program, LARGE)
    a_chunk = (small - large) / (1 / SMALL - 1 / LARGE)
    print(f"whole life of an instance in chunks of {LARGE}: {large:.2f} instructions")
    print(f"of these its own: {large - a_chunk / LARGE:.2f}; a chunk: {a_chunk:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
