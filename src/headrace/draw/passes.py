"""The passes a plan went through, for a person: what the loop recorded, how it was cut, what was fused."""

from __future__ import annotations

from headrace.graph.plan import Fragment, Plan


def show_passes(cut: Plan, fused: Plan) -> str:
    """Before and after, a paragraph for each pass."""
    graph = cut.graph
    lines = [f"trace: {len(graph.nodes)} nodes, {len(graph.edges)} edges"]
    lines += [f"  {node.id} ({node.role}, {node.domain})" for node in graph.nodes]
    lines += ["", f"cut by {cut.policy}: {len(cut.fragments)} fragment(s), {len(cut.cuts)} edge(s) cross"]
    lines += [f"  {fragment.id} x{fragment.replicas}: {', '.join(fragment.nodes) or '-'}" for fragment in cut.fragments]
    lines += ["", "fuse"]
    for before, after in zip(cut.fragments, fused.fragments, strict=True):
        lines += [f"  {after.id}: {said}" for said in _fused(fused, before, after)]
    return "\n".join(lines)


def _fused(plan: Plan, before: Fragment, after: Fragment) -> list[str]:
    said = []
    if before.replicas != after.replicas:
        each = plan.graph.spec.num_envs // after.replicas
        said.append(f"{before.replicas} replicas that share cores become {after.replicas}, of {each} environments each")
    if plan.one_program:
        return [*said, "everything, environment and store included, is one XLA program"]
    for domain, what in (("collect", "acting"), ("learn", "learning")):
        names = [node.id for node in plan.graph.where(domain=domain, kind="stage") if node.id in after.nodes]
        if len(names) > 1:
            said.append(f"{', '.join(names)} are one jitted call ({what})")
    if after.repeat > 1:
        said.append(f"{after.repeat} learning passes are one scan over {after.repeat} batches")
    return said or ["nothing to fuse"]
