"""The command line, `shoal`: reads arguments and calls the module that does the work."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

__all__ = ["main"]


def _demo(_: argparse.Namespace) -> int:
    from shoal import demo

    demo.show()
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from shoal import bench

    return bench.run(quick=arguments.quick, plot=arguments.plot, json_file=arguments.json)


def _output_file(text: str) -> Path:
    """A file that can be written, looked at before minutes of measuring, not after."""
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"cannot write {text}: its folder does not exist, or it is one")
    return path


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="shoal", description="Runs one task many times and knows when enough are done.")
    top.add_argument("--version", action="version", version=f"shoal {version('shoal')}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    demo = commands.add_parser("demo", help="show what Shoal does, in under 15 seconds")
    demo.set_defaults(call=_demo)

    bench = commands.add_parser("bench", help="measure Shoal beside its peers on this machine")
    bench.add_argument("--quick", action="store_true", help="fewer sizes and repeats: seconds, not minutes")
    bench.add_argument("--plot", metavar="FILE.svg", type=_output_file, help="draw the figures as a chart")
    bench.add_argument("--json", metavar="FILE", type=_output_file, help="write the figures as JSON")
    bench.set_defaults(call=_bench)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives the exit code."""
    arguments = parser().parse_args(argv)
    try:
        code: int = arguments.call(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has gone (`shoal bench | head`): say nothing more, also not at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code
