"""The errors cfnade raises on purpose; the command line prints each as one line.

CfnadeError
+-- DataError           the input cannot be used as it is
+-- ConfigError         a setting is invalid
+-- MissingExtraError   an optional dependency is not installed
+-- TrainingError       training cannot go on
+-- ClusterError        a job on a cluster failed
+-- ArtifactError       a saved model or checkpoint cannot be used
"""

from __future__ import annotations

_START, _END = 1_600, 400  # characters that are shown of a longer message


class CfnadeError(Exception):
    """Base of all errors here; messages say what is wrong, where, and what to do.

    A name or value in a file may have any length, so the middle of a long message is left out.
    """

    def __str__(self) -> str:
        """The message."""
        text = super().__str__()
        is_short = len(text) <= _START + _END
        return text if is_short else f"{text[:_START]} [...] {text[-_END:]}"


class DataError(CfnadeError, ValueError):
    """The input cannot be used as it is."""


class ConfigError(CfnadeError, ValueError):
    """A setting is invalid, alone or together with another."""


class MissingExtraError(CfnadeError, ImportError):
    """An optional dependency is not installed; without an extra, it is installed by its name."""

    def __init__(self, package: str, extra: str | None, purpose: str) -> None:
        first = package.partition(" ")[0]
        command = f"pip install {first}" if extra is None else f"pip install 'cfnade[{extra}]'"
        super().__init__(f"{purpose} needs {package}; install it with: {command}")


class TrainingError(CfnadeError, RuntimeError):
    """Training cannot go on."""


class ClusterError(CfnadeError, RuntimeError):
    """A job on a cluster failed."""


class ArtifactError(CfnadeError, ValueError):
    """A saved model or checkpoint is missing, damaged, or of another format."""


def n_of(n: int, noun: str) -> str:
    """A number with its noun, for messages: `1 user`, `1,234 users`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
