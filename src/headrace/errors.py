"""Everything headrace raises on purpose.

    HeadraceError               somebody can act on it: the message says what, what was got, what to do
    ├── UsageError              a wrong name, value or combination, refused before anything starts
    │   ├── ConfigError         a setting of an algorithm
    │   ├── EnvError            an environment that cannot be made, or does not keep its protocol
    │   ├── LoopError           a loop, stage or cell that does not fit together
    │   └── PlanError           a distribution that cannot be right for this graph or machine
    ├── CallbackError           an exception in a callback of the user's own
    ├── CapacityError           not enough memory for what was asked
    ├── FragmentError           a process of a run that cannot do its work
    ├── PeerGone, OverdueError  a process that was waited for ended, or does not answer
    ├── DivergenceError         a loss, gradient or cell that is not finite any more: the run has failed, exit code 1
    └── CheckpointError         a run or checkpoint that cannot be read

The command line prints the message as one sentence and exits with 2, but for a DivergenceError with 1: nobody asked for
anything wrong. Any other exception is our bug and exits with 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HeadraceError(Exception):
    """Base of everything a user can act on."""


class UsageError(HeadraceError):
    """A wrong name, value or combination."""


class ConfigError(UsageError):
    """A setting that an algorithm refuses."""


class EnvError(UsageError):
    """An environment that cannot be made or that breaks its protocol."""


class LoopError(UsageError):
    """A loop, stage or cell that does not fit the others."""


class PlanError(UsageError):
    """A distribution that cannot be right for this graph or machine."""


class CallbackError(HeadraceError):
    """An exception in a callback."""


class CapacityError(HeadraceError):
    """Not enough memory for what was asked."""


class CheckpointError(HeadraceError):
    """A run directory or checkpoint that cannot be read."""


class FragmentError(HeadraceError):
    """A process that cannot do its work."""


class DivergenceError(HeadraceError):
    """Learning whose numbers are not finite any more."""


class PeerGone(HeadraceError):  # noqa: N818 - it is an event that a supervisor handles, as much as an error
    """The process that was waited for has ended."""


class OverdueError(HeadraceError, TimeoutError):
    """What was waited for did not come in time."""


def sentence(error: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as ``"; did you mean 'Pendulum-v1'?"``, empty when nothing is close."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""
