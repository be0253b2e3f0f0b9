"""Modules and distributions."""

from headrace.nets.actor import ActorNet
from headrace.nets.distributions import TanhNormal, box_size, distribution, masked, outputs_for
from headrace.nets.encode import Encoder, action_mask, encode, width
from headrace.nets.linear import LayerNorm, Linear
from headrace.nets.mlp import MLP, Ensemble, build
from headrace.nets.normalise import Moments, Normaliser

__all__ = [
    "MLP",
    "ActorNet",
    "Encoder",
    "Ensemble",
    "LayerNorm",
    "Linear",
    "Moments",
    "Normaliser",
    "TanhNormal",
    "action_mask",
    "box_size",
    "build",
    "distribution",
    "encode",
    "masked",
    "outputs_for",
    "width",
]
