"""Lower bounds on the largest error of any query: what no (ε, δ)-private algorithm can beat, in join results.

`theorem` is what a theorem states, with 1 for the constant in Ω̃(.). It is about the worst instance and the worst
queries of their size: a release of a tame instance may lie below. The others have all constants.
"""

from __future__ import annotations

import math

from dpjoin.theory.facts import Facts, configurations, uniform_partition
from dpjoin.theory.upper import Task


def theorem(known: Facts, task: Task, method: str) -> float:
    """Theorems 3.5, 1.6, 4.5 and C.3 with 1 for the hidden constant."""
    if method == "uniformize":
        parts = [(size, 2.0**i * task.lam) for i, size in uniform_partition(known, task.lam).items()]
    elif method == "hierarchical":
        parts = [(c.join_size, c.local) for c in configurations(known, task.lam)]
    else:
        parts = [(known.join_size, float(known.local))]
    return max((min(size, math.sqrt(size * bound) * task.f_lower) for size, bound in parts), default=0.0)


def neighbours(sensitivity: float, *, epsilon: float, delta: float, rows: int = 1) -> tuple[float, float]:
    """Theorem 3.4 (B.1) with constants: (error, probability).

    Two instances that differ by so many rows have join sizes `sensitivity`·rows apart. On one of the two every private
    algorithm is off by half of that with at least this probability: the intervals of smaller errors are disjoint, so
    1 - p <= exp(rows·ε)·p + δ·(1 + exp(ε) + … + exp((rows-1)·ε)).

    >>> error, probability = neighbours(10, epsilon=1.0, delta=1e-6)
    >>> error, round(probability, 3)
    (5.0, 0.269)
    """
    group_delta = delta * sum(math.exp(i * epsilon) for i in range(rows))
    return sensitivity * rows / 2, max(0.0, 1 - group_delta) / (1 + math.exp(rows * epsilon))


def fingerprinting(people: int, bits: int, *, epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The hard queries of Theorem 3.5 with constants: root mean square of the error of a bit's count.

    On instances of `hard.with_bits` whose R1 has a row for each person: over the draw of the biases, the people and
    the noise, and for the worse of n and n - 1 people. The largest error of any bit is no smaller. With a = error/n and
    answers in [-1, 1], tracing (docs/report.md, section 7) gives

        (1/3 - a² - 8·n·δ)·sqrt(d) <= sinh(ε)·(n·a + sqrt(8n/15) + sqrt(2/15)).

    Counts of a bit are half as far off as sums of signs, and R2 multiplies them by the sensitivity.

    >>> round(fingerprinting(20, 1024, epsilon=1.0, delta=1e-9), 2)
    2.11
    """
    n, root, growth = float(people), math.sqrt(bits), math.sinh(epsilon)
    # a solves root·a² + growth·n·a - c = 0.
    c = root * (1 / 3 - 8 * n * delta) - growth * (math.sqrt(8 * n / 15) + math.sqrt(2 / 15))
    if c <= 0:
        return 0.0
    a = (-growth * n + math.sqrt((growth * n) ** 2 + 4 * root * c)) / (2 * root)
    return sensitivity * n * a / 2
