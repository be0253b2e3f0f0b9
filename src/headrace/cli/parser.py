"""What can be typed, and the help that teaches it."""

from __future__ import annotations

import argparse
import os
import re
import sys
from functools import partial
from typing import Any, NoReturn

from headrace.algorithms import ALGORITHMS
from headrace.api import find_algorithm
from headrace.errors import HeadraceError
from headrace.settings.synonyms import of_option
from headrace.settings.values import field_docs, to_json
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

TRAIN = """\
Train an algorithm in an environment.

ALGO is a name that `headrace algorithms` lists, or module:Class of your own.
ENV is one of
  HalfCheetah-v5                    a Gymnasium id; module:ID imports the module first
  file.py:function, module:function a function or class of your own that makes one
  envpool:ID                        EnvPool: many environments in C++ threads
  gymnax:ID, brax:ID                JAX environments: the whole loop becomes one program
  pettingzoo:MODULE                 a team of agents, such as pettingzoo:mpe2.simple_spread_v3

Everything goes into a run directory: config.json, plan.json, metrics.jsonl, tensorboard/, checkpoints/, best/, videos/.
Ctrl-C saves and stops; `headrace train --resume RUN` goes on with everything, replay, goal and options included.
"""


class Parser(argparse.ArgumentParser):
    """Explains a mistake in one sentence, as everything else here does, and exits with 2."""

    def error(self, message: str) -> NoReturn:
        said = message.removeprefix("argument ").replace(": takes ", " takes ", 1).rstrip(".")
        self.exit(2, f"headrace: {said}; see `{self.prog} --help`.\n")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line; a mistake is explained and exits with 2."""
    parser = Parser(
        "headrace",
        description="Write an RL training loop once; it runs at the limit of whatever you have.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"headrace {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _train(_command(commands, "train", "train an algorithm in an environment", TRAIN))
    _eval(_command(commands, "eval", "play episodes with a trained actor", "Play episodes with a trained actor."))
    _export(_command(commands, "export", "write a trained actor as ONNX or StableHLO", EXPORT))
    _compare(_command(commands, "compare", "learning curves of runs, over seeds", COMPARE))
    _graph(_command(commands, "graph", "show an algorithm's dataflow graph and its fragments", GRAPH))
    _command(commands, "policies", "list the distribution policies", "List the distribution policies.")
    _algorithms(_command(commands, "algorithms", "list the algorithms and their settings", LIST))
    _tune(_command(commands, "tune", "measure this machine and choose samplers, environments, cores", TUNE))
    _bench(_command(commands, "bench", "how fast an algorithm runs here, policy by policy", BENCH))
    check = _command(commands, "doctor", "what this machine has, and what is missing", DOCTOR)
    check.add_argument("--run", help="a run's folder, or latest: which process executes which nodes of its plan")
    if arguments[:1] and arguments[0] in SETTABLE:
        _add_settings(commands.choices[arguments[0]], arguments[1:])
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        _refuse(commands.choices[options.command], unknown)
    for name in [name for name in vars(options) if name.startswith(SETTING)]:
        options.settings.append(f"{name.removeprefix(SETTING)}={vars(options).pop(name)}")
    return options


DOCTOR = "Check this machine, or with --run the processes of a run."

SETTABLE = ("train", "graph", "tune", "bench")
"""The commands that take an algorithm and its settings."""

SETTING = "setting "
"""Before the name of a setting that was given as an option of its own."""


def _add_settings(parser: argparse.ArgumentParser, words: list[str]) -> None:
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
    kind: type = type(config)
    docs = field_docs(kind)
    for setting, default in to_json(config).items():
        option = f"--{setting.replace('_', '-')}"
        if option not in parser._option_string_actions:
            text = f"{docs.get(setting, '')} (default: {as_typed(default)})".strip().replace("%", "%%")
            how: Any = {"action": argparse.BooleanOptionalAction} if isinstance(default, bool) else {"metavar": "VALUE"}
            group.add_argument(option, dest=SETTING + setting, default=argparse.SUPPRESS, help=text, **how)


def as_typed(value: Any) -> str:
    """A setting as it may be typed."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def names_own(options: argparse.Namespace) -> bool:
    """Whether code of the user's own may be named on the command line; a run that is loaded names none."""
    named = ("algorithm", "env", "network", "policy", "settings", "callbacks")
    return any(getattr(options, name, None) for name in named)


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


def _command(commands: argparse._SubParsersAction[Parser], name: str, line: str, text: str) -> argparse.ArgumentParser:
    return commands.add_parser(
        name, help=line, description=text, epilog=_examples(name), formatter_class=argparse.RawDescriptionHelpFormatter
    )


def _examples(name: str) -> str | None:
    lines = [line for line in EXAMPLES.splitlines() if line.startswith(f"  headrace {name} ")]
    return "\n".join(["examples:", *lines]) if lines else None


def _what(parser: argparse.ArgumentParser, optional: bool) -> None:
    many = "?" if optional else None
    parser.add_argument(
        "algorithm", metavar="ALGO", nargs=many, help="one that `headrace algorithms` lists, or module:Class"
    )
    parser.add_argument(
        "env", metavar="ENV", nargs=many, help="such as Pendulum-v1; `headrace train --help` lists every kind"
    )
    parser.add_argument(
        "--env-kwargs",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="what the environment is made with, such as max_episode_steps=200",
    )
    parser.add_argument(
        "--atari",
        action="store_true",
        help="the usual preprocessing of Atari games: grey 84 x 84, every 4th frame, 4 as one, clipped rewards",
    )
    parser.add_argument(
        "--action-scale",
        type=_number,
        metavar="S",
        help="bound actions to [-S, S] where the environment does not (2 * S from the only bound there is)",
    )
    parser.add_argument(
        "--policy",
        metavar="P",
        help="distribution policy; `headrace policies` lists them; auto tries; file.py:name is one of your own "
        "(default: desktop, or single for JAX environments)",
    )
    parser.add_argument("--replicas", type=_count, metavar="N", help="replicas of what the policy replicates")
    parser.add_argument("--staleness", type=_count, metavar="N", help="versions behind that cells may be read")
    _settings(
        parser,
        "settings of the algorithm; `headrace algorithms ALGO` lists them; --batch-size 512 is --set batch_size=512",
    )


def _settings(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(
        "--set", dest="settings", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help=text
    )


def _train(parser: argparse.ArgumentParser) -> None:
    parser.epilog = f"{PANEL}\n{parser.epilog}"
    _what(parser, optional=True)
    parser.add_argument(
        "--runtime",
        metavar="R",
        help="what runs the plan: inline or processes (default: inline where one process or program does all)",
    )
    parser.add_argument(
        "--steps",
        type=_whole,
        metavar="N",
        help="stop after N environment steps in all, those before a --resume too (1e6 if nothing is given)",
    )
    parser.add_argument(
        "--seconds", type=_number, metavar="S", help="stop after S seconds in all, those before a --resume too"
    )
    parser.add_argument("--until", type=_number, metavar="RETURN", help="stop when the evaluator sees this mean return")
    parser.add_argument(
        "--seeds",
        type=_count,
        metavar="N",
        help="N runs, with the seeds S, S+1, ... of --seed, into DIR/seed-S, ...: one program over a JAX environment, "
        "one after the other elsewhere",
    )
    parser.add_argument("--seed", type=_count, metavar="S", help="everything random follows from it (default: 0)")
    parser.add_argument("--out", metavar="DIR", help="run directory (default: runs/ALGO-ENV-sSEED-TIME)")
    parser.add_argument("--resume", metavar="RUN", help="go on with a run; latest is the newest under runs/")
    parser.add_argument(
        "--eval-every", type=_whole, metavar="N", help="steps between evaluations (default: a share of a core)"
    )
    parser.add_argument("--eval-episodes", type=_count, metavar="N", help="episodes of each (default: 10)")
    parser.add_argument(
        "--log-info",
        nargs="+",
        action="extend",
        metavar="NAME",
        help="numbers in the info at the end of an episode to log as rollout/NAME, such as x_position or episode/r",
    )
    parser.add_argument("--no-tune", action="store_true", help="take the policy's own numbers, measure nothing first")
    parser.add_argument(
        "--eval",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="with or without an evaluator (default: with)",
    )
    parser.add_argument(
        "--view",
        choices=("off", "ring", "window"),
        help="draw the current actor, in a process of its own: for a page, or in a window (default: off)",
    )
    parser.add_argument("--record-every", type=_number, metavar="S", help="a video into RUN/videos every S seconds")
    parser.add_argument("--record-format", choices=("mp4", "gif"), help="of these videos (default: mp4)")
    parser.add_argument(
        "--restarts",
        type=_count,
        metavar="N",
        help="times a minute that a process whose environment failed or hung is started anew (default: 2)",
    )
    parser.add_argument(
        "--deaths", type=_count, metavar="N", help="times a minute that killed processes are (default: 20)"
    )
    parser.add_argument(
        "--hang-seconds", type=_number, metavar="S", help="silence that counts as hanging (default: 10)"
    )
    parser.add_argument("--checkpoint-every", type=_number, metavar="S", help="seconds (default: 300)")
    parser.add_argument(
        "--track", metavar="wandb[:PROJECT]", help="log config, metrics and videos to Weights & Biases too"
    )
    parser.add_argument(
        "--on-divergence",
        choices=("stop", "warn"),
        help="end the run, or only say so, when a loss, gradient or cell is not finite (default: stop)",
    )
    parser.add_argument(
        "--callback",
        dest="callbacks",
        action="append",
        default=[],
        metavar="FILE.py:NAME",
        help="a function that is called at each row of metrics, evaluation and checkpoint; may be given again",
    )
    parser.add_argument("--debug", action="store_true", help="compile nothing: print and breakpoint() work in stages")
    parser.add_argument("--quiet", action="store_true", help="no progress display")


PANEL = """\
what the panel shows while it runs:
  env steps, steps/s      steps of all environments together, and in a second
  updates, learned/s      optimiser steps, and transitions that went through one in a second
  return, ep. length      means of the last 100 episodes, exploring
  evaluated, best         mean return of the newest evaluation, without exploring, and of the best one
  reused                  times that each transition collected is learned from: samples_per_insert, or epochs
  behind, at most         versions of the weights that acting was behind learning while it collected: mean and most
  busy                    share of the time that each process did not wait for others
"""


def _eval(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="run directories, or folders of seeds; latest is the newest run under runs/",
    )
    _own(parser)
    parser.add_argument("--episodes", type=_count, default=10, metavar="N", help="episodes to play (default: 10)")
    parser.add_argument("--best", action="store_true", help="the best evaluated actor, not the newest")
    parser.add_argument(
        "--record",
        metavar="FILE",
        help="write a video of another episode (.mp4 or .gif); of several runs, FILE-RUN.mp4 for each",
    )


def _own(parser: argparse.ArgumentParser) -> None:
    """What a run was made with and does not say by itself: it is data, and imports nothing."""
    parser.add_argument("--algorithm", metavar="ALGO", help="the run's algorithm, if it is your own: file.py:Class")
    parser.add_argument("--env", metavar="ENV", help="the run's environment, if it is your own: file.py:function")
    parser.add_argument("--network", metavar="NET", help="the run's network, if it is your own: file.py:function")
    _settings(parser, "other functions among its settings, if they are your own")


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run directory; latest is the newest under runs/")
    _own(parser)
    parser.add_argument("--format", default="onnx", choices=("onnx", "stablehlo"), help="(default: onnx)")
    parser.add_argument("--out", metavar="FILE", help="(default: RUN/actor.onnx or RUN/actor.stablehlo)")
    parser.add_argument("--best", action="store_true", help="the best evaluated actor, not the newest")


EXPORT = """\
Write a trained actor as a file that needs no headrace: observations in, actions out, as the environment has them.
Normalisation and bounds are inside, the size of the batch is open, and it does not explore. Needs headrace[export].
"""


COMPARE = """\
Compare runs: runs that differ in nothing but their seed are one row, with the interquartile mean of their last returns
and its 95 % bootstrap interval over seeds (rliable's definitions). A folder of seeds stands for all in it. --out draws
the learning curves against steps and against wall time.
"""


def _compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run directories, or folders of seeds")
    parser.add_argument("--out", metavar="FILE", help="write a picture (.png or .svg)")


GRAPH = "Show an algorithm's dataflow graph, cut into fragments by a distribution policy."
TUNE = """\
Measure how fast this machine steps the environment, acts and learns, and choose the samplers, the environments of
each, the cores and how many updates are fused. `headrace train` does the same when it is started for the first time.
"""
BENCH = """\
Run an algorithm for a while under one policy, or under every one that fits it, and print environment steps and update
frames a second, and the share of a core that each process used. Run nothing else meanwhile.
"""
LIST = "List the algorithms, or the settings of one."


def _graph(parser: argparse.ArgumentParser) -> None:
    _what(parser, optional=False)
    parser.add_argument("--format", default="text", choices=("text", "json", "svg"), help="(default: text)")
    parser.add_argument("--passes", action="store_true", help="what was traced, how it was cut, what was fused")


def _algorithms(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("algorithm", metavar="ALGO", nargs="?", help="list its settings")


def _tune(parser: argparse.ArgumentParser) -> None:
    _what(parser, optional=False)
    parser.add_argument("--seconds", type=_number, default=20.0, metavar="S", help="at most so long (default: 20)")


def _bench(parser: argparse.ArgumentParser) -> None:
    _what(parser, optional=False)
    parser.add_argument("--seconds", type=_number, default=10.0, metavar="S", help="for each policy (default: 10)")


def _whole(text: str, like: str = "1e6") -> int:
    """A whole number, also as 1e6."""
    try:
        return int(text)  # a seed may have more digits than a float
    except ValueError:
        value = _number(text, f"a whole number such as {like}")
    if not value.is_integer():
        raise argparse.ArgumentTypeError(f"takes a whole number such as {like}, got '{text}'")
    return int(value)


_count = partial(_whole, like="4")


def _number(text: str, what: str = "a number such as 2.5") -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"takes {what}, got '{text}'") from None
