"""The plans that runtimes execute as they are drawn; any other is refused by name.

A run consists of one of these:

- a fragment that is the whole loop, or the whole loop but for its environments: one, or replicas whose gradients cross;
- a fragment that acts and fills the store, in replicas where it has the environments, and one or more that learn, each
  taking from the store by itself;

and, with either, a fragment of nothing but environments, in replicas, where what acts has none of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import PlanError
from headrace.graph.plan import STALE, Cut, Fragment, Plan, channel_of
from headrace.machine import Machine

GRADIENTS = ("reduce", "central")


def fragments_run(plan: Plan, machine: Machine) -> None:
    """Every fragment holds nodes that some process runs together, and nothing else does."""
    graph, filler = plan.graph, plan.filler.id
    stepping = {node.id for node in graph.where(kind="env")}
    acting = {node.id for node in graph.where(domain="collect")} - stepping
    learning = {node.id for node in graph.where(domain="learn")}
    for fragment in plan.fragments:
        own = set(fragment.nodes)
        if not own and plan.gradients != "central":
            raise _refused(plan, fragment, "has no nodes, so nothing would run there", "leave it away")
        if own & acting and not acting <= own:
            why = f"has '{_first(own & acting)}', but what acts and what fills the store run as one"
            raise _refused(plan, fragment, why, f"place {_named(acting)} in one fragment, such as '{filler}'")
        if own & stepping and not own & acting and not own <= stepping:
            why = f"steps environments and has '{_first(own - stepping)}', but does not act"
            raise _refused(plan, fragment, why, f"leave environments alone, or with {_named(acting)}")
        if own & acting and own & learning and not learning <= own:
            why = f"fills the store and has '{_first(own & learning)}', but not all that learns"
            raise _refused(plan, fragment, why, f"place {_named(learning)} together there, or all of it elsewhere")
        if own and own <= learning and not any(graph.by_id[node].writes for node in own):
            why = f"has '{_first(own)}' and learns nothing: whoever learns takes from the store by itself"
            raise _refused(plan, fragment, why, "place it with a stage that learns")


def replicas_run(plan: Plan, machine: Machine) -> None:
    """Only what steps environments is replicated, or the loop as a whole."""
    for fragment in plan.fragments:
        nodes = [plan.graph.by_id[node] for node in fragment.nodes]
        steps = any(node.kind == "env" for node in nodes)
        if fragment.replicas > 1 and not steps:
            why = f"has {fragment.replicas} replicas and no environments of its own, so one would do the work of all"
            raise _refused(plan, fragment, why, "use one replica, or place the environments there")
        if fragment.groups > 1 and not (fragment is plan.collector and plan.remote and plan.loops):
            why = f"has {fragment.groups} groups of environments, which nothing lets take turns here"
            raise _refused(plan, fragment, why, "use one group")
        if fragment.place != "local":
            raise _refused(plan, fragment, f"is placed on '{fragment.place}'", "all places are 'local'")
    if plan.gradients is not None and plan.remote:
        why = "has the environments of a loop whose gradients cross, which steps its own"
        raise _refused(plan, plan.collector, why, "place them with the rest of the loop")


def passes_run(plan: Plan, machine: Machine) -> None:
    """Learners fuse the same number of passes, and only those of a replay store any."""
    learners = plan.learners
    for fragment in plan.fragments:
        fused = fragment.repeat
        if fused != 1 and (fragment not in learners or plan.graph.on_policy or plan.gradients == "central"):
            raise _refused(plan, fragment, f"fuses {fused} passes, which run one by one here", "leave repeat at 1")
        if fragment in learners and fused != learners[0].repeat:
            why = f"fuses {fused} passes and '{learners[0].id}' {learners[0].repeat}, but learners keep the same pace"
            raise _refused(plan, fragment, why, "give both the same repeat")


def places_run(plan: Plan, machine: Machine) -> None:
    """What has no place of its own is not drawn with one."""
    if plan.one_program and plan.learner.device != machine.devices[0]:
        why = f"is one program on device '{plan.learner.device}', but it runs on the first, '{machine.devices[0]}'"
        raise _refused(plan, plan.learner, why, "place it there")
    applying = [fragment for fragment in plan.fragments if not fragment.nodes]
    for fragment in applying[1:]:
        raise _refused(plan, fragment, f"applies gradients, and so does '{applying[0].id}'", "use one of them")
    for fragment in applying:
        if (fragment.device, fragment.cores) != (plan.learner.device, plan.learner.cores):
            why = f"applies gradients on another device or other cores than '{plan.learner.id}' computes them"
            raise _refused(plan, fragment, why, "give both the same")


def channels_run(plan: Plan, machine: Machine) -> None:
    """What crosses is carried by the channel that fits it, nothing else is."""
    edges = {(edge.source, edge.target, edge.what): edge for edge in plan.graph.edges}
    for cut in plan.cuts:
        if cut.channel in GRADIENTS:
            continue
        edge = edges.get((cut.source, cut.target, cut.what))
        if edge is None or not plan.crosses(edge):
            raise _unfit(plan, cut, "which does not cross", "leave it to headrace.graph.cut(...)")
        fitting = channel_of(plan.graph, edge)
        if cut.channel != fitting:
            raise _unfit(plan, cut, f"which is carried by a '{fitting}' channel", "leave it to headrace.graph.cut(...)")
        if cut.staleness and cut.channel not in STALE:
            raise _unfit(plan, cut, "which is never stale", "use staleness 0")
    acting = [plan.graph.by_id[cut.target].domain == "collect" for cut in plan.cuts]
    stale = [(cut, side) for cut, side in zip(plan.cuts, acting, strict=True) if cut.channel == "latest"]
    for side in (True, False):
        _alike(plan, [cut for cut, at in stale if at is side])


def gradients_run(plan: Plan, machine: Machine) -> None:
    """All gradients of a loop cross alike."""
    sent = [cut for cut in plan.cuts if cut.channel in GRADIENTS]
    learning = {node.id for node in plan.graph.where(domain="learn", role="learning")}
    for cut in sent:
        if (cut.source, cut.what) != (cut.target, "gradients") or cut.source not in learning:
            raise _unfit(plan, cut, "which is no gradient", "leave it to headrace.graph.cut(...)")
        if cut.channel != sent[0].channel:
            raise _unfit(plan, cut, f"and '{sent[0].source}' by '{sent[0].channel}'", "send all gradients one way")
        if cut.staleness and cut.channel == "reduce":
            raise _unfit(plan, cut, "which waits for all replicas", "use staleness 0")
    missing = learning - {cut.source for cut in sent}
    if sent and missing:
        raise PlanError(
            f"policy '{plan.policy}' sends gradients, but not those of '{_first(missing)}'; "
            "leave it to headrace.graph.cut(..., gradients=...)."
        )
    _alike(plan, sent)
    if plan.gradients == "central" and all(fragment.nodes for fragment in plan.fragments):
        raise PlanError(
            f"policy '{plan.policy}' sends gradients to be applied in one place, but has no fragment for it; "
            "add one without nodes."
        )


def _alike(plan: Plan, cuts: list[Cut]) -> None:
    """One bound holds for all that one side reads."""
    for cut in cuts:
        if cut.staleness != cuts[0].staleness:
            why = f"with staleness {cut.staleness}, and '{cuts[0].what}' with {cuts[0].staleness}"
            raise _unfit(plan, cut, why, "use one staleness: one bound holds for both")


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


def _named(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


EXECUTED = (fragments_run, replicas_run, passes_run, places_run, channels_run, gradients_run)
