"""The laws of a plan that follow from how it is executed, one function each; `verify` adds them to its rules.

Any partition of a graph that keeps them runs as drawn. A plan that breaks one is refused with that law's message.
"""

from __future__ import annotations

from collections.abc import Iterable

import jax

from headrace.errors import PlanError
from headrace.graph.plan import CHANNELS, GRADIENTS, STALE, Cut, Fragment, Plan, crosses
from headrace.graph.sections import Sections, per_step
from headrace.machine import Machine


def something_to_run(plan: Plan, machine: Machine) -> None:
    """Every fragment has nodes, except one that applies gradients."""
    applying = [fragment for fragment in plan.fragments if not fragment.nodes]
    for fragment in applying:
        if plan.gradients != "apply":
            raise _refused(plan, fragment, "has no nodes, so nothing would run there", "leave it away")
    for fragment in applying[1:]:
        raise _refused(plan, fragment, f"applies gradients, and so does '{applying[0].id}'", "use one of them")
    if plan.gradients == "apply" and not applying:
        raise PlanError(
            f"policy '{plan.policy}' sends gradients to be applied in one place, but has no fragment for it; "
            "add one without nodes."
        )


def learning_once(plan: Plan, machine: Machine) -> None:
    """A fragment that learns or draws from stores has one replica, unless gradients of the whole loop cross."""
    for fragment in plan.fragments:
        learning = [node for node in fragment.nodes if plan.graph.by_id[node].domain == "learn"]
        if fragment.replicas > 1 and learning and plan.gradients is None:
            why = f"has {fragment.replicas} replicas of '{learning[0]}', each of which would learn from everything"
            raise _refused(plan, fragment, why, "use one replica, or let the gradients of the whole loop cross")


def copies_used(plan: Plan, machine: Machine) -> None:
    """What stands in several fragments is used in each of them: drawing for nobody would hold up the others."""
    streamed = {(stream.source.id, stream.sender.id) for stream in Sections(plan).streams}
    for fragment in plan.fragments:
        nodes = [plan.graph.by_id[node] for node in fragment.nodes]
        taken = {ref.node for node in nodes for ref in node.sources}
        for node in nodes:
            elsewhere = any(node.id in other.nodes for other in plan.fragments if other is not fragment)
            if elsewhere and node.id not in taken and (node.id, fragment.id) not in streamed:
                raise _refused(plan, fragment, f"runs '{node.id}', which nothing there takes", "leave it away there")


def slices_divide(plan: Plan, machine: Machine) -> None:
    """Replicas own equal slices of the environments; of two connected fragments, one has a multiple of the other's."""
    graph, groups = plan.graph, plan.collector.groups
    for fragment in plan.fragments:
        collects = any(graph.by_id[node].domain == "collect" for node in fragment.nodes)
        if collects and graph.spec.num_envs % (fragment.replicas * groups):
            why = f"has {fragment.replicas} replicas of {groups} group(s), which {graph.spec.num_envs} environments"
            raise _refused(plan, fragment, f"{why} cannot be divided among", "choose a divisor")
    for stream in Sections(plan).streams if plan.gradients is None else ():
        few, many = sorted((stream.sender.replicas, stream.receiver.replicas))
        if many % few:
            why = (
                f"has {stream.receiver.replicas} replicas that take '{stream.source.id}' from {stream.sender.replicas}"
            )
            raise _refused(plan, stream.receiver, why, "let one of the two numbers divide the other")
        lead: tuple[int, ...] = (graph.spec.num_envs,)
        if graph.unrolled and not per_step(graph, stream.source.id):
            lead = (graph.steps, *lead)
        leaves = jax.tree.leaves(stream.source.output)
        for leaf in [leaves[i] for i in stream.leaves] if few != many else ():
            if leaf.shape[: len(lead)] != lead:
                why = f"takes '{stream.source.id}' from {stream.sender.replicas} replicas, which yields no row for each"
                raise _refused(plan, stream.receiver, f"{why} environment", "use as many replicas of both")


def groups_take_turns(plan: Plan, machine: Machine) -> None:
    """Groups of environments take turns only where a fragment steps environments and does nothing else."""
    for fragment in plan.fragments:
        alone = all(plan.graph.by_id[node].kind == "env" for node in fragment.nodes)
        if fragment.groups > 1 and not (alone and fragment is plan.collector):
            why = f"has {fragment.groups} groups of environments, which nothing lets take turns here"
            raise _refused(plan, fragment, why, "use one group")


def passes_alike(plan: Plan, machine: Machine) -> None:
    """Fragments that learn in one domain fuse the same number of passes, and only where passes can be fused."""
    graph = plan.graph
    for fragment in plan.fragments:
        domains = [d for d in graph.domains if d.fused and any(node.id in fragment.nodes for node in d.nodes)]
        if fragment.repeat != 1 and (not domains or plan.gradients == "apply"):
            why = f"fuses {fragment.repeat} passes, which run one by one here"
            raise _refused(plan, fragment, why, "leave repeat at 1")
        for other in plan.fragments:
            shared = [d for d in domains if any(node.id in other.nodes for node in d.nodes)]
            if shared and other.repeat != fragment.repeat:
                why = f"fuses {fragment.repeat} passes and '{other.id}' {other.repeat}, but they keep the same pace"
                raise _refused(plan, fragment, why, "give both the same repeat")


def nobody_waits_in_circles(plan: Plan, machine: Machine) -> None:
    """A section whose cells another reads at staleness 0 takes no stream from it in the same pass: both would wait."""
    sections = Sections(plan)
    learning = sections.learning if plan.gradients is None else []
    streams = {(s.receiver.id, s.sender.id) for s in sections.streams if s.source.domain == "learn"}
    fresh: set[tuple[str, str]] = set()
    for i, later in enumerate(learning):
        for first in learning[:i]:
            shared = {*later.read, *later.written} & {*first.read, *first.written}
            bounds = [c.staleness for c in plan.cuts if c.channel == "latest" and c.what in shared]
            if (
                first.domain is later.domain
                and first.fragment is not later.fragment
                and shared
                and not min(bounds, default=0)
            ):
                fresh.add((later.fragment.id, first.fragment.id))
    waits = streams | fresh
    for reader, writer in sorted(fresh):
        reached, todo = set[str](), [writer]
        while todo:
            here = todo.pop()
            new = {other for one, other in waits if one == here} - reached
            reached |= new
            todo += new
        if reader in reached:
            fragment = next(one for one in plan.fragments if one.id == reader)
            why = f"reads what '{writer}' has learned in the same pass, which waits for what '{reader}' sends it then"
            raise _refused(plan, fragment, why, "place what is sent with what takes it, or let cells be read stale")


def places_known(plan: Plan, machine: Machine) -> None:
    """Every fragment is on this machine; a whole loop that is one program runs on the first device."""
    for fragment in plan.fragments:
        if fragment.place != "local":
            raise _refused(plan, fragment, f"is placed on '{fragment.place}'", "all places are 'local'")
    first = plan.fragments[0]
    if plan.one_program and first.device != machine.devices[0]:
        why = f"is one program on device '{first.device}', but it runs on the first, '{machine.devices[0]}'"
        raise _refused(plan, first, why, "place it there")


def channels_fit(plan: Plan, machine: Machine) -> None:
    """Every cut is an edge between two fragments, carried by the channel for its kind."""
    edges = {(edge.source, edge.target, edge.what): edge for edge in plan.graph.edges}
    for cut in plan.cuts:
        if cut.channel in GRADIENTS:
            continue
        edge = edges.get((cut.source, cut.target, cut.what))
        if edge is None or not crosses(edge, plan.fragments):
            raise _unfit(plan, cut, "which does not cross", "leave it to headrace.graph.cut(...)")
        fitting = CHANNELS[edge.kind]
        if cut.channel != fitting:
            raise _unfit(plan, cut, f"which is carried by a '{fitting}' channel", "leave it to headrace.graph.cut(...)")
        if cut.staleness and cut.channel not in STALE:
            raise _unfit(plan, cut, "which is never stale", "use staleness 0")


def gradients_alike(plan: Plan, machine: Machine) -> None:
    """All gradients of a loop use the same channel and staleness."""
    sent = [cut for cut in plan.cuts if cut.channel in GRADIENTS]
    learning = {node.id for node in plan.graph.where(domain="learn", role="learning")}
    for cut in sent:
        if (cut.source, cut.what) != (cut.target, "gradients") or cut.source not in learning:
            raise _unfit(plan, cut, "which is no gradient", "leave it to headrace.graph.cut(...)")
        if cut.channel != sent[0].channel:
            raise _unfit(plan, cut, f"and '{sent[0].source}' by '{sent[0].channel}'", "send all gradients one way")
        if cut.staleness and cut.channel == "reduce":
            raise _unfit(plan, cut, "which waits for all replicas", "use staleness 0")
        if cut.staleness != sent[0].staleness:
            why = f"with staleness {cut.staleness}, and '{sent[0].source}' with {sent[0].staleness}"
            raise _unfit(plan, cut, why, "use one staleness: one bound holds for both")
    missing = learning - {cut.source for cut in sent}
    if sent and missing:
        raise PlanError(
            f"policy '{plan.policy}' sends gradients, but not those of '{_first(missing)}'; "
            "leave it to headrace.graph.cut(..., gradients=...)."
        )
    if plan.gradients == "apply" and len(plan.graph.domains) > 1:
        raise PlanError(
            f"policy '{plan.policy}' applies gradients in the order of one rate, but {plan.graph.algorithm} learns at "
            f"{len(plan.graph.domains)}; use multiple_learners."
        )


def _refused(plan: Plan, fragment: Fragment, why: str, remedy: str) -> PlanError:
    return PlanError(
        f"policy '{plan.policy}' draws what is not run: fragment '{fragment.id}' {why}; {remedy} (docs/policies.md)."
    )


def _unfit(plan: Plan, cut: Cut, why: str, remedy: str) -> PlanError:
    return PlanError(
        f"policy '{plan.policy}' draws what is not run: '{cut.what}' from {cut.source} to {cut.target} by "
        f"'{cut.channel}', {why}; {remedy}."
    )


def _first(names: Iterable[str]) -> str:
    return sorted(names)[0]


LAWS = (
    something_to_run,
    learning_once,
    copies_used,
    slices_divide,
    groups_take_turns,
    passes_alike,
    nobody_waits_in_circles,
    places_known,
    channels_fit,
    gradients_alike,
)
