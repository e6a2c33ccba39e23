"""Release folders: the manifest, the arrays of the model, the synthetic rows, the page.

A folder is written completely or not at all, and reading it back gives an equal release.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from dpjoin import __version__
from dpjoin.canonical import shown
from dpjoin.errors import BudgetError, DpjoinError, ReleaseError
from dpjoin.model.joined import Joined
from dpjoin.model.model import Misfit, Model, state_of
from dpjoin.model.terms import Domain, Terms
from dpjoin.model.triangulate import tree_of
from dpjoin.model.union import Part, Union
from dpjoin.privacy.accounting import GAUSSIAN, ZERO_CONCENTRATED, Budget
from dpjoin.released.ledger_json import ledger_from_json, ledger_to_json
from dpjoin.released.package import ROWS_FILE, described, package_files
from dpjoin.released.release import Release
from dpjoin.spec.persons import describe_owners, protects
from dpjoin.spec.plain import ROW, schema_from_dict, schema_to_dict, workload_from_dict, workload_to_dict
from dpjoin.spec.schema import describe_bounds
from dpjoin.spec.workload import group_to_json, products_from_json

FORMAT, UNION_FORMAT, FACTORED_FORMAT = 1, 2, 3
"""The layout of a folder. The second is for what a reader of the first would get wrong without noticing: several
models that add up or are joined, and cells known to be empty. The third is for a model on a junction tree."""

MANIFEST, MODEL = "manifest.json", "model.npz"

ASSUMPTIONS = (
    "The spec (schema, domains, workload, budget) was written without looking at the private rows.",
    "Each private table comes from its own source: one row is in one table.",
    "Running time and memory are not hidden.",
)


def save(release: Release, folder: str | Path, *, texts: Mapping[str, str] | None = None) -> Path:
    """Write the release folder: all of it or nothing. The folder must not exist yet.

    `texts` are more public texts that belong in it, by file name.
    """
    import pyarrow.parquet as pq

    from dpjoin.released.report.page import REPORT, report_page

    folder = path_of(folder)
    check_new(folder)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        manifest = manifest_of(release)
        np.savez_compressed(partial / MODEL, **arrays_of(release))
        rows = described(release.schema, release.synthetic)
        pq.write_table(rows, partial / ROWS_FILE, compression="zstd")
        written = package_files(manifest, rows.schema, _sha256(partial / ROWS_FILE)) | dict(texts or {})
        for name, content in written.items():
            (partial / name).write_text(content, encoding="utf-8")
        # The page has the hashes of the other files, and the manifest that of the page.
        page = report_page(release, manifest, _hashes(partial))
        (partial / REPORT).write_text(page, encoding="utf-8")
        hashes = _hashes(partial)
        text = json.dumps(manifest | {"sha256": hashes}, indent=1)
        # Lists of numbers read better on one line.
        text = re.sub(r"\[\s+([-\d\s,.e]+?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text)
        (partial / MANIFEST).write_text(text + "\n", encoding="utf-8")
        os.rename(partial, folder)
    except OSError as error:
        reason = error.strerror or str(error).partition("\n")[0]
        raise ReleaseError(f"{folder}: the release cannot be written: {reason}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # gone already, unless something stopped it
    return folder


def report_of(folder: Path) -> str:
    """The page of a release folder, worked out from what else is in it."""
    from dpjoin.released.report.page import report_page

    release = load(folder)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    try:
        return report_page(release, manifest, manifest.get("sha256", {}))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _damaged(folder) from None


def _hashes(folder: Path) -> dict[str, str]:
    return {file.name: _sha256(file) for file in sorted(folder.iterdir())}


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def path_of(folder: object) -> Path:
    if not isinstance(folder, str | os.PathLike):
        raise ReleaseError(f"a release folder ({shown(folder)}) must be a path")
    return Path(folder)


def check_new(folder: Path) -> None:
    if folder.exists():
        raise ReleaseError(f"{folder}: the output folder exists already; choose another with -o, or remove it")


def load(folder: str | Path) -> Release:
    """Open a release folder."""
    folder = path_of(folder)
    damaged = _damaged(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        with np.load(folder / MODEL, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise ReleaseError(f"{folder}: not a release folder (manifest.json or model.npz is missing)") from None
    except (OSError, ValueError, BadZipFile):
        raise damaged from None
    if not isinstance(manifest, dict):
        raise damaged
    if manifest.get("format") not in (FORMAT, UNION_FORMAT, FACTORED_FORMAT):
        raise ReleaseError(
            f"{folder}: format ({manifest.get('format')}) must be {FORMAT}, {UNION_FORMAT} or {FACTORED_FORMAT}; "
            "use the matching dpjoin"
        )
    try:
        return _assembled(manifest, arrays)
    except BudgetError as error:
        raise ReleaseError(f"{folder}: {error}; do not trust its guarantee") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, DpjoinError):
        raise damaged from None


def _damaged(folder: Path) -> ReleaseError:
    return ReleaseError(f"{folder}: the release cannot be read; it is damaged or not one of ours")


def manifest_of(release: Release) -> dict[str, Any]:
    """The self-description of a release folder."""
    model = release.model
    schema = schema_to_dict(release.schema)
    for table in schema["tables"].values():
        table.pop("source", None)
    return {
        "dpjoin": __version__,
        "format": _format(model),
        "guarantee": guarantee(release),
        "assumptions": [
            f"Neighbouring inputs differ by {protects(release.schema)}.",
            *ASSUMPTIONS,
            *describe_owners(release.schema),
            *describe_bounds(release.schema),
        ],
        "method": release.method,
        "profile": release.profile,
        "facts": dict(release.facts),
        "rows": {"count": release.synthetic.num_rows, "each_stands_for": release.rows_stand_for},
        "schema": schema,
        "workload": workload_to_dict(release.workload),
        "ledger": ledger_to_json(release.ledger),
        "model": {"left": list(model.domain.left), "right": list(model.domain.right), **_written(model)[0]},
    }


def guarantee(release: Release) -> dict[str, Any]:
    """What is promised, and what the ledger adds up to."""
    budget, ledger = release.budget, release.ledger
    spent: dict[str, Any] = {"composition": ledger.composition}
    if ledger.composition in (ZERO_CONCENTRATED.value, GAUSSIAN.value):
        spent |= {"rho": str(ledger.rho), "truncation_delta": str(ledger.delta)}
        spent |= {"conversion_delta": str(ledger.conversion_delta(Fraction(budget.delta)))}
        spent |= {"laplace_epsilon": str(ledger.epsilon)} if ledger.epsilon else {}
    else:
        spent |= {"epsilon": str(ledger.epsilon), "delta": str(ledger.delta)}
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "definition": "(epsilon, delta)-differential privacy",
        "unit": list(release.schema.unit) or ROW,
        "neighbours": protects(release.schema),
        "spent": spent,
    }


def _assembled(manifest: Mapping[str, Any], arrays: Mapping[str, Any]) -> Release:
    """A release from the contents of its folder."""
    schema = schema_from_dict(manifest["schema"])
    described = manifest["model"]
    domain = _domain(described, schema.shape(described["left"] + described["right"]))
    asked = manifest["guarantee"]
    return Release(
        schema,
        workload_from_dict(schema, manifest["workload"]),
        Budget(epsilon=asked["epsilon"], delta=asked["delta"]),
        manifest["method"],
        manifest["profile"],
        _read(domain, described, arrays),
        ledger_from_json(manifest["ledger"]),
        manifest["facts"],
    )


def arrays_of(release: Release) -> dict[str, Any]:
    """The arrays of the model file."""
    return _written(release.model)[1]


# -- models ------------------------------------------------------------------------------------------


def _format(model: Part | Union) -> int:
    """The oldest layout that says all there is to say of a model."""
    if isinstance(model, Model) and model.tree is not None:
        return FACTORED_FORMAT
    return FORMAT if isinstance(model, Model) and model.support is None else UNION_FORMAT


def _written(model: Part | Union) -> tuple[dict[str, Any], dict[str, Any]]:
    """A model as a description for the manifest, and as arrays; those of inner models have a prefix."""
    arrays: dict[str, Any] = {}

    def inner(prefix: str, models: Sequence[Part]) -> list[dict[str, Any]]:
        found = [_written(m) for m in models]
        arrays.update({f"{prefix}{i}.{name}": a for i, (_, own) in enumerate(found) for name, a in own.items()})
        return [told for told, _ in found]

    if isinstance(model, Union):
        told = zip(model.names, inner("part", model.parts), strict=True)
        return {"parts": [{"name": name, **part} for name, part in told]}, arrays
    if isinstance(model, Joined):
        arrays |= {f"codes{i}": codes for i, codes in enumerate(model.codes.values())}
        domains = [t.domain for t in model.tables]
        # The attribute that numbers listed values is not in the schema, so sizes are told.
        sizes = [{"left": list(d.left), "right": list(d.right), "sizes": list(d.shape)} for d in domains]
        tables = [own | table for own, table in zip(sizes, inner("table", model.tables), strict=True)]
        return {"listed": model.listed, "codes": list(model.codes), "tables": tables}, arrays
    arrays |= state_of(model)
    described: dict[str, Any] = {"known": [sorted(scope) for scope in model.known]}
    if model.tree is not None:
        described["factored"] = [list(c) for c in model.tree.cliques]
        described["left_out"] = [list(m.scope) for m in model.misfits]
    elif isinstance(model.terms, Terms):
        described["cliques"] = [list(c) for c in model.terms.cliques]
        described["products"] = [group_to_json(p) for p in model.terms.products]
    return described, arrays


def _read(domain: Domain, described: Mapping[str, Any], arrays: Mapping[str, Any]) -> Part | Union:
    """The inverse of `_written`."""
    if "parts" not in described:
        return _part(domain, described, arrays)
    parts = tuple(_part(domain, part, _under(f"part{i}.", arrays)) for i, part in enumerate(described["parts"]))
    return Union(parts, tuple(str(part["name"]) for part in described["parts"]))


def _under(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of an inner model, under the names they have in a model of its own."""
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


def _part(domain: Domain, described: Mapping[str, Any], arrays: Mapping[str, Any]) -> Part:
    """A model, or a join of one per table."""
    if "tables" not in described:
        return _model(domain, described, arrays)
    tables = (
        _model(_domain(table, map(int, table["sizes"])), table, _under(f"table{i}.", arrays))
        for i, table in enumerate(described["tables"])
    )
    codes = {str(a): arrays[f"codes{i}"] for i, a in enumerate(described["codes"])}
    return Joined(domain, tuple(tables), described["listed"], codes)


def _domain(described: Mapping[str, Any], sizes: Iterable[int]) -> Domain:
    left, right = tuple(described["left"]), tuple(described["right"])
    return Domain(left, right, dict(zip(left + right, sizes, strict=True)))


def _model(domain: Domain, described: Mapping[str, Any], arrays: Mapping[str, Any]) -> Model:
    """One model: a table, terms on a domain that can be written down, or a junction tree."""
    members = zip(arrays.get("member_potentials", ()), map(float, arrays.get("member_totals", ())), strict=True)
    common: dict[str, Any] = {
        "potentials": arrays.get("potentials"),
        "members": tuple(members),
        "floor": float(arrays["floor"][0]),
        "known": tuple(frozenset(s) for s in described["known"]),
        "deviations": tuple(map(float, arrays["deviations"])),
        "shared": float(arrays["shared"][0]) if "shared" in arrays else 0.0,
    }
    total = float(arrays["total"][0])
    if "factored" in described:
        tree = tree_of({a: domain.sizes[a] for a in domain.attributes}, map(tuple, described["factored"]))
        tree.check()
        if arrays["potentials"].shape != (tree.size,):
            raise ValueError("a factored model must have one potential per clique cell")
        left_out = zip(described["left_out"], arrays["misfits"].tolist(), strict=True)
        misfits = tuple(Misfit(tuple(scope), ratio, deviation) for scope, (ratio, deviation) in left_out)
        return Model(domain, total, terms=tree, misfits=misfits, **common)
    terms = None
    if "cliques" in described:
        support = None
        if "support" in arrays:
            cells = np.unpackbits(arrays["support"], count=domain.cells).astype(np.bool_)
            support = cells.reshape(domain.rows, domain.columns)
        products = tuple(products_from_json(domain.sizes, p) for p in described["products"])
        terms = Terms(domain, tuple(map(tuple, described["cliques"])), products, support)
    unsure = float(arrays["unsure"][0]) if "unsure" in arrays else 0.0
    return Model(domain, total, terms=terms, plain=arrays.get("plain"), unsure=unsure, **common)
