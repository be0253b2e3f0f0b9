"""What stands in for arrays and handles while a loop is traced."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp

from headrace.core.handles import Env, Replay, Rollout
from headrace.errors import LoopError, nearest
from headrace.graph.ir import Ref
from headrace.graph.operations import Insert, Put, Sample, Step, Take
from headrace.types import Batch, EnvSpec, Transition, Tree, struct, transition_struct


class Symbol:
    """Stands for an array while the loop is traced: where it comes from and its shape."""

    def __init__(self, ref: Ref, struct: jax.ShapeDtypeStruct):
        self.ref = ref
        self.shape = struct.shape
        self.dtype = struct.dtype

    @property
    def struct(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self.shape, self.dtype)

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)} from {self.ref.node}"

    def __bool__(self) -> bool:
        raise LoopError(
            f"the loop branches on {self!r}, but a loop is traced once, before there are values; "
            "decide inside a stage with jnp.where or lax.cond."
        )

    def _refuse(self, *others: Any) -> Any:
        raise LoopError(
            f"the loop calculates with {self!r}, but it only says what flows where; calculate inside a stage."
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __matmul__ = _refuse
    __neg__ = __getitem__ = __lt__ = __le__ = __gt__ = __ge__ = __and__ = __or__ = __invert__ = __iter__ = _refuse


class Recorder(Protocol):
    """Whoever records what the handles are asked for."""

    spec: EnvSpec
    nodes: list[Any]
    times: int

    def add(self, kind: Any, name: str, inputs: dict[str, Any], output: Tree, **more: Any) -> Tree: ...

    def keep(self, store: str, value: Tree) -> None: ...

    def symbols(self, node_id: str, output: Tree) -> Tree: ...


def checked(method: Callable[..., Any]) -> Any:
    """A handle's method that refuses in a sentence what it does not take."""
    signature = inspect.signature(method)
    known = list(signature.parameters)[1:]

    @wraps(method)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        called = f"{self.name}.{method.__name__}"
        for word in named:
            if word not in known:
                raise LoopError(f"{called} takes no '{word}'{nearest(word, known)} (it takes {', '.join(known)}).")
        try:
            signature.bind(self, *given, **named)
        except TypeError as error:
            raise LoopError(f"{called} takes {', '.join(known)}; this call has {error}.") from None
        return method(self, *given, **named)

    return call


class Handle:
    """What the loop is given in place of an environment or a store."""

    name: str

    def __getattr__(self, word: str) -> Any:
        if word.startswith("_"):
            raise AttributeError(word)
        known = [one for one in dir(type(self)) if not one.startswith("_")]
        raise LoopError(f"'{self.name}' has no '{word}'{nearest(word, known)} (it has {', '.join(known)}).")


class SymbolicEnv(Handle, Env):
    """Records what the loop asks of its environment."""

    def __init__(self, tracer: Recorder):
        self.tracer = tracer
        self.name = "env"

    @property
    def agents(self) -> int:
        return self.tracer.spec.agents

    @checked
    def observe(self) -> Tree:
        output = struct(self.tracer.spec.observation, self.tracer.spec.num_envs)
        if any(node.name == "env.observe" for node in self.tracer.nodes):
            return self.tracer.symbols("env.observe", output)
        return self.tracer.add("env", "env.observe", {}, output)

    @checked
    def step(self, action: Any) -> Transition:
        return self._step(action, unrolled=False)

    def _step(self, action: Any, unrolled: bool) -> Transition:
        spec = self.tracer.spec
        choice, extra = action if isinstance(action, tuple) and len(action) == 2 else (action, {})
        wanted = struct(spec.action, spec.num_envs)
        if shapes(choice) != shapes(wanted):
            raise LoopError(f"the actions are {show(choice)}, but {spec.id} takes {show(wanted)}.")
        inputs = {"action": choice, **({"extra": extra} if extra else {})}
        output = transition_struct(spec, wanted, jax.tree.map(as_struct, extra))
        stepped: Transition = self.tracer.add("env", "env.step", inputs, output, operation=Step(unrolled))
        return stepped

    @checked
    def unroll(self, act: Any, steps: int) -> Transition:
        if not callable(act):
            raise LoopError(
                f"env.unroll acts at every step, so it takes what acts: env.unroll(self.act, steps=8); got {show(act)}."
            )
        if not (isinstance(steps, int) and steps >= 1):
            raise LoopError(f"env.unroll needs at least one step, got steps={steps}.")
        self.tracer.times = steps
        once = self._step(act(self.observe()), unrolled=True)
        self.tracer.times = 1

        def stacked(leaf: Symbol) -> Symbol:
            return Symbol(leaf.ref, jax.ShapeDtypeStruct((steps, *leaf.shape), leaf.dtype))

        trajectory: Transition = jax.tree.map(stacked, once)
        return trajectory


class SymbolicReplay(Handle, Replay):
    """Records insertions and samples."""

    def __init__(self, tracer: Recorder, name: str):
        self.tracer = tracer
        self.name = name
        self.row: Transition | None = None

    @checked
    def insert(self, transition: Transition, capacity: int = 1_000_000) -> None:
        if not isinstance(transition, Transition):
            raise LoopError(
                f"{self.name}.insert takes a Transition, as env.step and env.unroll give one, got {show(transition)}."
            )
        whole(f"{self.name}.insert", capacity=(capacity, 1))
        lead = len(leading(self.tracer, f"{self.name}.insert", transition))
        self.tracer.keep(self.name, jax.tree.map(as_struct, transition))
        self.tracer.add("store", f"{self.name}.insert", {"transition": transition}, (), operation=Insert(capacity))
        self.row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[lead:], leaf.dtype), transition)

    @checked
    def sample(
        self, size: int, *, after: int = 0, per_insert: float = 1.0, gamma: float = 0.99, steps: int = 1
    ) -> Batch:
        if self.row is None:
            raise LoopError(f"the loop samples from '{self.name}' before it inserts; call {self.name}.insert first.")
        whole(f"{self.name}.sample", size=(size, 1), after=(after, 0), steps=(steps, 1))
        row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((size, *leaf.shape), leaf.dtype), self.row)
        number = jax.ShapeDtypeStruct((size,), jnp.dtype("float32"))
        batch = Batch(row.obs, row.action, number, number, row.next_obs, row.extra)
        how = Sample(f"{self.name}.insert", size, after, per_insert, gamma, steps)
        drawn: Batch = self.tracer.add("store", f"{self.name}.sample", {}, batch, operation=how)
        return drawn


class SymbolicRollout(Handle, Rollout):
    """Records trajectories put and taken."""

    def __init__(self, tracer: Recorder, name: str):
        self.tracer = tracer
        self.name = name
        self.row: Tree | None = None

    @checked
    def put(self, trajectory: Transition) -> None:
        one_step = len(leading(self.tracer, f"{self.name}.put", trajectory)) == 1
        steps = (1,) if one_step else ()  # what is taken is a trajectory in any case
        self.row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*steps, *leaf.shape), leaf.dtype), trajectory)
        self.tracer.keep(self.name, self.row)
        self.tracer.add("store", f"{self.name}.put", {"trajectory": trajectory}, (), operation=Put())

    @checked
    def take(self, epochs: int = 1, staleness: int = 0) -> Transition:
        if self.row is None:
            raise LoopError(f"the loop takes from '{self.name}' before it puts; call {self.name}.put first.")
        whole(f"{self.name}.take", epochs=(epochs, 1), staleness=(staleness, 0))
        how = Take(f"{self.name}.put", epochs, staleness)
        taken: Transition = self.tracer.add("store", f"{self.name}.take", {}, self.row, operation=how)
        return taken


def whole(called: str, **given: tuple[Any, int]) -> None:
    """Refuse what is not a whole number of at least so many."""
    for name, (value, least) in given.items():
        if not (isinstance(value, int) and value >= least):
            raise LoopError(f"{called} takes a whole number of at least {least} as {name}, got {value!r}.")


def leading(tracer: Recorder, called: str, value: Tree) -> tuple[int, ...]:
    """The axes that all of what a store is given begins with: `[num_envs]`, or `[steps, num_envs]` of a trajectory."""
    step = next((node for node in tracer.nodes if node.name == "env.step"), None)
    if step is None:
        raise LoopError(f"the loop calls {called} before it steps its environment; call env.step or env.unroll first.")
    lead = (*((step.times,) if step.operation.unrolled else ()), tracer.spec.num_envs)
    for leaf in jax.tree.leaves(value):
        if getattr(leaf, "shape", ())[: len(lead)] != lead:
            names = "[steps, num_envs, ...]" if len(lead) == 2 else "[num_envs, ...]"
            raise LoopError(
                f"{called} takes arrays {names}, here beginning with {list(lead)}, one row for each transition; "
                f"got {show(leaf)}."
            )
    return lead


def show(tree: Any) -> str:
    """Shapes for a message: `float32[8,3]`, or a few of them."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "shape")]
    words = [f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]" for leaf in leaves]
    if not words:
        return f"a {type(tree).__name__}"
    return ", ".join(words[:4]) + (f" and {len(words) - 4} more" if len(words) > 4 else "")


def as_struct(leaf: Any) -> Any:
    return leaf.struct if isinstance(leaf, Symbol) else leaf


def is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def eval_shape(function: Callable[..., Any], **arguments: Any) -> Any:
    """What a function yields, with shapes in place of arrays; other parts of arguments and results are as they are.

    As `eqx.filter_eval_shape`, but JAX sees lists of arrays only: it remembers trees, with the optimisers in them.
    """
    given, static = eqx.partition(arguments, lambda leaf: is_shape(leaf) or eqx.is_array(leaf))
    leaves, tree = jax.tree.flatten(given)
    rest: list[Any] = []

    def flat(leaves: list[Any]) -> list[Any]:
        yielded, other = eqx.partition(function(**eqx.combine(jax.tree.unflatten(tree, leaves), static)), eqx.is_array)
        leaves, kind = jax.tree.flatten(yielded)
        rest[:] = kind, other
        return leaves

    found = jax.eval_shape(flat, leaves)
    return eqx.combine(jax.tree.unflatten(rest[0], found), rest[1])


def shapes(tree: Any) -> Any:
    """What must agree for two trees to be interchangeable: leaves with their places, shapes and dtypes."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [
        (jax.tree_util.keystr(path), leaf.shape, jnp.dtype(leaf.dtype))
        for path, leaf in leaves
        if hasattr(leaf, "shape")
    ]
