"""What stands in for arrays and handles while a loop is traced."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp

from headrace.core.handles import Env, Replay, Rollout
from headrace.errors import LoopError
from headrace.graph.ir import Ref
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


class SymbolicEnv(Env):
    """Records what the loop asks of its environment."""

    def __init__(self, tracer: Recorder):
        self.tracer = tracer

    @property
    def agents(self) -> int:
        return self.tracer.spec.agents

    def observe(self) -> Tree:
        output = struct(self.tracer.spec.observation, self.tracer.spec.num_envs)
        if any(node.name == "env.observe" for node in self.tracer.nodes):
            return self.tracer.symbols("env.observe", output)
        return self.tracer.add("env", "env.observe", {}, output)

    def step(self, action: Any) -> Transition:
        spec = self.tracer.spec
        choice, extra = action if isinstance(action, tuple) and len(action) == 2 else (action, {})
        wanted = struct(spec.action, spec.num_envs)
        if shapes(choice) != shapes(wanted):
            raise LoopError(f"the actions are {show(choice)}, but {spec.id} takes {show(wanted)}.")
        inputs = {"action": choice, **({"extra": extra} if extra else {})}
        output = transition_struct(spec, wanted, jax.tree.map(as_struct, extra))
        stepped: Transition = self.tracer.add("env", "env.step", inputs, output)
        return stepped

    def unroll(self, act: Any, steps: int) -> Transition:
        if steps < 1:
            raise LoopError(f"env.unroll needs at least one step, got steps={steps}.")
        self.tracer.times = steps
        once = self.step(act(self.observe()))
        self.tracer.times = 1

        def stacked(leaf: Symbol) -> Symbol:
            return Symbol(leaf.ref, jax.ShapeDtypeStruct((steps, *leaf.shape), leaf.dtype))

        trajectory: Transition = jax.tree.map(stacked, once)
        return trajectory


class SymbolicReplay(Replay):
    """Records insertions and samples."""

    def __init__(self, tracer: Recorder, name: str):
        self.tracer = tracer
        self.name = name
        self.row: Transition | None = None

    def insert(self, transition: Transition, capacity: int = 1_000_000) -> None:
        options = {"store": "replay", "capacity": capacity}
        self.tracer.keep(self.name, transition)
        self.tracer.add("store", f"{self.name}.insert", {"transition": transition}, (), options=options)
        self.row = transition

    def sample(
        self, size: int, *, after: int = 0, per_insert: float = 1.0, gamma: float = 0.99, steps: int = 1
    ) -> Batch:
        if self.row is None:
            raise LoopError(f"the loop samples from '{self.name}' before it inserts; call {self.name}.insert first.")
        row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype), self.row)
        number = jax.ShapeDtypeStruct((size,), jnp.dtype("float32"))
        batch = Batch(row.obs, row.action, number, number, row.next_obs, row.extra)
        options = {
            "store": "replay",
            "filler": f"{self.name}.insert",
            "size": size,
            "after": after,
            "per_insert": per_insert,
            "gamma": gamma,
            "steps": steps,
        }
        drawn: Batch = self.tracer.add("store", f"{self.name}.sample", {}, batch, options=options)
        return drawn


class SymbolicRollout(Rollout):
    """Records trajectories put and taken."""

    def __init__(self, tracer: Recorder, name: str):
        self.tracer = tracer
        self.name = name
        self.row: Transition | None = None

    def put(self, trajectory: Transition) -> None:
        self.tracer.keep(self.name, trajectory)
        self.tracer.add("store", f"{self.name}.put", {"trajectory": trajectory}, (), options={"store": "rollout"})
        self.row = trajectory

    def take(self, epochs: int = 1, staleness: int = 0) -> Transition:
        if self.row is None:
            raise LoopError(f"the loop takes from '{self.name}' before it puts; call {self.name}.put first.")
        options = {"store": "rollout", "filler": f"{self.name}.put", "epochs": epochs, "staleness": staleness}
        output = jax.tree.map(as_struct, self.row)
        taken: Transition = self.tracer.add("store", f"{self.name}.take", {}, output, options=options)
        return taken


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


def shapes(tree: Any) -> Any:
    """What must agree for two trees to be interchangeable: leaves with their places, shapes and dtypes."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [
        (jax.tree_util.keystr(path), leaf.shape, jnp.dtype(leaf.dtype))
        for path, leaf in leaves
        if hasattr(leaf, "shape")
    ]
