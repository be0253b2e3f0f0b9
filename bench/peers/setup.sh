#!/bin/sh
# The peers' virtual environments, one each, from PyPI; a second call does nothing.
#
#     [PEERS=folder] [PYTHON=python3.11] bench/peers/setup.sh
#
# On Linux PyPI's torch brings gigabytes of CUDA. For the CPU build, first:
#     export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
set -eu

PEERS=${PEERS:-$HOME/.cache/headrace/peers}
PYTHON=${PYTHON:-python3.11}

make_peer() {
    name=$1 && shift
    ready=$PEERS/$name/.ready # holds what was installed, so changed versions install again
    if [ "$(cat "$ready" 2>/dev/null)" = "$*" ]; then
        echo "$name: ready in $PEERS/$name"
        return
    fi
    echo "$name: installing $*"
    "$PYTHON" -m venv "$PEERS/$name"
    "$PEERS/$name/bin/python" -m pip install -qq "$@"
    echo "$*" >"$ready"
    echo "$name: installed in $PEERS/$name"
}

mkdir -p "$PEERS"
make_peer sb3 torch==2.13.0 stable-baselines3==2.9.2 'gymnasium[mujoco]==1.4.0' mujoco==4.0.0 numpy==2.4.6
make_peer sbx torch==2.13.0 stable-baselines3==2.9.2 'gymnasium[mujoco]==1.4.0' mujoco==4.0.0 numpy==2.4.6 \
    sbx-rl==0.28.0 jax==0.10.2 jaxlib==0.10.2 flax==0.12.8 optax==0.2.8 tfp-nightly==0.26.0.dev20261027
make_peer sf torch==2.13.0 sample-factory==2.1.1 'gymnasium[mujoco]==0.29.1' mujoco==4.0.0 numpy==1.26.4
