"""The entry point of the command line: run a command, turn errors into one line and an exit code."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext

from slimreid.cli.signals import handle_sigterm, ignore_further_stops, stop_code
from slimreid.errors import ConfigError, SlimReIDError
from slimreid.extras import missing_extra
from slimreid.files import naming


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0 good, 1 wrong data or a failed check, 2 wrong usage, 130 after Ctrl-C, 143 after SIGTERM.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    handle_sigterm()
    try:
        return _run(words)
    except ConfigError as error:
        from slimreid.cli.parser import command_words  # imported by now

        print_error(f"{error}\nsee '{command_words(words)} --help'")
        return 2
    except SlimReIDError as error:
        print_error(str(error))
        return 1
    except ImportError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        print_error(str(missing))
        return 1
    except KeyboardInterrupt as stop:
        if arguments is None:  # the process ends now
            ignore_further_stops()
        print_error("stopped")
        return stop_code(stop)
    except BrokenPipeError:  # e.g. piped into head
        sys.stderr.close()
        return 141
    except OSError as error:
        where = os.fsdecode(error.filename) if error.filename is not None else "writing or reading a file"
        print_error(f"{where}: {error.strerror or error}; choose another place or free this one")
        return 1


def _run(words: Sequence[str]) -> int:
    from slimreid.cli.parser import parse_words  # here, so that Ctrl-C while it is imported is handled

    call = parse_words(words)
    if isinstance(call, str):
        print(call.rstrip("\n"))
        return 0 if words else 2
    out = getattr(call.options, "out", None)
    with naming(out) if out is not None else nullcontext():  # for what names no file, such as a full disk
        return call.command.load()(call.options) or 0


def print_error(message: str) -> None:
    """Print `error: ...` on standard error, the first word in red where that is a terminal."""
    red, plain = ("\033[1;31m", "\033[0m") if sys.stderr.isatty() else ("", "")
    print(f"{red}error:{plain} {message}", file=sys.stderr)


if __name__ == "__main__":  # `python -m slimreid.cli.app` is the same as `slimreid`
    sys.exit(main())
