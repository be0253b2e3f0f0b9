"""Reading what was typed, by parsers made from dataclasses, and explaining a mistake."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import MISSING
from functools import partial
from inspect import getdoc
from typing import Any, Literal, NoReturn, get_args, get_origin

from headrace.algorithms import ALGORITHMS
from headrace.api import find_algorithm
from headrace.cli.options import COMMANDS, What
from headrace.errors import HeadraceError
from headrace.runtimes import Options
from headrace.settings.synonyms import of_option
from headrace.settings.values import askable, describe, described, field_docs, kinds
from headrace.version import __version__

EXAMPLES = """\
examples:
  headrace train sac Pendulum-v1 --until -200
  headrace train ppo gymnax:CartPole-v1 --steps 500000 --set horizon=64 num_envs=64
  headrace train my_package.my_module:MyAlgorithm HalfCheetah-v5 --seconds 300
  headrace train --resume runs/sac-Pendulum-v1-s0-20261115-120000 --steps 200000
  headrace eval runs/sac-Pendulum-v1-s0-20261115-120000 --episodes 20 --record pendulum.gif
  headrace eval latest --best
  headrace export latest --format onnx --out actor.onnx
  headrace compare runs/ppo-CartPole-v1-s0-4-20261115-120000 runs/a3c-* --out curves.png
  headrace tune sac HalfCheetah-v5
  headrace bench sac HalfCheetah-v5 --policy dual_device
  headrace graph ppo CartPole-v1 --policy single_learner_coarse --format svg > ppo.svg
"""

PANEL = """\
what the panel shows while it runs:
  env steps, steps/s      steps of all environments together, and in a second
  updates, learned/s      optimiser steps, and transitions that went through one in a second
  return, ep. length      means of the last 100 episodes, exploring
  evaluated, best         mean return of the newest evaluation, without exploring, and of the best
  reused                  times that each transition is learned from: samples_per_insert, or epochs
  behind, at most         versions of the weights that acting was behind learning: mean and most
  busy                    share of the time that each process did not wait for others

"""

SETTING = "setting "
"""Before the name of a setting that was given as an option of its own."""


class Parser(argparse.ArgumentParser):
    """Explains a mistake in one sentence, as everything else here does, and exits with 2."""

    def error(self, message: str) -> NoReturn:
        said = message.removeprefix("argument ").replace(": takes ", " takes ", 1).rstrip(".")
        self.exit(2, f"headrace: {said}; see `{self.prog} --help`.\n")


def parse(arguments: Sequence[str]) -> Any:
    """What was typed, as one of `COMMANDS`; a mistake is explained and exits with 2."""
    raw = argparse.RawDescriptionHelpFormatter
    about = "Write an RL training loop once; it runs at the limit of whatever you have."
    parser = Parser("headrace", description=about, epilog=EXAMPLES, formatter_class=raw)
    parser.add_argument("--version", action="version", version=f"headrace {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, kind in COMMANDS.items():
        text, examples = getdoc(kind) or "", _examples(name)
        made = commands.add_parser(
            name, help=text.partition("\n")[0], description=text, epilog=examples, formatter_class=raw
        )
        _add_fields(made, kind)
        if name == "train":
            made.epilog = PANEL + examples
            kept = "--resume keeps those that are not given, --debug apart"
            _add_fields(made.add_argument_group("options of a run", kept), Options)
        if issubclass(kind, What) and arguments[:1] == [name]:
            _add_settings(made, arguments[1:])
    found, unknown = parser.parse_known_args(arguments)
    given = vars(found)
    command = given.pop("command")
    if unknown:
        _refuse(commands.choices[command], unknown)
    settings = [f"{name.removeprefix(SETTING)}={given.pop(name)}" for name in [*given] if name.startswith(SETTING)]
    if settings:
        given["settings"] = [*given.get("settings", ()), *settings]
    options = {name: given.pop(name) for name in askable(Options) if name in given}
    return COMMANDS[command](**given, **({"options": options} if options else {}))


def _examples(name: str) -> str:
    lines = [line for line in EXAMPLES.splitlines() if line.startswith(f"  headrace {name} ")]
    return "\n".join(["examples:", *lines]) if lines else ""


def _add_fields(parser: argparse._ActionsContainer, kind: type) -> None:
    """Take the fields of a dataclass, as `headrace.cli.options` says; what is not given is left out."""
    for name, (field, hint, how) in askable(kind).items():
        first = kinds(hint)[0]
        many = get_origin(first) is Sequence
        said: dict[str, Any] = {"metavar": how.metavar}
        if first is bool:
            said = {"action": argparse.BooleanOptionalAction if field.default else "store_true"}
        elif get_origin(first) is Literal:
            said["choices"] = get_args(first)
        elif first in NUMBERS:
            metavar, like = NUMBERS[first]
            said = {"metavar": how.metavar or metavar, "type": partial(_number, first, how.like or like)}
        elif many and field.kw_only:
            said |= {"action": "append"} if how.again else {"action": "extend", "nargs": "+"}
        if field.kw_only:
            words, said["dest"] = how.flag or f"--{name.replace('_', '-')}", name
        else:
            words, said["nargs"] = name, "+" if many else None if field.default is MISSING else "?"
        text = _help(field_docs(kind).get(name, ""), field.default)
        parser.add_argument(words, default=argparse.SUPPRESS, help=text, **said)


def _add_settings(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Take the settings of the algorithm that is named among these words as options of their own."""
    name = next((word for word in words if word in ALGORITHMS), words[0] if words and ":" in words[0] else None)
    if name is None:
        return
    if ":" in name and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        config = find_algorithm(name).config
    except HeadraceError:
        return  # the command says what is wrong with it
    group = parser.add_argument_group(f"settings of {name}", "each may be given as --set KEY=VALUE, too")
    for setting, default, meaning in described(config):
        option, yes = f"--{setting.replace('_', '-')}", isinstance(getattr(config, setting), bool)
        if option not in parser._option_string_actions:
            how: Any = {"action": argparse.BooleanOptionalAction} if yes else {"metavar": "VALUE"}
            text = _help(meaning, default)
            group.add_argument(option, dest=SETTING + setting, default=argparse.SUPPRESS, help=text, **how)


def _help(text: str, default: Any) -> str:
    known = not (default in (None, MISSING, ()) or default is False)
    return (f"{text} (default: {default})" if known else text).strip().replace("%", "%%")


def names_own(asked: Any) -> bool:
    """Whether code of the user's own may be named on the command line; a run that is loaded names none."""
    named = ("algorithm", "env", "network", "policy", "settings", "callbacks")
    return any(getattr(asked, name, None) for name in named)


def _refuse(parser: argparse.ArgumentParser, unknown: list[str]) -> NoReturn:
    """Say what an option that is not there may be called."""
    known = [option.removeprefix("--") for option in parser._option_string_actions if option.startswith("--")]
    for word in unknown:
        if word.startswith("-"):
            name = word.partition("=")[0]
            hint = of_option(name, [option.replace("-", "_") for option in known])
            hint = re.sub(r"'(\w+)'", lambda found: "--" + found[1].replace("_", "-"), hint)
            parser.error(f"there is no option {name}{hint}")
    parser.error(f"'{unknown[0]}' is one word too many")


NUMBERS: dict[type, tuple[str, str]] = {int: ("N", "4"), float: ("S", "2.5")}
"""What stands for a number in the help, and one to show."""


def _number(kind: type, like: str, text: str) -> Any:
    """A number as people type it: 1e6 is a whole one, too."""
    with suppress(ValueError):
        return kind(text)  # a seed may have more digits than a float
    with suppress(ValueError):
        if float(text).is_integer():
            return int(float(text))
    raise argparse.ArgumentTypeError(f"takes {describe(kind)} such as {like}, got '{text}'")
