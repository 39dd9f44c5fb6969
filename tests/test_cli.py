"""The command line, what it prints and draws, the progress bars, and the `dev` script where something is missing."""

from __future__ import annotations

import gc
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import weakref
import xml.etree.ElementTree as tree
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from shoal import _progress, bench, cli

ROOT = Path(__file__).resolve().parent.parent
SHOAL = [sys.executable, "-m", "shoal"]

ROWS = [
    bench.Row(bench.LIFE, "1,000 instances", 1_000, "ticks", 7.5, bench.LOOP, 4.8),
    bench.Row(bench.LIFE, "1,000 instances", 1_000, "ticks", 7.5, bench.PAR_ITER, 39.0),
    bench.Row(bench.FUNCTION, "1,000 instances", 1_000, "ns", 55.0, bench.EXECUTOR, 20_700.0),
    bench.Row(bench.BUDGET, "life, 1,000", 1_000, "ticks", 7.5, bench.LOOP, 4.8, *bench.judged(7.5, "<=", 8)),
    bench.Row(bench.BUDGET, "memory <&>", 10, "bytes", 32.0, bench.FUTURES, 1_856.0, *bench.judged(32, "<=", 16)),
]
FACTS = {"shoal": "0.1.0", "python": "3.11.7", "processor": "a <fast> one", "cores": 2, "ns_per_tick": 0.39}


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == "shoal 0.1.0\n"


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["bench", "--plot", "/no/such/folder/x.svg"]])
def test_a_wrong_call_is_told_before_anything_runs(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_ctrl_c_ends_a_command_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "run", interrupted)
    assert cli.main(["bench"]) == 130


def test_the_table_has_every_row_beside_its_peer() -> None:
    lines = bench.table(ROWS).splitlines()
    assert [line for line in lines if "4.8 plain loop" in line and "1.56x slower" in line and "7.5 ticks" in line]
    assert [line for line in lines if "39 rayon par_iter" in line and "5.2x faster" in line]
    assert [line for line in lines if "376x faster" in line]
    assert [line for line in lines if "<= 8" in line and line.endswith("met")]
    assert [line for line in lines if "58x less" in line and "<= 16" in line and line.endswith("MISS")]
    assert bench.LIFE in lines


def test_what_is_missed_is_told_with_how_far_off() -> None:
    told = bench.verdict(ROWS)
    assert told == "1 of 2 targets met\n  missed by 2x: memory <&>: 32 bytes\n    58x less than futures"


@pytest.mark.parametrize(
    ("value", "sign", "limit", "met", "off"),
    [(8, "<=", 8, True, 1), (100, "<", 100, False, 1), (40, ">", 80, False, 2), (0, ">", 80, False, float("inf"))],
)
def test_a_bound_is_met_or_missed_by_so_much(value: float, sign: str, limit: float, met: bool, off: float) -> None:
    assert bench.judged(value, sign, limit)[1:] == (met, off)


def test_the_chart_is_well_formed_and_names_every_peer() -> None:
    chart = bench.chart(ROWS, FACTS)
    words = " ".join(tree.fromstring(chart).itertext())
    for word in (bench.LOOP, bench.PAR_ITER, bench.EXECUTOR, bench.OURS, "a <fast> one"):
        assert word in words


def test_bench_measures_prints_and_writes(tmp_path: Path) -> None:
    command = [*SHOAL, "bench", "--quick", "--plot", "chart.svg", "--json", "figures.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert " targets met" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert {row["group"] for row in figures["rows"]} == {
        bench.LIFE,
        bench.CREATION,
        bench.FUNCTION,
        bench.MEMORY,
        bench.TARGETS,
        bench.BUDGET,
    }
    # Instances of a kernel need no memory of their own: what is pending has none, what ended alike is kept as ranges.
    assert all(row["figure"] > 0 or "native, " in row["what"] for row in figures["rows"])
    assert all(row["peer"] and row["peer_figure"] > 0 for row in figures["rows"])
    assert all(row["ok"] is None or row["target"] for row in figures["rows"])
    tree.parse(tmp_path / "chart.svg")


def test_the_chart_leaves_out_what_was_not_measured() -> None:
    words = " ".join(tree.fromstring(bench.chart(ROWS[-1:], FACTS)).itertext())
    assert "Time for each instance" in words
    assert "kernel" not in words


def test_the_demonstration_runs_without_a_terminal() -> None:
    done = subprocess.run([*SHOAL, "demo"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "the same values" in done.stdout
    assert done.stdout.count("fired: ") == 3
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Watched:
    """A set as a bar sees it, under the test's control."""

    def __init__(self, name: str, total: int, state: str = "running") -> None:
        self.name, self.total, self.state = name, total, state
        self.gate = SimpleNamespace(target=total)
        self.counts = self.of(0, 0)

    def of(self, completed: int, failed: int, cancelled: int = 0) -> SimpleNamespace:
        left = self.total - completed - failed - cancelled
        return SimpleNamespace(
            pending=left, running=0, completed=completed, failed=failed, cancelled=cancelled, timed_out=0
        )

    def finish(self, completed: int, failed: int) -> None:
        self.counts = self.of(completed, failed)
        self.state = "fired"

    def __len__(self) -> int:
        return self.total


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> _progress.Board:
    fresh = _progress.Board()
    monkeypatch.setattr(_progress, "_board", fresh)
    return fresh


def use_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called in the test itself: between fixture and test pytest puts its own stderr in place."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return stream


def until(condition: Callable[[], bool]) -> None:
    """Waits for a thing to become true; that it never does is a failure after ten seconds."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def test_a_bar_follows_its_set_and_ends_with_a_last_line(
    board: _progress.Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = use_terminal(monkeypatch)
    instances = Watched("fetch", 500)
    _progress.watch(instances)
    instances.counts = instances.of(100, 3)
    until(lambda: "103/500" in terminal.getvalue())
    instances.finish(489, 11)
    until(lambda: board.thread is None)
    [last] = [line for line in terminal.getvalue().splitlines() if "gate fired" in line]
    assert "fetch" in last
    assert "500/500  100%  gate fired  11 failed" in last
    assert not board.bars


def test_two_bars_stand_below_each_other(board: _progress.Board, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    first, second = Watched("first", 10), Watched("second", 20)
    _progress.watch(first)
    _progress.watch(second)
    until(lambda: "\x1b[1A" in terminal.getvalue())
    first.finish(10, 0)
    second.finish(20, 0)
    _progress.refresh()
    assert not board.bars


def test_no_bar_where_output_is_no_terminal(board: _progress.Board, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    _progress.watch(Watched("quiet", 5))
    assert board.thread is None
    assert stream.getvalue() == ""


def test_a_bar_does_not_keep_an_open_set_alive(board: _progress.Board, monkeypatch: pytest.MonkeyPatch) -> None:
    use_terminal(monkeypatch)
    instances = Watched("gone", 5, "active")
    gone = weakref.ref(instances)
    _progress.watch(instances)
    assert board.thread is not None
    del instances
    gc.collect()
    until(lambda: gone() is None and board.thread is None)


def test_a_long_name_and_a_narrow_terminal_fit_on_one_line() -> None:
    bar = _progress.Bar(Watched("n" * 200, 10))
    assert all(len(bar.line(_progress.Look(columns))) < columns for columns in (20, 40, 80, 120))


def test_a_bar_left_over_does_not_delay_the_exit() -> None:
    code = (
        "import sys, time; from shoal import _progress; sys.stderr.isatty = lambda: True\n"
        "class Endless:\n"
        "    name, state = 'endless', 'waiting'\n"
        "    class counts: pending = 5; running = completed = failed = cancelled = timed_out = 0\n"
        "    def __len__(self): return 5\n"
        "kept = Endless(); _progress.watch(kept)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=20, env={**os.environ, "TERM": "xterm"}
    )
    assert done.returncode == 0
    assert "endless" in done.stderr


def tools(folder: Path, *names: str) -> dict[str, str]:
    """An environment whose PATH has only these programs."""
    for name in names:
        found = shutil.which(name)
        assert found, name
        (folder / name).symlink_to(found)
    (folder / "python3").symlink_to(sys.executable)
    return {"PATH": str(folder), "HOME": str(folder)}


@pytest.mark.parametrize("command", ["demo", "test"])
def test_dev_says_that_cargo_is_missing_and_how_to_get_it(command: str, tmp_path: Path) -> None:
    environment = tools(tmp_path, "bash", "sed", "head", "dirname", "cat")
    done = subprocess.run(["bash", str(ROOT / "dev"), command], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "missing: cargo (Rust " in done.stderr
    assert "rustup.rs" in done.stderr
    assert "missing: a C linker" in done.stderr


def test_dev_refuses_an_old_python(tmp_path: Path) -> None:
    environment = tools(tmp_path, "bash", "sed", "head", "dirname", "cat")
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = subprocess.run(
        ["bash", str(ROOT / "dev"), "build"],
        env={**environment, "PYTHON": str(old)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert f"PYTHON={old} is no Python 3.11 or newer" in done.stderr


def test_dev_tells_its_commands() -> None:
    done = subprocess.run(["bash", str(ROOT / "dev"), "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    for command in ("demo", "test", "build", "bench", "soak"):
        assert f"\n  {command} " in done.stdout
