"""After a look, what is left of rho may be exchanged for Laplace noise: by noisy numbers, and never for more."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

import dpjoin as dj
from dpjoin.auto import choose as auto
from dpjoin.auto.choose import AutoShares, Forecast, auto_shares, auto_tight
from dpjoin.measure.progress import silent
from dpjoin.methods import per_table
from dpjoin.methods.look import Look
from dpjoin.methods.per_table import per_table_shares, per_table_tight
from dpjoin.methods.remainder import Remainder, remainders
from dpjoin.methods.remainder import after_look_budget as optional
from dpjoin.privacy.accounting import (
    Accountant,
    Concentrated,
    accountant_of,
)
from dpjoin.privacy.curator import Curator
from support.audit import Tape, attach, audited, ledger_violations, tight_run
from support.auto import declared
from support.brute import BruteEngine
from support.remainder import BUDGET, SHARP, only_laplace, settled_on


def test_an_exchange_by_exact_sizes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which noise follows must not depend on what only one of two neighbours has."""

    def by_exact_size(curator: Curator, workload: dj.Workload) -> list[Remainder]:
        few = curator._engine.exact_join_size() < 12
        return remainders(curator, workload)[:1] if few else only_laplace(curator, workload)

    monkeypatch.setattr(per_table, "remainders", by_exact_size)
    monkeypatch.setattr(per_table, "clear_error", lambda *_: None)
    schema = declared("two")
    workload = dj.Workload.marginals(schema, [1, 2])
    names = {t.name: [a for a in t.attributes if a != "A"] for t in schema.tables}
    rows = {t: [{"A": 0, **dict.fromkeys(own, 0)} for _ in range(4)] for t, own in names.items()}
    first = next(iter(rows))
    rows[first] = rows[first][:3]
    other = {**rows, first: rows[first][1:]}
    run = tight_run(
        lambda tables: BruteEngine(schema, tables),
        per_table_shares,
        per_table_tight,
        workload,
        SHARP,
        optional,
    )
    assert any("control flow" in w for w in audited(run, rows, other, SHARP)[0])


def test_a_first_look_that_knows_the_exact_size_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether Laplace noise follows at once must rest on the noisy size alone."""
    early = settled_on("per_table")

    def by_exact_size(look: Look, shares: AutoShares) -> list[Forecast]:
        found: list[Forecast] = early(look, shares)
        return found if look.curator._engine.exact_join_size() < 12 else []

    monkeypatch.setattr(auto, "early_forecasts", by_exact_size)
    schema = declared("two")
    workload = dj.Workload.marginals(schema, [1, 2])
    names = {t.name: [a for a in t.attributes if a != "A"] for t in schema.tables}
    rows = {t: [{"A": 0, **dict.fromkeys(own, 0)} for _ in range(4)] for t, own in names.items()}
    first = next(iter(rows))
    rows[first] = rows[first][:3]
    other = {**rows, first: rows[first][1:]}
    run = tight_run(lambda tables: BruteEngine(schema, tables), auto_shares, auto_tight, workload, SHARP, optional)
    assert any("control flow" in w for w in audited(run, rows, other, SHARP)[0])


def test_an_exchange_that_keeps_all_rho_is_caught() -> None:
    """Laplace noise on top of what rho buys: the accountant would accept it, the audit of the ledger does not."""

    class Greedy(Accountant):
        def exchange(self) -> Fraction:
            assert isinstance(self.limit, Concentrated)
            self.limit = replace(self.limit, epsilon=Fraction(3, 4))
            return Fraction(3, 4)

    schema = declared("two")
    workload = dj.Workload.marginals(schema, [1, 2])
    shares = per_table_shares(optional(BUDGET, workload), schema)
    names = {t.name: [a for a in t.attributes if a != "A"] for t in schema.tables}
    rows = {t: [{"A": 0, **dict.fromkeys(own, 0)}] for t, own in names.items()}
    for kind, caught in ((Accountant, False), (Greedy, True)):
        curator = attach(Curator(BruteEngine(schema, rows), shares.split), Tape())
        honest = accountant_of(shares.split)
        curator._gate = replace(curator._gate, accountant=kind(honest.limit, honest.composition, honest.options))
        per_table_tight(curator, workload, shares, silent)
        assert bool(ledger_violations(curator.ledger, BUDGET)) == caught
