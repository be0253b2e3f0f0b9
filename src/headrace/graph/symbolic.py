"""The symbolic environment that a loop is traced with, and shape evaluation of stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from headrace.core.handles import Env
from headrace.core.symbols import Handle, Symbol, checked, is_shape, show
from headrace.errors import LoopError
from headrace.graph.ir import StepEnv
from headrace.types import Outcome, Transition, Tree, struct, transition_struct


class SymbolicEnv(Handle, Env):
    """Records what the loop asks of its environment."""

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
        for leaf in jax.tree.leaves((choice, extra)):
            if not isinstance(leaf, Symbol):
                raise LoopError(f"env.step takes what a stage returned, got {show(leaf)}; make it in a stage.")
        obs = self.observe()
        whole = transition_struct(spec, wanted, {})
        outcome = Outcome(whole.reward, whole.terminated, whole.truncated, whole.next_obs)
        led_to = self.tracer.add("env", "env.step", {"action": choice}, outcome, operation=StepEnv(unrolled))
        # Observation and action come from the nodes that made them: they need not pass through the environment.
        return Transition(obs, choice, led_to.reward, led_to.terminated, led_to.truncated, led_to.next_obs, extra)

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


def eval_shape(function: Callable[..., Any], **arguments: Any) -> Any:
    """The output of a function, with shapes in place of arrays; everything else in arguments and output is kept.

    As `eqx.filter_eval_shape`, but JAX sees lists of arrays only: it would cache trees, with the optimisers in them.
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
    """Path, shape and dtype of every leaf: equal for trees that are interchangeable."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [
        (jax.tree_util.keystr(path), leaf.shape, jnp.dtype(leaf.dtype))
        for path, leaf in leaves
        if hasattr(leaf, "shape")
    ]
