"""Returns and advantages over trajectories, `[steps, num_envs]`."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from headrace.types import Array


def gae(errors: Array, done: Array, decay: float) -> Array:
    """Generalised advantage estimation from one-step TD errors, `[steps, num_envs]`, reset at the end of an episode."""

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        error, end = now
        advantage = error + decay * ~end * later
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(errors[0]), (errors, done), reverse=True)[1]


def discounted(rewards: Array, done: Array, gamma: float) -> Array:
    """Running discounted sums of rewards, reset at the start of each episode."""

    def forward(past: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, end = now
        total = gamma * past + reward
        return total * ~end, total

    return jax.lax.scan(forward, jnp.zeros_like(rewards[0]), (rewards, done))[1]


def vtrace(
    errors: Array, ratios: Array, done: Array, decay: float, rho_bar: float = 1.0, c_bar: float = 1.0
) -> tuple[Array, Array]:
    """V-trace (Espeholt et al., 2018): corrections to add to the values, and advantages for the policy gradient.

    `errors` are one-step TD errors, `ratios` the importance ratios pi(a|s) / mu(a|s), clipped at `rho_bar` in the TD
    errors and at `c_bar` in the trace. Where every ratio is 1, both results equal `gae`.
    """
    rho, c = jnp.minimum(ratios, rho_bar), jnp.minimum(ratios, c_bar)

    def back(later: Array, now: tuple[Array, Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        error, rho, c, end = now
        later = decay * ~end * later
        correction = rho * error + c * later
        return correction, (correction, rho * (error + later))

    return jax.lax.scan(back, jnp.zeros_like(errors[0]), (errors, rho, c, done), reverse=True)[1]
