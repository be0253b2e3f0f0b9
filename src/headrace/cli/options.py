"""What can be typed after each command: a dataclass each, whose docstring and whose fields' strings are the help.

Fields that Python takes by position are typed by position; the others are options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, Literal

from headrace.settings.values import Typed

Settings = Annotated[Sequence[str], Typed("KEY=VALUE", flag="--set")]
Algo = Annotated[str | None, Typed("ALGO")]
Env = Annotated[str | None, Typed("ENV")]
Run = Annotated[str | None, Typed("RUN")]
File = Annotated[str | None, Typed("FILE")]


@dataclass(frozen=True)
class What:
    """An algorithm in an environment, and how it is to be distributed."""

    algorithm: Algo
    """One that `headrace algorithms` lists, or module:Class."""
    env: Env
    """Such as Pendulum-v1; `headrace train --help` lists every kind."""
    _: KW_ONLY
    env_kwargs: Annotated[Sequence[str], Typed("KEY=VALUE")] = ()
    """What the environment is made with, such as max_episode_steps=200."""
    atari: bool = False
    """The usual preprocessing of Atari games: grey 84 x 84, every 4th frame, 4 as one, clipped rewards."""
    action_scale: float | None = None
    """Bound actions to [-S, S] where the environment does not (2 * S from the only bound there is)."""
    policy: Annotated[str | None, Typed("P")] = None
    """Distribution policy; `headrace policies` lists them; auto tries; file.py:name is one of your own
    (default: desktop, or single for JAX environments)."""
    replicas: int | None = None
    """Replicas of what the policy replicates."""
    staleness: int | None = None
    """Versions behind that cells may be read."""
    settings: Settings = ()
    """Settings of the algorithm; `headrace algorithms ALGO` lists them; --batch-size 512 is --set batch_size=512."""


@dataclass(frozen=True)
class Train(What):
    """Train an algorithm in an environment.

    ALGO is a name that `headrace algorithms` lists, or module:Class of your own.
    ENV is one of
      HalfCheetah-v5                    a Gymnasium id; module:ID imports the module first
      file.py:function, module:function a function or class of your own that makes one
      envpool:ID                        EnvPool: many environments in C++ threads
      gymnax:ID, brax:ID                JAX environments: the whole loop becomes one program
      pettingzoo:MODULE                 a team of agents, such as pettingzoo:mpe2.simple_spread_v3

    Everything goes into a run directory: config.json, plan.json, metrics.jsonl, tensorboard/,
    checkpoints/, best/, videos/. Ctrl-C saves and stops; `headrace train --resume RUN` goes on with
    everything, replay, goal and options included.
    """

    algorithm: Algo = None
    env: Env = None
    _: KW_ONLY
    runtime: Annotated[str | None, Typed("R")] = None
    """What runs the plan: inline or processes (default: inline where one process or program does all)."""
    steps: Annotated[int | None, Typed(like="1e6")] = None
    """Stop after N environment steps in all, those before a --resume too (1e6 if nothing is given)."""
    seconds: float | None = None
    """Stop after S seconds in all, those before a --resume too."""
    until: Annotated[float | None, Typed("RETURN")] = None
    """Stop when the evaluator sees this mean return."""
    seeds: int | None = None
    """N runs, with the seeds S, S+1, ... of --seed, into DIR/seed-S, ...: one program over a JAX environment, one after
    the other elsewhere."""
    seed: Annotated[int | None, Typed("S")] = None
    """Everything random follows from it (default: 0)."""
    out: Annotated[str | None, Typed("DIR")] = None
    """Run directory (default: runs/ALGO-ENV-sSEED-TIME)."""
    resume: Run = None
    """Go on with a run; latest is the newest under runs/."""
    tune: bool = True
    """Whether to measure this machine first; otherwise the policy's own numbers are taken."""
    callbacks: Annotated[Sequence[str], Typed("FILE.py:NAME", flag="--callback", again=True)] = ()
    """A function that is called at each row of metrics, evaluation and checkpoint; may be given again."""
    quiet: bool = False
    """No progress display."""
    options: Annotated[Mapping[str, Any], Typed(flag="")] = field(default_factory=dict)
    """What was given of `headrace.runtimes.Options`: a resumed run keeps the others as they were."""


@dataclass(frozen=True, kw_only=True)
class Own:
    """What a run was made with and does not say by itself: it is data, and imports nothing."""

    algorithm: Algo = None
    """The run's algorithm, if it is your own: file.py:Class."""
    env: Env = None
    """The run's environment, if it is your own: file.py:function."""
    network: Annotated[str | None, Typed("NET")] = None
    """The run's network, if it is your own: file.py:function."""
    settings: Settings = ()
    """Other functions among its settings, if they are your own."""
    best: bool = False
    """The best evaluated actor, not the newest."""


@dataclass(frozen=True)
class Eval(Own):
    """Play episodes with a trained actor."""

    runs: Annotated[Sequence[str], Typed("RUN")]
    """Run directories, or folders of seeds; latest is the newest run under runs/."""
    _: KW_ONLY
    episodes: int = 10
    """Episodes to play."""
    record: File = None
    """Write a video of another episode (.mp4 or .gif); of several runs, FILE-RUN.mp4 for each."""


@dataclass(frozen=True)
class Export(Own):
    """Write a trained actor as ONNX or StableHLO.

    The file needs no headrace: observations in, actions out, as the environment has them.
    Normalisation and bounds are inside, the size of the batch is open, and it does not explore.
    Needs headrace[export].
    """

    run: Annotated[str, Typed("RUN")]
    """A run directory; latest is the newest under runs/."""
    _: KW_ONLY
    format: Literal["onnx", "stablehlo"] = "onnx"
    """Format of the file."""
    out: File = None
    """Where to write it (default: RUN/actor.onnx or RUN/actor.stablehlo)."""


@dataclass(frozen=True)
class Compare:
    """Compare runs: learning curves and last returns, over seeds.

    Runs that differ in nothing but their seed are one row, with the interquartile mean of their last
    returns and its 95 % bootstrap interval over seeds (rliable's definitions). A folder of seeds
    stands for all in it. --out draws the learning curves against steps and against wall time.
    """

    runs: Annotated[Sequence[str], Typed("RUN")]
    """Run directories, or folders of seeds."""
    _: KW_ONLY
    out: File = None
    """Write a picture (.png or .svg)."""


@dataclass(frozen=True)
class Graph(What):
    """Show an algorithm's dataflow graph, cut into fragments by a distribution policy."""

    _: KW_ONLY
    format: Literal["text", "json", "svg"] = "text"
    """How it is written."""
    passes: bool = False
    """What was traced, how it was cut, what was fused."""


@dataclass(frozen=True)
class Policies:
    """List the distribution policies."""


@dataclass(frozen=True)
class Algorithms:
    """List the algorithms, or the settings of one."""

    algorithm: Algo = None
    """List its settings."""


@dataclass(frozen=True)
class Tune(What):
    """Measure this machine and choose samplers, environments, cores.

    Measures how fast it steps the environment, acts and learns, and chooses the samplers, the
    environments of each, the cores and how many updates are fused. `headrace train` does the same
    when it is started for the first time.
    """

    _: KW_ONLY
    seconds: float = 20.0
    """At most so long."""


@dataclass(frozen=True)
class Bench(What):
    """Measure how fast an algorithm runs here, policy by policy.

    Runs it for a while under one policy, or under every one that fits it, and prints environment steps
    and update frames a second, and the share of a core that each process used. Run nothing else
    meanwhile.
    """

    _: KW_ONLY
    seconds: float = 10.0
    """For each policy."""


@dataclass(frozen=True)
class Doctor:
    """Check this machine, or with --run the processes of a run."""

    _: KW_ONLY
    run: Run = None
    """A run's folder, or latest: which process executes which nodes of its plan."""


COMMANDS: dict[str, type] = {
    kind.__name__.lower(): kind
    for kind in (Train, Eval, Export, Compare, Graph, Policies, Algorithms, Tune, Bench, Doctor)
}
