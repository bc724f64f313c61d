"""Say in one line what is missing before anything is installed (runs on any old Python)."""

import sys


def main():
    """Return the complaint, or None if all is well."""
    if sys.version_info < (3, 10):  # noqa: UP036  (old ones must hear it)
        found = ".".join(str(part) for part in sys.version_info[:2])
        return "SlimReID needs Python 3.10 or newer, this is " + found + "; try: make PYTHON=python3.12 ..."
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        return "the Python module venv is missing; install it, e.g.: apt-get install python3-venv"
    return None


if __name__ == "__main__":
    sys.exit(main())
