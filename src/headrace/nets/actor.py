"""An actor over any action space."""

from __future__ import annotations

from typing import Any

import equinox as eqx

from headrace.nets.distributions import distribution
from headrace.nets.encode import action_mask
from headrace.types import Array, Space, Tree


class ActorNet(eqx.Module):
    """A network that gives a distribution over actions; its log standard deviation does not depend on the state."""

    body: Any
    log_std: Array
    space: Space = eqx.field(static=True)

    def __call__(self, obs: Tree) -> Any:
        return distribution(self.space, self.body(obs), action_mask(obs), self.log_std)
