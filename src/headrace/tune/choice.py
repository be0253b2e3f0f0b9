"""What the tuner chooses: a frozen value that settles an algorithm and places a plan."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.core.algorithm import Algorithm
from headrace.errors import ConfigError
from headrace.graph import Fragment, Graph, Plan
from headrace.settings.values import fits, override


@dataclass(frozen=True)
class Choice:
    """How to run an algorithm under a policy on a machine."""

    num_envs: int
    """Environments over all samplers together."""
    replicas: int
    """Samplers: what to give the policy."""
    repeat: int
    """Learning passes fused into one program."""
    batch_size: int | None
    """None where the algorithm has no such setting."""
    cores: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The cores of each fragment, by its id."""
    unit: str = "frames/s"
    """What is counted: update frames of a replay loop, environment steps of an on-policy loop."""
    expected: float | None = None
    """How many of them in a second, beside the other programs of then; None if nothing could be measured."""
    refined: bool = False
    """Whether it has proved itself on the running system."""
    measured: float | None = None
    """How many of them the running system did."""

    def __post_init__(self) -> None:
        if min(self.num_envs, self.replicas, self.repeat, self.batch_size or 1) < 1 or self.num_envs % self.replicas:
            raise ConfigError(
                f"a choice of num_envs={self.num_envs}, replicas={self.replicas}, repeat={self.repeat}, "
                f"batch_size={self.batch_size} cannot be; all are at least 1, and replicas divide num_envs."
            )

    def __str__(self) -> str:
        words = [f"{self.replicas} sampler{'s' * (self.replicas > 1)}", f"{self.num_envs} environments"]
        words += [fused(self.repeat), f"batch {self.batch_size}"] if self.batch_size is not None else []
        words += [f"{name} on {listed(cores)}" for name, cores in self.cores.items() if cores]
        speed = f": {short(self.expected)} {self.unit} expected" if self.expected else ""
        speed += f"{', ' if speed else ': '}{short(self.measured)} {self.unit} measured" if self.measured else ""
        return ", ".join(words) + speed

    @property
    def envs(self) -> int:
        """Environments of each sampler."""
        return self.num_envs // self.replicas

    @staticmethod
    def of(plan: Plan) -> Choice:
        """What a plan does by itself."""
        fused = all(domain.fused for domain in plan.graph.domains)
        return Choice(
            num_envs=plan.graph.spec.num_envs,
            replicas=plan.collector.replicas,
            repeat=plan.learners[0].repeat,
            batch_size=getattr(config_of(plan.graph), "batch_size", None) if fused else None,
            cores={fragment.id: fragment.cores for fragment in plan.fragments},
            unit="frames/s" if fused else "steps/s",
        )

    @property
    def fused(self) -> bool:
        """Whether learning passes may be fused: what is learned from is replayed."""
        return self.unit == "frames/s"

    def settle(self, algorithm: Algorithm[Any]) -> Algorithm[Any]:
        """The algorithm with the settings chosen."""
        settings = {"num_envs": self.num_envs} | ({"batch_size": self.batch_size} if self.batch_size else {})
        return type(algorithm)(override(algorithm.config, settings))

    def place(self, plan: Plan) -> Plan:
        """The plan, made by the policy for so many replicas, with the cores and the fused passes chosen."""

        def placed(fragment: Fragment) -> Fragment:
            learns = any(plan.graph.by_id[node].domain == "learn" for node in fragment.nodes)
            cores = self.cores.get(fragment.id, fragment.cores)
            return dataclasses.replace(fragment, cores=cores, repeat=self.repeat if learns else fragment.repeat)

        return dataclasses.replace(plan, fragments=tuple(map(placed, plan.fragments)))

    def to_json(self) -> dict[str, Any]:
        """The choice as plain JSON values."""
        return dataclasses.asdict(self) | {"cores": {name: list(cores) for name, cores in self.cores.items()}}

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Choice:
        """The choice that `to_json` wrote; raises `ConfigError` for anything else."""
        try:
            cores = {str(name): tuple(int(core) for core in cores) for name, cores in values["cores"].items()}
            made = Choice(**{**values, "cores": cores})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"this is not a choice of the tuner's ({error}); tune again.") from None
        for name, hint in typing.get_type_hints(Choice).items():
            if not fits(getattr(made, name), hint):
                raise ConfigError(f"{name}={getattr(made, name)!r} is not a choice of the tuner's; tune again.")
        return made


def config_of(graph: Graph) -> Any:
    """The settings of the algorithm that a graph was traced from."""
    return graph.where(kind="stage")[0].function.algorithm.config


def fused(number: int) -> str:
    """Learning passes in one program, for a person."""
    return f"{number} update{'s' * (number > 1)} fused"


def short(number: float) -> str:
    """A rate for a person: 14.1k."""
    if number >= 1e6:
        return f"{number / 1e6:.2f}M"
    return f"{number / 1e3:.1f}k" if number >= 1e3 else f"{number:.3g}"


def listed(cores: Iterable[int]) -> str:
    """Cores for a person: cores 0-3."""
    found = sorted(set(cores))
    if len(found) == 1:
        return f"core {found[0]}"
    whole = found == list(range(found[0], found[-1] + 1))
    return f"cores {found[0]}-{found[-1]}" if whole else f"cores {', '.join(str(core) for core in found)}"
