"""verify: what must hold of a plan before anything starts, one function per rule.

Each rule refuses with a sentence that says what, why and what to do.
"""

from __future__ import annotations

from collections import Counter

import equinox as eqx

from headrace.core.symbols import is_shape, show
from headrace.errors import PlanError
from headrace.graph.laws import LAWS
from headrace.graph.plan import CHANNELS, GRADIENTS, Plan, crosses, repeatable, replica_algorithm
from headrace.graph.symbolic import shapes
from headrace.graph.trace import cells_of
from headrace.machine import Machine


def verify(plan: Plan, machine: Machine) -> Plan:
    """Return the plan if every rule holds; raise `PlanError` otherwise."""
    for rule in RULES:
        rule(plan, machine)
    return plan


def every_node_once(plan: Plan, machine: Machine) -> None:
    """Every node is in one fragment, except that draws from a store and pure learning stages may be in several."""
    known = plan.graph.by_id
    placed = Counter(node for fragment in plan.fragments for node in fragment.nodes)
    for node in placed:
        if node not in known:
            raise PlanError(f"policy '{plan.policy}' places '{node}', which this graph does not have; place its nodes.")
        twice = any(fragment.nodes.count(node) > 1 for fragment in plan.fragments)
        if placed[node] > 1 and (twice or not repeatable(known[node])):
            raise PlanError(f"policy '{plan.policy}' places '{node}' {placed[node]} times; place each node once.")
    missing = sorted(set(known) - set(placed))
    if missing:
        raise PlanError(f"policy '{plan.policy}' leaves out {', '.join(missing)}; place every node in a fragment.")


def fragments_distinct(plan: Plan, machine: Machine) -> None:
    """Every fragment has a name of its own and at least one replica."""
    for name, times in Counter(fragment.id for fragment in plan.fragments).items():
        if times > 1:
            raise PlanError(f"policy '{plan.policy}' calls {times} fragments '{name}'; give each a name of its own.")
    for fragment in plan.fragments:
        if fragment.replicas < 1 and fragment is not plan.collector:
            raise PlanError(
                f"policy '{plan.policy}' gives fragment '{fragment.id}' {fragment.replicas} replicas; use at least 1."
            )


def every_edge_carried(plan: Plan, machine: Machine) -> None:
    """What crosses between two fragments has a channel."""
    for edge in plan.graph.edges:
        apart = crosses(edge, plan.fragments)
        if apart and edge.kind in CHANNELS and plan.cut_of(edge) is None:
            raise PlanError(
                f"policy '{plan.policy}' has no channel for '{edge.what}' from {edge.source} to {edge.target}; "
                "make the plan with headrace.graph.cut(...)."
            )


def never_ahead(plan: Plan, machine: Machine) -> None:
    """Staleness is not negative."""
    for cut in plan.cuts:
        if cut.staleness < 0:
            raise PlanError(f"policy '{plan.policy}' has staleness {cut.staleness} for '{cut.what}'; use at least 0.")


def fresh_enough(plan: Plan, machine: Machine) -> None:
    """An on-policy loop learns from no staler data than it says it can correct for."""
    allowed = plan.graph.staleness
    if allowed is None:
        return
    for cut in plan.cuts:
        if cut.channel == "latest" and plan.graph.by_id[cut.target].domain == "collect" and cut.staleness > allowed:
            raise PlanError(
                f"policy '{plan.policy}' lets '{cut.target}' act with a '{cut.what}' that is up to {cut.staleness} "
                f"version(s) stale, but {plan.graph.algorithm} learns on-policy from at most {allowed}; "
                f"use staleness {allowed}."
            )


def environment_whole(plan: Plan, machine: Machine) -> None:
    """An environment's own state stays in one process."""
    for edge in plan.graph.edges:
        if edge.kind == "state" and plan.fragment_of[edge.source] is not plan.fragment_of[edge.target]:
            raise PlanError(
                f"policy '{plan.policy}' cuts {edge.source} from {edge.target}, but an environment's state "
                "cannot be sent; keep them in one fragment."
            )


def one_writer(plan: Plan, machine: Machine) -> None:
    """A fragment that writes cells has one replica, unless its gradients are reduced."""
    reduced = {cut.source for cut in plan.cuts if cut.channel in GRADIENTS}
    for fragment in plan.fragments:
        for node in fragment.nodes:
            if fragment.replicas > 1 and plan.graph.by_id[node].writes and node not in reduced:
                cell = plan.graph.by_id[node].writes[0].cell
                raise PlanError(
                    f"policy '{plan.policy}' gives fragment '{fragment.id}' {fragment.replicas} replicas, each of "
                    f"which would write the cell '{cell}'; reduce its gradients or use one replica."
                )


def gradients_cross(plan: Plan, machine: Machine) -> None:
    """Gradients cross only between replicas of the whole loop."""
    if plan.gradients is not None and any(0 < len(f.nodes) < len(plan.graph.nodes) for f in plan.fragments):
        raise PlanError(
            f"policy '{plan.policy}' has gradients cross between learners that do not collect for themselves; "
            "keep the whole loop in one fragment."
        )


def environments_divide(plan: Plan, machine: Machine) -> None:
    """Each replica of the environment gets the same number of environments, at least one."""
    replicas, number = plan.collector.replicas * plan.collector.groups, plan.graph.spec.num_envs
    if replicas < 1 or replicas > number:
        more = f" or set num_envs to at least {replicas}" if replicas > number else ""
        raise PlanError(
            f"policy '{plan.policy}' asks for {replicas} replicas of {number} environment(s); "
            f"use 1 to {number} replicas{more}."
        )
    if number % replicas:
        fitting = ", ".join(str(i) for i in range(1, number + 1) if number % i == 0)
        raise PlanError(
            f"num_envs={number} cannot be divided among {replicas} replicas; set num_envs to a multiple of {replicas}, "
            f"or replicas to one of {fitting}."
        )


def cells_whole(plan: Plan, machine: Machine) -> None:
    """A cell is the same in all replicas: its shapes do not depend on the number of environments."""
    graph, shares = plan.graph, plan.shares
    acts = [plan.fragment_of[node.id].replicas for node in graph.where(domain="collect", kind="stage")]
    sets = max(acts, default=1) * plan.collector.groups
    if sets == 1:
        return
    algorithm = graph.where(kind="stage")[0].function.algorithm
    spec = graph.spec.with_envs(graph.spec.num_envs // sets)
    found = cells_of(replica_algorithm(plan, algorithm) if shares > 1 else algorithm, spec)
    acting = {bound.cell for node in graph.where(domain="collect") for bound in node.reads}
    for name in graph.cells if shares > 1 else acting:
        own, all_ = eqx.filter(found[name].module, is_shape), graph.cells[name]
        if shapes(own) != shapes(all_):
            raise PlanError(
                f"policy '{plan.policy}' gives each of {sets} replicas {spec.num_envs} of the {graph.spec.num_envs} "
                f"environments, but all of them share the cell '{name}' of {graph.algorithm}, which is {show(all_)} "
                f"for all environments and {show(own)} for those of one; keep num_envs out of it, or use single."
            )


def devices_exist(plan: Plan, machine: Machine) -> None:
    """Every fragment is placed on a device and on cores this machine has."""
    for fragment in plan.fragments:
        if fragment.device not in machine.devices:
            raise PlanError(
                f"fragment '{fragment.id}' is placed on device '{fragment.device}', but this machine has "
                f"{', '.join(machine.devices)}; choose one of these."
            )
        missing = [core for core in fragment.cores if not 0 <= core < machine.cores]
        if missing:
            raise PlanError(
                f"fragment '{fragment.id}' is placed on core {missing[0]}, but this machine has cores 0 to "
                f"{machine.cores - 1}; choose among these."
            )


RULES = (
    every_node_once,
    fragments_distinct,
    environment_whole,
    every_edge_carried,
    never_ahead,
    fresh_enough,
    one_writer,
    gradients_cross,
    environments_divide,
    devices_exist,
    cells_whole,
    *LAWS,
)
