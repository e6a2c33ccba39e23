"""Specs that are compared."""

from __future__ import annotations

import json

from dpjoin.spec.workload import Workload, group_to_json


def same_workload(first: Workload, second: Workload) -> bool:
    """Whether two workloads ask the same; marginals may have moved to the front."""
    described = [sorted(json.dumps(group_to_json(g)) for g in w.groups) for w in (first, second)]
    return first.schema == second.schema and described[0] == described[1]
