"""The command line: argument parsing and printing only. Heavy imports happen inside the commands."""

from .app import main

__all__ = ["main"]
