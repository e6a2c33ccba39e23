"""SQL as a workload: what is understood, and what is refused with a hint."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpjoin.errors import SpecError
from dpjoin.spec.schema import Attribute, Schema, Table
from dpjoin.spec.sql import Unsupported, parse_groups, read_query, rows_shown
from dpjoin.spec.workload import Average, Kronecker, Workload

SCHEMA = Schema(
    (
        Table(name="flights", attributes=("hour", "origin", "carrier", "delay", "late")),
        Table(name="weather", attributes=("hour", "gate", "miles", "rain")),
    ),
    (
        Attribute(name="hour", key=True),
        Attribute(name="origin", values=("EWR", "JFK", "LGA")),
        Attribute(name="carrier", values=("UA", "AA"), other=True),
        Attribute(name="delay", bins=(-math.inf, 0, 15, 60, math.inf)),
        Attribute(name="late", values=(False, True)),
        Attribute(name="gate", range=(1, 5), other=True),
        Attribute(name="miles", bins=(0, 10, 30)),
        Attribute(name="rain", values=(0, 2, 5)),
    ),
)


def one(statement: str) -> Kronecker:
    (group,) = parse_groups(SCHEMA, statement)
    return group


def row(condition: str) -> tuple[int, ...]:
    """The weights of the one filtered attribute."""
    (factor,) = one(f"SELECT COUNT(*) FROM joined WHERE {condition}").factors
    return factor.row


def test_plain_counts_are_the_marginals_themselves():
    """A count by columns is the group that `marginals` would make, so the two are asked once."""
    assert one("select carrier, origin, count(*) from joined group by all").name == "origin x carrier"
    assert one("SELECT COUNT(*) FROM joined").scope == ()
    workload = Workload.marginals(SCHEMA, 1) + Workload.sql(SCHEMA, "SELECT origin, COUNT(*) FROM joined GROUP BY 1")
    assert len(workload.groups) == len(Workload.marginals(SCHEMA, 1).groups)


def test_names_are_readable():
    """A group's name says what was asked."""
    names = [
        g.name
        for g in parse_groups(
            SCHEMA,
            "SELECT carrier, COUNT(*) AS n, SUM(miles) FROM joined "
            "WHERE origin = 'JFK' AND delay >= 15 AND gate NOT IN (1, 2) GROUP BY carrier",
        )
    ]
    condition = "by carrier where origin = 'JFK' and delay >= 15 and gate not in (1, 2)"
    assert names == [f"count {condition}", f"sum of miles {condition}"]


def test_grouped_columns_need_not_be_selected():
    """GROUP BY decides the cells."""
    assert one("SELECT SUM(rain) FROM joined GROUP BY carrier").answer_shape == (3, 1)


@pytest.mark.parametrize(
    ("condition", "weights"),
    [
        ("origin = 'JFK'", (0, 1, 0)),
        ("'JFK' = origin", (0, 1, 0)),
        ("joined.ORIGIN <> 'JFK'", (1, 0, 1)),
        ("origin IN ('JFK', 'LGA') AND origin <> 'LGA'", (0, 1, 0)),
        ("origin > 'EWR'", (0, 1, 1)),
        ("carrier = 'other'", (0, 0, 1)),
        ("carrier <> 'UA'", (0, 1, 1)),
        ("carrier NOT IN ('UA', 'other')", (0, 1, 0)),
        ("carrier >= 'AA'", (1, 1, 0)),
        ("delay < 15", (1, 1, 0, 0)),
        ("delay >= 60", (0, 0, 0, 1)),
        ("delay >= 0 AND delay < 60.0", (0, 1, 1, 0)),
        ("60 > delay", (1, 1, 1, 0)),
        ("delay = '[0, 15)'", (0, 1, 0, 0)),
        ("delay NOT IN ('[0, 15)')", (1, 0, 1, 1)),
        ("NOT delay < 15", (0, 0, 1, 1)),
        ("miles BETWEEN 10 AND 30", (0, 1)),
        ("miles <= 30", (1, 1)),
        ("late = true", (0, 1)),
        ("gate BETWEEN 2 AND 3.5", (0, 1, 1, 0, 0, 0)),
        ("gate > 3", (0, 0, 0, 1, 1, 0)),
        ("gate = 'other'", (0, 0, 0, 0, 0, 1)),
        ("NOT gate > 3", (1, 1, 1, 0, 0, 0)),
        ("gate NOT BETWEEN 2 AND 4", (1, 0, 0, 0, 1, 0)),
        ("gate > -1", (1, 1, 1, 1, 1, 0)),
        ("rain <> 2", (1, 0, 1)),
        ("late", (0, 1)),
        ("NOT late", (1, 0)),
        ("NOT NOT late", (0, 1)),
        ("late IS TRUE", (0, 1)),
        ("late IS NOT TRUE", (1, 0)),
        ("NOT late IS FALSE", (0, 1)),
        ("carrier IS DISTINCT FROM 'UA'", (0, 1, 1)),
        ("gate IS NOT DISTINCT FROM 2", (0, 1, 0, 0, 0, 0)),
        ("NOT gate IS NOT DISTINCT FROM 2", (1, 0, 1, 1, 1, 1)),
        ("origin = 'JFK' OR origin = 'EWR'", (1, 1, 0)),
        ("NOT (origin = 'JFK' OR origin = 'EWR')", (0, 0, 1)),
        ("NOT (gate > 1 AND gate < 4)", (1, 0, 0, 1, 1, 0)),
        ("gate < 2 OR (gate > 2 AND gate <= 4) OR gate IS NULL", (1, 0, 1, 1, 0, 1)),
        ("gate IS NULL", (0, 0, 0, 0, 0, 1)),
        ("NOT gate IS NULL", (1, 1, 1, 1, 1, 0)),
        ("gate IS NOT NULL", (1, 1, 1, 1, 1, 0)),
        ("origin IS NOT NULL", (1, 1, 1)),
    ],
)
def test_conditions_select_whole_codes(condition, weights):
    """Each condition gives weight one to exactly the codes that satisfy it; `other` compares only as a word."""
    assert row(condition) == weights


def test_a_negated_or_is_one_condition_for_each_column():
    """NOT moves inward, so that several columns may stand under it."""
    group = one("SELECT COUNT(*) FROM joined WHERE NOT (origin = 'JFK' OR late)")
    assert [f.row for f in group.factors] == [(1, 0, 1), (1, 0)]
    assert group.name == "count where origin <> 'JFK' and not late"


@pytest.mark.parametrize("counted", ["1", "'x'", "origin", "carrier", "late"])
def test_counts_of_what_is_never_missing_are_counts(counted):
    """COUNT(1), and COUNT of a column without missing values."""
    assert one(f"SELECT COUNT({counted}) FROM joined").name == "count"


def test_sums_and_filters_on_one_attribute_multiply():
    """SUM(x) WHERE x … adds up only what the filter keeps, bins at their middle."""
    group = one("SELECT SUM(miles) FROM joined WHERE miles < 10")
    assert group.unit * Fraction(int(group.apply(np.array([1, 1]))[0])) == 5


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT COUNT(*) FROM joined WHERE origin = 'JFK' OR late = true", "OR cannot be asked of several"),
        ("SELECT AVG(miles) FROM joined", "put SUM(miles) and COUNT(*) there"),
        ("SELECT AVG(gate) FROM joined", "put SUM(gate) and COUNT(*) WHERE gate <> 'other' there"),
        ("SELECT MAX(miles) FROM joined", "MAX cannot be asked"),
        ("SELECT DISTINCT origin FROM joined", "DISTINCT cannot be asked"),
        ("SELECT COUNT(DISTINCT origin) FROM joined", "DISTINCT inside COUNT"),
        ("SELECT COUNT(gate) FROM joined", "ask COUNT(*) WHERE gate <> 'other'"),
        ("SELECT COUNT(NULL) FROM joined", "ask COUNT(*)"),
        (
            "SELECT CASE WHEN rain > 0 THEN 'wet' END AS sky, COUNT(*) FROM joined GROUP BY sky",
            "GROUP BY takes columns",
        ),
        ("SELECT origin, gate FROM joined LIMIT 5", "columns alone ask for rows"),
        (
            "SELECT origin, COUNT(*) FROM joined GROUP BY 1 HAVING COUNT(*) > 1",
            "HAVING, ORDER BY and LIMIT cannot be asked here",
        ),
        ("SELECT origin, COUNT(*) FROM joined GROUP BY 1 OFFSET 1", "ORDER BY and LIMIT"),
        ("SELECT origin, COUNT(*) FROM joined GROUP BY 1 LIMIT 10%", "ORDER BY and LIMIT"),
        ("SELECT COUNT(*) FROM flights", "the only table is joined"),
        ("SELECT COUNT(*) FROM flights JOIN weather USING (hour)", "the tables are joined already"),
        ("SELECT COUNT(*) FROM (SELECT * FROM joined)", "subqueries cannot be asked"),
        ("WITH j AS (SELECT * FROM joined) SELECT COUNT(*) FROM j", "subqueries cannot be asked"),
        ("SELECT COUNT(*) FROM joined WHERE origin IN (SELECT 'JFK')", "subqueries cannot be asked"),
        ("SELECT SUM(miles * 2) FROM joined", "SUM takes one column"),
        ("SELECT COUNT(*) * 2 FROM joined", "expressions cannot be asked"),
        ("SELECT COUNT(*) FROM joined WHERE miles + 1 > 3", "expressions cannot be asked"),
        ("SELECT COUNT(*) FROM joined WHERE origin LIKE 'J%'", "WHERE takes"),
        ("SELECT COUNT(*) FILTER (WHERE late) FROM joined", "put the condition into WHERE"),
        ("SELECT COUNT(*) OVER () FROM joined", "window functions"),
        ("SELECT origin, COUNT(*) FROM joined GROUP BY ROLLUP (origin)", "ROLLUP"),
        ("SELECT * FROM joined", "SELECT * asks for rows"),
        ("SELECT origin FROM joined GROUP BY origin", "no COUNT(*), SUM"),
        ("SELECT COUNT(*) FROM joined UNION ALL SELECT COUNT(*) FROM joined", "UNION"),
        ("SELECT origin, COUNT(*) FROM joined GROUP BY 1 ORDER BY 2", "ORDER BY and LIMIT"),
        (
            "SELECT origin, COUNT(*) FROM joined WHERE origin <> 'JFK' GROUP BY 1",
            "'origin' is both grouped and filtered",
        ),
        ("SELECT rain, SUM(rain) FROM joined GROUP BY rain", "a count times a constant"),
        ("SELECT rain, AVG(rain) FROM joined GROUP BY rain", "AVG(rain) GROUP BY rain is rain itself"),
    ],
)
def test_what_is_no_linear_query_is_refused_with_a_way_out(statement, words):
    """The message names the part that cannot be asked and what to do instead."""
    with pytest.raises(Unsupported, match=r"^SQL: ") as refused:
        parse_groups(SCHEMA, statement)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELEC COUNT(*)", "cannot be read"),
        ("", "must be a statement"),
        ("SELECT COUNT(*) FROM joined; SELECT COUNT(*) FROM joined", "one statement at a time, not 2"),
        ("DELETE FROM joined", "only SELECT"),
        ("SELECT", "cannot be read"),
        ("SELECT origin, COUNT(*) FROM joined GROUP BY 1 LIMIT -1", "LIMIT/OFFSET cannot be negative"),
        ("SELECT COUNT(*) FROM joined WHERE origin IS NULL", "no value of 'origin' satisfies WHERE origin is null"),
        ("SELECT COUNT(*) FROM joined WHERE carrier IS NULL", "count as 'other'; ask carrier = 'other'"),
        ("SELECT COUNT(*) FROM joined WHERE origin", "must be compared with text, not with true"),
        ("SELECT COUNT(*) FROM joined WHERE origin = 'JFX' OR origin = 'JFK'", "did you mean 'JFK'?"),
        ("SELECT orign, COUNT(*) FROM joined GROUP BY 1", "did you mean 'origin'?"),
        ("SELECT hour, COUNT(*) FROM joined GROUP BY 1", "'hour' is a key"),
        ("SELECT origin, COUNT(*) FROM joined", "add GROUP BY origin"),
        ("SELECT COUNT(*) FROM joined GROUP BY 3", "GROUP BY 3 must be the number"),
        ("SELECT COUNT(*) FROM joined WHERE origin = 'JFX'", "did you mean 'JFK'?"),
        ("SELECT COUNT(*) FROM joined WHERE gate = 9", "it runs from 1 to 5"),
        ("SELECT COUNT(*) FROM joined WHERE origin = 3", "must be compared with text"),
        ("SELECT COUNT(*) FROM joined WHERE gate = 'x'", "must be compared with a number"),
        ("SELECT COUNT(*) FROM joined WHERE late = 1", "must be compared with true or false"),
        ("SELECT COUNT(*) FROM joined WHERE delay = '[0, 16)'", "is not a bin of 'delay'"),
        ("SELECT COUNT(*) FROM joined WHERE delay < true", "has bins"),
        ("SELECT COUNT(*) FROM joined WHERE gate > 3 AND gate < 3", "no value of 'gate' satisfies"),
        ("SELECT SUM(delay) FROM joined", "infinite bin"),
        ("SELECT SUM(origin) FROM joined", "not numeric"),
        ("SELECT SUM(rain) FROM joined WHERE rain = 0", "always 0"),
        (
            "SELECT AVG(delay) FROM joined",
            "infinite bin and cannot be averaged; ask SELECT delay, COUNT(*)",
        ),
        ("SELECT AVG(origin) FROM joined", "not numeric and cannot be averaged; ask SELECT origin, COUNT(*)"),
        ("SELECT origin, COUNT(*) FROM joined GROUP BY 1 OFFSET -1", "LIMIT/OFFSET cannot be negative"),
        ("SELECT origin, COUNT(*) FROM joined GROUP BY 1 HAVING rain > 1", "is of a column that is not grouped"),
        (
            "SELECT origin, COUNT(*) FROM joined GROUP BY 1 HAVING COUNT(*) > 'x'",
            "Could not convert string 'x' to DOUBLE",
        ),
        ("SELECT AVG(gate) FROM joined WHERE gate = 'other'", "AVG(gate) has no values here, only 'other'"),
    ],
)
def test_mistakes_are_named(statement, words):
    """A mistake is not the same as an unsupported statement: it is never answered from the synthetic rows."""
    with pytest.raises(SpecError) as refused:
        parse_groups(SCHEMA, statement)
    assert words in str(refused.value)
    assert not isinstance(refused.value, Unsupported)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT COUNT(*) FROM joined WHERE delay < 10", "splits the bin [0, 15)"),
        ("SELECT COUNT(*) FROM joined WHERE delay < 10", "(-inf, 0, 15, 60, inf)"),
        ("SELECT COUNT(*) FROM joined WHERE delay > 15", "splits the bin [15, 60)"),
        ("SELECT COUNT(*) FROM joined WHERE delay BETWEEN 0 AND 15", "splits the bin [15, 60)"),
        ("SELECT COUNT(*) FROM joined WHERE miles < 30", "splits the bin [10, 30]"),
        ("SELECT COUNT(*) FROM joined WHERE delay = 3", "splits the bin [0, 15)"),
    ],
)
def test_conditions_within_a_bin_are_for_the_synthetic_rows(statement, words):
    """The model knows whole bins only, and says which edges it knows."""
    with pytest.raises(Unsupported) as refused:
        parse_groups(SCHEMA, statement)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("statement", "average", "low", "high"),
    [
        ("SELECT AVG(rain) FROM joined", 7 / 3, 0, 5),
        ("SELECT mean(miles) FROM joined", 12.5, 5, 20),
        ("SELECT AVG(gate) FROM joined", 3, 1, 5),
        ("SELECT AVG(gate) FROM joined WHERE gate <> 2 AND origin = 'JFK'", 13 / 4, 1, 5),
        ("SELECT AVG(rain) FROM joined WHERE rain = 0", 0, 0, 0),
        ("SELECT AVG(late) FROM joined", 0.5, 0, 1),
    ],
)
def test_averages_are_sums_over_counts(statement, average, low, high):
    """With one row in every cell: bins at their middle, `other` left out, filters on the column itself as well."""
    (measure,) = read_query(SCHEMA, statement).measures
    asked = measure.asked
    assert isinstance(asked, Average)
    cells = np.ones(asked.total.cells)
    total = float(asked.total.apply(cells)[0] * asked.total.unit)
    assert total / asked.count.apply(cells)[0] == pytest.approx(average)
    assert (asked.low, asked.high) == (low, high)
    assert asked.total.scope == asked.count.scope


def test_presentation_is_understood_for_answers():
    """An answer may be sorted, cut and restricted to some cells of a grouped column."""
    query = read_query(
        SCHEMA,
        "SELECT COUNT(*) AS n, carrier c FROM joined WHERE carrier <> 'UA' GROUP BY c ORDER BY n DESC, carrier LIMIT 2",
    )
    assert (query.by, query.names) == (("carrier",), ("c",))
    assert dict(query.kept) == {"carrier": frozenset({1, 2})}
    assert query.presented == 'SELECT "row" FROM answers ORDER BY n0 DESC, v0, "row" LIMIT 2'
    assert query.measures[0].title == "n"
    assert query.measures[0].asked.name == "carrier"


@pytest.mark.parametrize(
    ("rest", "rows"),
    [
        ("ORDER BY COUNT(*) DESC", [2, 0, 3, 1]),
        ("ORDER BY SUM(rain) / COUNT(*), n", [3, 1, 2, 0]),
        ("ORDER BY delay DESC LIMIT 50%", [3, 2]),
        ("HAVING n BETWEEN 2 AND 2 * 3", [0, 3]),
        ("HAVING NOT (COUNT(*) > 5 OR delay < 0)", [1, 3]),
        ("HAVING AVG(rain) > 1 OR delay = '[15, 60)'", [0, 2]),
        ("HAVING delay >= 0 ORDER BY 2 LIMIT 2 OFFSET 1", [3, 2]),
    ],
)
def test_answers_are_sorted_and_cut_by_duckdb(rest, rows):
    """By aggregates, selected or not, by expressions of them, and by grouped columns in their order."""
    query = read_query(SCHEMA, f"SELECT delay, COUNT(*) AS n FROM joined GROUP BY delay {rest}")
    count, total, average = np.array([5.0, 1.0, 9.0, 2.0]), np.array([9.0, 1.0, 9.0, 0.0]), np.array([2, np.nan, 1, 0])
    by_title = {"n": count, "sum of rain": total, "average of rain": average, "count": count}
    numbers = [by_title[m.title] for m in (*query.measures, *query.hidden)]
    assert rows_shown(query.presented, [SCHEMA.attribute("delay")], [np.arange(4)], numbers) == rows


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("NOT (gate NOT IN (1, 2))", (1, 1, 0, 0, 0, 0)),
        ("NOT (gate <> 3)", (0, 0, 1, 0, 0, 0)),
        ("NOT (gate <> 'other')", (0, 0, 0, 0, 0, 1)),
        ("gate <= 1 + 1", (1, 1, 0, 0, 0, 0)),
        ("NOT gate BETWEEN -1 AND 3", (0, 0, 0, 1, 1, 0)),
    ],
)
def test_negations_and_constants_are_worked_out(condition, expected):
    """NOT of a comparison by order leaves `other` out, NOT of another one is the rest; constants may be expressions."""
    assert row(condition) == expected
