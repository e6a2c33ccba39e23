"""Uniformize: parts cut the join exactly, their caps hold on both neighbours, a row pays for one part only."""

from __future__ import annotations

from fractions import Fraction

import pytest

import dpjoin as dj
from dpjoin.errors import BudgetError, SpecError
from dpjoin.measure.shares import partition_shares
from dpjoin.methods.common_key import check_common
from dpjoin.privacy.accounting import Concentrated
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.parts import Labels, Question
from support.brute import BruteEngine
from support.skewed import GENEROUS, schema_of


def test_a_join_without_a_common_attribute_is_refused() -> None:
    schema = dj.Schema(
        (
            dj.Table(name="r", attributes=("A", "B")),
            dj.Table(name="s", attributes=("B", "C")),
            dj.Table(name="t", attributes=("C", "D")),
        ),
        tuple(dj.Attribute(name=a, range=(0, 2)) for a in "ABCD"),
    )
    with pytest.raises(SpecError, match="all tables share"):
        check_common(schema)


def curator_on_two() -> tuple[Curator, Labels]:
    schema = schema_of("two")
    rows = {"r": [{"A": 1, "p": 0}] * 40, "s": [{"A": 1, "q": 1}] * 30}
    shares = partition_shares(GENEROUS, gauge=False)
    curator = Curator(BruteEngine(schema, rows), shares.split)
    questions = [Question(name=t, rules={t: {}}, by=("A",)) for t in "rs"]
    degrees = curator.noisy_degrees("degrees", questions, shares.degrees, half_width=shares.degrees_width)
    return curator, curator.labels("part", degrees, {(1,): 1})


def test_the_curator_refuses_what_it_cannot_account_for() -> None:
    """Foreign labels, a label name used twice, bounds of another part, a part restricted again."""
    curator, labels = curator_on_two()
    cost = Concentrated(Fraction(1, 1000))
    with pytest.raises(BudgetError, match="made by this Curator"):
        curator.restrict("x", {"x": {"r": {Labels("part", ("A",), {}): 0}}}, [cost])
    with pytest.raises(BudgetError, match="exist already"):
        curator.labels("part", curator._labels[labels], {})
    light, heavy = curator.restrict("parts", {str(b): {t: {labels: b} for t in "rs"} for b in (0, 1)}, [cost, cost])
    bound = heavy.part_bound()
    assert bound.value >= 40
    with pytest.raises(BudgetError, match="minted by this Curator"):
        light.join_size(bound, cost)
    with pytest.raises(BudgetError, match="minted by this Curator"):
        light.join_size(Bound(bound.value), cost)
    with pytest.raises(BudgetError, match="of the whole instance"):
        light.restrict("again", {"again": {}}, [cost])
    with pytest.raises(BudgetError, match="exceeds what is left"):
        heavy.join_size(bound, Concentrated(Fraction(1, 999)))


def test_a_table_that_a_part_does_not_name_is_charged() -> None:
    """Two parts that both hold all of s cost its rows twice."""
    curator, labels = curator_on_two()
    parts = {str(b): {"r": {labels: b}} for b in (0, 1)}
    assert curator.participation(list(parts.values())) == 2
    assert curator.participation([{**rules, "s": rules["r"]} for rules in parts.values()]) == 1
    before = curator.rho_left
    curator.restrict("parts", parts, [Concentrated(Fraction(1, 1000))] * 2)
    assert before - curator.rho_left == Fraction(2, 1000)
