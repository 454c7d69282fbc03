"""The command line: one verb per file, no tensor arithmetic; heavy imports happen inside the verbs."""

from site_interp.cli.app import main

__all__ = ["main"]
