"""Breaks the core on purpose, in one place at a time, and tells which test sees it: `./dev mutants [WORDS]`.

A mutant that no test sees is a hole in the suite. Words choose those mutants whose title has one of them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
HERE = ROOT / "target" / "mutants"
SOURCE = Path("rust/core/src")
LIMITS = {"tests": 180, "shuttle": 180, "loom": 900}
"""Seconds for a suite, building included: a mutant that hangs is seen too."""


@dataclass(frozen=True)
class Mutant:
    """One place to break, and the suite that has to see it."""

    title: str
    file: str
    old: str
    new: str
    suite: str = "tests"


MUTANTS = [
    Mutant(
        "flip an ordering: a settling releases nothing",
        "tally.rs",
        "self.0.fetch_add(step, Ordering::AcqRel)",
        "self.0.fetch_add(step, Ordering::Relaxed)",
        "loom",
    ),
    Mutant(
        "flip an ordering: who reads the decision acquires nothing",
        "verdict.rs",
        "let word = self.word.load(Ordering::Acquire);",
        "let word = self.word.load(Ordering::Relaxed);",
        "loom",
    ),
    Mutant(
        "drop the creation token",
        "tally.rs",
        "Snapshot::new(0, count, open)",
        "Snapshot::new(0, count, open && count > MAX_INSTANCES)",
        "loom",
    ),
    Mutant(
        "fire on >= every time: a decided gate can be decided again",
        "verdict.rs",
        "while word & DECISION == 0 {",
        "while word & DECISION == 0 || bits != 0 {",
        "loom",
    ),
    Mutant(
        "fire one completion early",
        "join.rs",
        "&& now.completed() >= need.of(created)",
        "&& now.completed() + 1 >= need.of(created)",
    ),
    Mutant(
        "fire one completion late",
        "join.rs",
        "&& now.completed() >= need.of(created)",
        "&& now.completed() > need.of(created)",
    ),
    Mutant(
        "skip a settle: what is given back after the close",
        "set.rs",
        "                return;\n            }\n        }\n        self.settle(Settlement::cancelled(range));",
        "                return;\n            }\n        }\n        drop(Settlement::cancelled(range));",
        "loom",
    ),
    Mutant(
        "skip a settle: what the return list holds when the set closes",
        "set.rs",
        "taken.append(&mut returned.ranges);",
        "returned.ranges.clear();",
        "loom",
    ),
    Mutant(
        "skip a settle: a chunk that began too late",
        "executor.rs",
        "        if set.begin_chunk() {\n            let mut chunk",
        "        if !set.begin_chunk() {\n        } else if true {\n            let mut chunk",
        "shuttle",
    ),
    Mutant(
        "claim from an open set by a plain add",
        "set.rs",
        "if self.seal == Seal::AtOnce {\n            let end",
        "if self.seal != Seal::WhenIdle {\n            let end",
        "loom",
    ),
    Mutant(
        "begin a chunk after the close",
        "set.rs",
        "self.running.fetch_add(1, Ordering::AcqRel) & STOP == 0",
        "self.running.fetch_add(1, Ordering::AcqRel) != u32::MAX",
        "loom",
    ),
    Mutant(
        "look before saying that one waits",
        "verdict.rs",
        "            self.word.fetch_or(role, Ordering::AcqRel);\n"
        "            if let Some(result) = ready() {\n                return Some(result);\n            }\n",
        "            if let Some(result) = ready() {\n                return Some(result);\n            }\n"
        "            self.word.fetch_or(role, Ordering::AcqRel);\n",
        "loom",
    ),
    Mutant(
        "leave a set without a second look",
        "executor.rs",
        "if set.unclaimed() == 0 || !raise(&set.tickets, self.workers) {",
        "if set.unclaimed() != u32::MAX {",
        "loom",
    ),
    Mutant(
        "write a shared word of state bytes as if it were one's own",
        "column.rs",
        "words[0].fetch_or(pattern & mask, Ordering::AcqRel);",
        "words[0].store(pattern & mask, Ordering::Release);",
        "loom",
    ),
    Mutant(
        "forget to count a failure",
        "set.rs",
        "self.failures.fetch_add(step, Ordering::AcqRel);",
        "let _ = step;",
    ),
    Mutant(
        "judge a weighted join by what it still could lose",
        "set.rs",
        "words.spare.load(Ordering::Acquire) < 0",
        "words.spare.load(Ordering::Acquire) <= 0",
    ),
    Mutant(
        "let a body that panics take its chunk with it",
        "chunk.rs",
        "        let stop = range.end;\n        self.lose_range(range, InstanceState::Failed);",
        "        let stop = self.left().end;\n        self.lose_range(range.start..stop, InstanceState::Failed);",
    ),
]


def command(suite: str) -> tuple[list[str], dict[str, str]]:
    """How a suite runs, and with what in its environment."""
    cargo = ["cargo", "test", "--package", "shoal-core", "--release"]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(HERE / suite), "CARGO_TERM_COLOR": "never"}
    if suite == "tests":
        return [*cargo, "--lib", "--tests", "--no-fail-fast"], environment
    return [*cargo, "--lib"], {**environment, "RUSTFLAGS": f"--cfg {suite}"}


def first_to_see(suite: str) -> str:
    """The name of the first test that fails, or that hangs; empty if all pass."""
    words, environment = command(suite)
    process = subprocess.Popen(
        words,
        cwd=HERE / "source",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    is_over = threading.Event()

    def end() -> None:
        if not is_over.is_set():
            os.killpg(process.pid, signal.SIGKILL)

    clock = threading.Timer(LIMITS[suite], end)
    clock.start()
    started = time.monotonic()
    lines = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.append(line)
            failed = re.match(r"test (?:\S+::)?(\w+) \.\.\. FAILED", line)
            failed = failed or re.match(r"---- (?:\S+::)?(\w+) stdout ----", line)
            if failed:
                return failed[1]
    finally:
        if process.poll() is None:
            end()
        is_over.set()
        clock.cancel()
        process.wait()
    if time.monotonic() - started >= LIMITS[suite]:
        running = [line.split("::")[-1].split()[0] for line in lines if "has been running for" in line]
        return f"{running[-1] if running else 'a test'} (hangs)"
    if process.returncode and any("error" in line for line in lines):
        raise SystemExit("".join(lines[-40:]) + "\nthis mutant does not build")
    return ""


def main(words: list[str]) -> int:
    """Tries each mutant in a copy of the source."""
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.title for word in words)]
    missed = 0
    for mutant in chosen:
        copy = HERE / "source"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(ROOT / "rust", copy / "rust")
        for name in ("Cargo.toml", "Cargo.lock"):
            shutil.copy2(ROOT / name, copy / name)
        file = copy / SOURCE / mutant.file
        text = file.read_text()
        if text.count(mutant.old) != 1:
            raise SystemExit(f"{mutant.title}: {mutant.file} has {text.count(mutant.old)} such places, not one")
        file.write_text(text.replace(mutant.old, mutant.new))
        seen = first_to_see(mutant.suite)
        missed += not seen
        print(f"{mutant.title}\n    {f'seen by {mutant.suite}: {seen}' if seen else 'NOT SEEN'}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} mutants seen")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
