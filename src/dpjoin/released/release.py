"""A Release: a function of public inputs and the Curator's noisy answers, and of nothing else.

Everything here is post-processing. A release can be asked, copied and published freely.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from dpjoin.auto.plan import describe_bounds, describe_join
from dpjoin.errors import BudgetError, DpjoinError, ReleaseError, suggest
from dpjoin.model.factored import FactoredModel, Misfit
from dpjoin.model.joined import Joined
from dpjoin.model.junction import TooLargeError
from dpjoin.model.model import Model, state_of
from dpjoin.model.ratio import average_half_widths, averages
from dpjoin.model.terms import Domain, FloatArray, Terms
from dpjoin.model.threads import one_blas_thread
from dpjoin.model.triangulate import tree_of
from dpjoin.model.union import Part, Union
from dpjoin.privacy.accounting import GAUSSIAN, ZERO_CONCENTRATED, Budget
from dpjoin.privacy.ledger import Ledger
from dpjoin.released.rows import drawn_counts, rows_table, sampled_table, whole_counts
from dpjoin.spec.schema import Schema
from dpjoin.spec.toml import schema_from_dict, schema_to_dict, workload_from_dict, workload_to_dict
from dpjoin.spec.workload import Average, Group, Products, Workload, group_to_json

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT, UNION_FORMAT, FACTORED_FORMAT = 1, 2, 3
"""The layout of a folder. The second is for what a reader of the first would get wrong without noticing: several
models that add up or are joined, and cells known to be empty. The third is for a model on a junction tree."""
MAX_SYNTHETIC_ROWS = 2_000_000
"""Above this join size `synthetic.parquet` is a scaled-down copy, and the manifest says by how much."""
SCALED_ROWS = 1_000_000
WRITTEN_CELLS = 2**22
"""Rows of a join of models with more cells are drawn without writing these down."""

ASSUMPTIONS = (
    "Neighbouring inputs differ by one row added to or removed from one private table.",
    "The spec (schema, domains, workload, budget) was written without looking at the private rows.",
    "Each private table comes from its own source: one row is in one table.",
    "Running time and memory are not hidden.",
)


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """An immutable released model with its guarantee, its ledger and its error bars."""

    schema: Schema
    workload: Workload
    budget: Budget
    method: str
    profile: str
    model: Part | Union
    ledger: Ledger
    facts: Mapping[str, Any]
    """Public facts of the run: the sensitivity bound, the noisy join size, the strategy."""

    def __post_init__(self) -> None:
        self.ledger.check_within(self.budget)

    def __repr__(self) -> str:
        budget = f"epsilon={self.budget.epsilon:g}, delta={self.budget.delta:g}"
        return (
            f"<Release of {describe_join(self.schema)}: {self.method} ({self.profile}), {budget}, "
            f"noisy join size {self.join_size:,}, columns {', '.join(self.attributes)}>"
        )

    def answer(self, workload: Workload | Average | str | None = None) -> FloatArray:
        """One number per query, from the model. Queries may be a statement in SQL, as in `Workload.sql`, with AVG.

        nan for averages of no rows at all.
        """
        return _each(self._checked(workload), self._answer)

    def error(self, workload: Workload | Average | str | None = None, *, coverage: float = 0.9) -> FloatArray:
        """Half-widths of error bars, one per query: public, and meant to cover with the given probability.

        nan where the release knows no bar: queries that look at attributes never measured together.
        """
        if not 0 < coverage < 1:
            raise ReleaseError(f"coverage ({coverage}) must lie between 0 and 1; 0.9 is usual")
        return _each(self._checked(workload), lambda group: self._error(group, coverage))

    def _answer(self, group: Group | Average) -> FloatArray:
        return averages(self.model, group) if isinstance(group, Average) else self.model.answer(group)

    def _error(self, group: Group | Average, coverage: float) -> FloatArray:
        if isinstance(group, Average):
            return average_half_widths(self.model, group, coverage)
        return self.model.error(group, coverage)

    def _checked(self, workload: Workload | Average | str | None) -> Sequence[Group | Average]:
        groups: Sequence[Group | Average]
        if isinstance(workload, str):
            from dpjoin.spec.sql import parse_measures

            groups = parse_measures(self.schema, workload)
        elif isinstance(workload, Average):
            groups = (workload,)
        else:
            groups = (workload or self.workload).groups
        for group in groups:
            for attribute in group.scope:
                if attribute not in self.model.domain.attributes:
                    raise ReleaseError(
                        f"attribute {attribute!r} is not in this release; {suggest(attribute, self.attributes)}"
                    )
        return groups

    @property
    def attributes(self) -> tuple[str, ...]:
        """The columns of the synthetic data."""
        return self.model.domain.attributes

    @property
    def join_size(self) -> int:
        """The noisy size of the join."""
        return int(self.facts["join_size"])

    @property
    def rows_stand_for(self) -> float:
        """How many join results one row of `synthetic.parquet` stands for: 1 unless the join is huge."""
        return self.join_size / int(self.synthetic.num_rows)

    @property
    def _unwritten(self) -> FactoredModel | Joined | None:
        """The model, if its cells are too many to be written down."""
        if isinstance(self.model, FactoredModel):
            return self.model
        return self.model if isinstance(self.model, Joined) and self.model.domain.cells > WRITTEN_CELLS else None

    @cached_property
    def synthetic(self) -> pa.Table:
        """The synthetic rows that are saved with the release: whole rows, adding up to the noisy join size."""
        rows = self.join_size if self.join_size <= MAX_SYNTHETIC_ROWS else SCALED_ROWS
        if (model := self._unwritten) is not None:
            return sampled_table(self.schema, model, rows, np.random.default_rng(0), even=True)
        counts = whole_counts(self.model.table, rows, np.random.default_rng(0))
        return rows_table(self.schema, self.attributes, counts)

    def sample(self, n: int, *, seed: int) -> pa.Table:
        """n independent synthetic rows, in random order."""
        for what, number in (("rows", n), ("seed", seed)):
            if not isinstance(number, int | np.integer) or number < 0:
                raise ReleaseError(f"{what} ({number!r}) must be a whole number, at least 0")
        rng = np.random.default_rng(seed)
        if (model := self._unwritten) is not None:
            return sampled_table(self.schema, model, n, rng)
        counts = drawn_counts(self.model.table, n, rng)
        return rows_table(self.schema, self.attributes, counts, rng.permutation(n))

    def sql(self, statement: str) -> pa.Table:
        """DuckDB SQL over the synthetic rows, as the table `joined`."""
        import duckdb

        with duckdb.connect(config={"enable_external_access": "false"}) as connection:
            connection.register("joined", self.synthetic)
            try:
                return connection.sql(statement).to_arrow_table()
            except duckdb.Error as error:
                raise ReleaseError(f"SQL: {str(error).splitlines()[0]}") from None
            except AttributeError:
                raise ReleaseError("SQL must be a SELECT over the table joined") from None

    # -- files ---------------------------------------------------------------------------------------

    def manifest(self) -> dict[str, Any]:
        """The self-description of a release folder."""
        model = self.model
        schema = schema_to_dict(self.schema)
        for table in schema["tables"].values():
            table.pop("source", None)
        described: dict[str, Any] = {"left": list(model.domain.left), "right": list(model.domain.right)}
        if isinstance(model, Union):
            named = zip(model.names, model.parts, strict=True)
            described["parts"] = [{"name": name, **_described(part)} for name, part in named]
        else:
            described |= _described(model)
        return {
            "dpjoin": _version(),
            "format": _format(model),
            "guarantee": guarantee(self.budget, self.ledger),
            "assumptions": [*ASSUMPTIONS, *describe_bounds(self.schema)],
            "method": self.method,
            "profile": self.profile,
            "facts": dict(self.facts),
            "rows": {"count": self.synthetic.num_rows, "each_stands_for": self.rows_stand_for},
            "schema": schema,
            "workload": workload_to_dict(self.workload),
            "ledger": self.ledger.to_json(),
            "model": described,
        }

    def save(self, folder: str | Path) -> Path:
        """Write the release folder: all of it or nothing. The folder must not exist yet."""
        import pyarrow.parquet as pq

        folder = Path(folder)
        check_new(folder)
        partial = folder.with_name(f".{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir(parents=True)
            text = json.dumps(self.manifest(), indent=1)
            # Lists of numbers read better on one line.
            text = re.sub(r"\[\s+([-\d\s,.e]+?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text)
            (partial / "manifest.json").write_text(text + "\n", encoding="utf-8")
            np.savez_compressed(partial / "model.npz", **_state(self.model))
            pq.write_table(self.synthetic, partial / "synthetic.parquet", compression="zstd")
            os.rename(partial, folder)
        except OSError as error:
            raise ReleaseError(f"{folder}: the release cannot be written: {error.strerror}") from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)  # gone already, unless something stopped it
        return folder


def _each(groups: Sequence[Group | Average], ask: Callable[[Group | Average], FloatArray]) -> FloatArray:
    """What each group gets, one after the other."""
    try:
        # Answers of large models are thousands of small products, for which two threads mostly wait for each other.
        with one_blas_thread():
            return np.concatenate([ask(group) for group in groups]) if groups else np.zeros(0)
    except TooLargeError as error:
        raise ReleaseError(str(error)) from None


def check_new(folder: Path) -> None:
    if folder.exists():
        raise ReleaseError(f"{folder}: the output folder exists already; choose another with -o, or remove it")


def load(folder: str | Path) -> Release:
    """Open a release folder."""
    folder = Path(folder)
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        with np.load(folder / "model.npz", allow_pickle=False) as file:
            state = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise ReleaseError(f"{folder}: not a release folder (manifest.json or model.npz is missing)") from None
    except (OSError, ValueError, BadZipFile):
        raise _damaged(folder) from None
    if not isinstance(manifest, dict):
        raise _damaged(folder)
    if manifest.get("format") not in (FORMAT, UNION_FORMAT, FACTORED_FORMAT):
        raise ReleaseError(
            f"{folder}: format ({manifest.get('format')}) must be {FORMAT}, {UNION_FORMAT} or {FACTORED_FORMAT}; "
            "use the matching dpjoin"
        )
    try:
        return _assembled(manifest, state)
    except BudgetError as error:
        raise ReleaseError(f"{folder}: {error}; do not trust its guarantee") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, DpjoinError):
        raise _damaged(folder) from None


def _damaged(folder: Path) -> ReleaseError:
    return ReleaseError(f"{folder}: the release cannot be read; it is damaged or not one of ours")


def _assembled(manifest: Mapping[str, Any], state: Mapping[str, Any]) -> Release:
    """A release from the contents of its folder."""
    schema = schema_from_dict(manifest["schema"])
    described = manifest["model"]
    names = described["left"] + described["right"]
    domain = Domain(
        tuple(described["left"]), tuple(described["right"]), dict(zip(names, schema.shape(names), strict=True))
    )
    model: Part | Union
    if "parts" in described:
        parts = enumerate(described["parts"])
        models = tuple(_part(domain, part, _under(state, _prefix(i))) for i, part in parts)
        model = Union(models, tuple(str(part["name"]) for part in described["parts"]))
    else:
        model = _part(domain, described, state)
    asked = manifest["guarantee"]
    return Release(
        schema,
        workload_from_dict(schema, manifest["workload"]),
        Budget(epsilon=asked["epsilon"], delta=asked["delta"]),
        manifest["method"],
        manifest["profile"],
        model,
        Ledger.from_json(manifest["ledger"]),
        manifest["facts"],
    )


def _prefix(number: int) -> str:
    """What the names of a part's arrays start with."""
    return f"part{number}."


def _table_prefix(number: int) -> str:
    """What the names of the arrays of a table's model start with."""
    return f"table{number}."


def _under(state: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays of one part or table, under the names they have in a model of its own."""
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}


def _format(model: Part | Union) -> int:
    """The oldest layout that says all there is to say of a model."""
    if isinstance(model, FactoredModel):
        return FACTORED_FORMAT
    return FORMAT if isinstance(model, Model) and model.support is None else UNION_FORMAT


def _described(part: Part) -> dict[str, Any]:
    """A model but for its arrays, for the manifest."""
    if isinstance(part, Joined):
        tables = []
        for table in part.tables:
            # The attribute that numbers listed values is not in the schema, so sizes are told.
            domain = {"left": list(table.domain.left), "right": list(table.domain.right)}
            tables.append({**domain, "sizes": list(table.domain.shape), **_described(table)})
        return {"listed": part.listed, "codes": list(part.codes), "tables": tables}
    described: dict[str, Any] = {"known": [sorted(scope) for scope in part.known]}
    if isinstance(part, FactoredModel):
        return described | {
            "factored": [list(c) for c in part.tree.cliques],
            "left_out": [list(m.scope) for m in part.misfits],
        }
    if part.terms is not None:
        described["cliques"] = [list(c) for c in part.terms.cliques]
        described["products"] = [group_to_json(p) for p in part.terms.products]
    return described


def _state(model: Part | Union) -> dict[str, Any]:
    """The arrays, for saving."""
    if isinstance(model, FactoredModel):
        return state_of(model) | {"misfits": np.array([(m.ratio, m.deviation) for m in model.misfits]).reshape(-1, 2)}
    if isinstance(model, Model):
        return state_of(model)
    if isinstance(model, Joined):
        state = {_codes_name(i): codes for i, codes in enumerate(model.codes.values())}
        inner = {_table_prefix(i): _state(table) for i, table in enumerate(model.tables)}
    else:
        state = {}
        inner = {_prefix(i): _state(part) for i, part in enumerate(model.parts)}
    return state | {prefix + name: array for prefix, arrays in inner.items() for name, array in arrays.items()}


def _codes_name(number: int) -> str:
    """The name of the codes of the listed values in one attribute."""
    return f"codes{number}"


def _part(domain: Domain, described: Mapping[str, Any], state: Mapping[str, Any]) -> Part:
    """A model, or a join of one per table, from its description and its arrays."""
    if "factored" in described:
        return _factored(domain, described, state)
    if "tables" not in described:
        return _model(domain, described, state)
    tables = []
    for i, table in enumerate(described["tables"]):
        left, right = tuple(table["left"]), tuple(table["right"])
        own = Domain(left, right, dict(zip(left + right, map(int, table["sizes"]), strict=True)))
        tables.append(_model(own, table, _under(state, _table_prefix(i))))
    codes = {str(a): state[_codes_name(i)] for i, a in enumerate(described["codes"])}
    return Joined(domain, tuple(tables), described["listed"], codes)


def _products(domain: Domain, described: Mapping[str, Any]) -> Products:
    """Product queries of a model; its attributes need not all be in the schema."""
    parts = tuple((tuple(p["scope"]), np.array(p["weights"], dtype=np.int64)) for p in described["products"])
    for attributes, weights in parts:
        if weights.shape != (len(parts[0][1]), math.prod(domain.sizes[a] for a in attributes)):
            raise ValueError("product queries must have one row each and one column per cell")
    scope = tuple(a for attributes, _ in parts for a in attributes)
    shape = tuple(domain.sizes[a] for a in scope)
    return Products(described["name"], scope, shape, parts, Fraction(described["unit"]))


def _model(domain: Domain, described: Mapping[str, Any], state: Mapping[str, Any]) -> Model:
    """One model from its description and its arrays."""
    terms = None
    if "cliques" in described:
        support = None
        if "support" in state:
            cells = np.unpackbits(state["support"], count=domain.cells).astype(np.bool_)
            support = cells.reshape(domain.rows, domain.columns)
        terms = Terms(
            domain,
            tuple(map(tuple, described["cliques"])),
            tuple(_products(domain, p) for p in described["products"]),
            support,
        )
    return Model(
        domain,
        float(state["total"][0]),
        terms=terms,
        potentials=state.get("potentials"),
        plain=state.get("plain"),
        members=_members(state),
        floor=float(state["floor"][0]),
        unsure=float(state["unsure"][0]) if "unsure" in state else 0.0,
        known=tuple(frozenset(s) for s in described["known"]),
        deviations=tuple(map(float, state["deviations"])),
    )


def _members(state: Mapping[str, Any]) -> tuple[tuple[FloatArray, float], ...]:
    if "member_totals" not in state:
        return ()
    return tuple(zip(state["member_potentials"], map(float, state["member_totals"]), strict=True))


def _factored(domain: Domain, described: Mapping[str, Any], state: Mapping[str, Any]) -> FactoredModel:
    """A model on a junction tree, which its cliques determine."""
    tree = tree_of({a: domain.sizes[a] for a in domain.attributes}, map(tuple, described["factored"]))
    tree.check()
    if state["potentials"].shape != (tree.size,):
        raise ValueError("a factored model must have one potential per clique cell")
    left_out = zip(described["left_out"], state["misfits"].tolist(), strict=True)
    return FactoredModel(
        domain,
        float(state["total"][0]),
        potentials=state["potentials"],
        members=_members(state),
        floor=float(state["floor"][0]),
        known=tuple(frozenset(s) for s in described["known"]),
        deviations=tuple(map(float, state["deviations"])),
        tree=tree,
        misfits=tuple(Misfit(tuple(scope), ratio, deviation) for scope, (ratio, deviation) in left_out),
    )


def guarantee(budget: Budget, ledger: Ledger) -> dict[str, Any]:
    """What is promised, and what the ledger adds up to."""
    spent: dict[str, Any] = {"composition": ledger.composition}
    if ledger.composition in (ZERO_CONCENTRATED.name, GAUSSIAN.name):
        spent |= {"rho": str(ledger.rho), "truncation_delta": str(ledger.delta)}
        spent |= {"conversion_delta": str(ledger.conversion_delta(Fraction(budget.delta)))}
        spent |= {"laplace_epsilon": str(ledger.epsilon)} if ledger.epsilon else {}
    else:
        spent |= {"epsilon": str(ledger.epsilon), "delta": str(ledger.delta)}
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "definition": "(epsilon, delta)-differential privacy",
        "neighbours": "one row added to or removed from one private table",
        "spent": spent,
    }


def _version() -> str:
    from dpjoin import __version__

    return __version__
