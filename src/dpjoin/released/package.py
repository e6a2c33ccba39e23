"""The release folder as a data package: a card for people and hubs, Frictionless and Croissant for programs.

All of it is a function of the manifest and of the columns' types, so it holds nothing that these do not hold. Names and
labels come from a spec that anybody may have written: in JSON they are text, in the card they are escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpjoin.spec.plain import schema_from_dict

if TYPE_CHECKING:
    import pyarrow as pa

    from dpjoin.spec.schema import Schema

ROWS_FILE = "synthetic.parquet"
NAMESPACE = "urn:dpjoin:terms#"
"""Of what Croissant has no words for: epsilon, delta, unit, neighbours, mechanism."""
PARQUET_TYPE = "application/vnd.apache.parquet"


def described(schema: Schema, table: pa.Table) -> pa.Table:
    """The rows with a description of each column in the schema's metadata."""
    import pyarrow as pa

    fields = [f.with_metadata({"description": told(schema, f.name)}) for f in table.schema]
    about = "Synthetic rows of a differentially private release; nobody's data. See README.md."
    return table.cast(pa.schema(fields, metadata={"description": about}))


def told(schema: Schema, column: str) -> str:
    """What a column is, from the spec alone."""
    declared = {a.name: a for a in schema.attributes}
    if column not in declared:
        return "The number of the row."
    attribute = declared[column]
    tables = " and ".join(schema.tables_with(column))
    rest = "; whatever else is other or missing" if attribute.other else ""
    if attribute.bins is not None:
        labels = attribute.labels[: len(attribute.bins) - 1]
        return f"Of {tables}. Drawn evenly within one of {len(labels)} bins, {labels[0]} to {labels[-1]}{rest}."
    known = attribute.size - attribute.other
    return f"Of {tables}. {'1 value' if known == 1 else f'One of {known:,} values'}{rest}."


def package_files(manifest: Mapping[str, Any], columns: pa.Schema, sha256: str) -> dict[str, str]:
    """The texts of README.md, datapackage.json and croissant.json; the hash is that of the rows."""
    schema = schema_from_dict(manifest["schema"])
    data = (data_package(manifest, schema, columns, sha256), croissant(manifest, schema, columns, sha256))
    frictionless, croissants = (json.dumps(d, indent=1, ensure_ascii=False) + "\n" for d in data)
    return {
        "README.md": card(manifest, schema, columns),
        "datapackage.json": frictionless,
        "croissant.json": croissants,
    }


def title(schema: Schema) -> str:
    return f"Synthetic join of {', '.join(t.name for t in schema.tables)}"


def summary(manifest: Mapping[str, Any]) -> str:
    """What the folder holds, and what is promised."""
    promised, rows = manifest["guarantee"], manifest["rows"]
    each = (
        f", each standing for {rows['each_stands_for']:,.4g} join results" if rows["each_stands_for"] > 1.0001 else ""
    )
    return (
        f"{rows['count']:,} synthetic rows of a join{each}. Made with ({promised['epsilon']:g}, {promised['delta']:g})"
        f"-differential privacy for {promised['neighbours']}."
    )


def mechanisms(manifest: Mapping[str, Any]) -> list[str]:
    """The laws of noise in the ledger, each once."""
    return sorted({str(event["mechanism"]) for event in manifest["ledger"]["events"]})


# -- Frictionless ------------------------------------------------------------------------------------


def data_package(manifest: Mapping[str, Any], schema: Schema, columns: pa.Schema, sha256: str) -> dict[str, Any]:
    """The folder in Frictionless' words."""
    rows = {
        "name": "synthetic",
        "path": ROWS_FILE,
        "format": "parquet",
        "mediatype": PARQUET_TYPE,
        "hash": f"sha256:{sha256}",
        "schema": {"fields": [_field(schema, f) for f in columns]},
    }
    promised = {key: manifest["guarantee"][key] for key in ("epsilon", "delta", "unit", "neighbours")}
    return {
        "name": "dpjoin-release",
        "title": title(schema),
        "description": summary(manifest),
        "resources": [rows],
        "privacy": promised | {"mechanism": mechanisms(manifest)},
    }


def _kind(schema: Schema, column: Any) -> str:
    """The type of a column: string, boolean, integer, number or date.

    Whole numbers of which some are missing are numbers: these readers go through pandas, which makes them floats.
    """
    import pyarrow.types as is_

    kind = column.type.value_type if is_.is_dictionary(column.type) else column.type
    known = {"boolean": is_.is_boolean, "integer": is_.is_integer, "number": is_.is_floating, "date": is_.is_date}
    found = next((name for name, fits in known.items() if fits(kind)), "string")
    gaps = any(a.name == column.name and a.other for a in schema.attributes)
    return "number" if found == "integer" and gaps else found


def _field(schema: Schema, column: Any) -> dict[str, Any]:
    kind = _kind(schema, column)
    made: dict[str, Any] = {"name": column.name, "type": kind, "description": told(schema, column.name)}
    attribute = next((a for a in schema.attributes if a.name == column.name), None)
    if attribute is not None and attribute.values is not None and kind in ("string", "integer"):
        made["categories"] = [label for label in attribute.labels if label is not None]
        made["constraints"] = {"enum": made["categories"]}
    if attribute is not None and attribute.range is not None and kind == "integer":
        made["constraints"] = {"minimum": attribute.range[0], "maximum": attribute.range[1]}
    return made


# -- Croissant ---------------------------------------------------------------------------------------


def croissant(manifest: Mapping[str, Any], schema: Schema, columns: pa.Schema, sha256: str) -> dict[str, Any]:
    """The folder in Croissant's words, with the guarantee in a namespace of our own."""
    types = {"string": "sc:Text", "boolean": "sc:Boolean", "integer": "sc:Integer", "number": "sc:Float"}
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"rows/{i}",
            "name": f.name,
            "description": told(schema, f.name),
            "dataType": types.get(_kind(schema, f), "sc:Date"),
            "source": {"fileObject": {"@id": ROWS_FILE}, "extract": {"column": f.name}},
        }
        for i, f in enumerate(columns)
    ]
    promised = manifest["guarantee"]
    unit = promised["unit"]
    return {
        "@context": _context(),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "dpjoin-release",
        "description": summary(manifest),
        "dp:epsilon": promised["epsilon"],
        "dp:delta": promised["delta"],
        "dp:unit": unit if isinstance(unit, str) else ", ".join(unit),
        "dp:neighbours": promised["neighbours"],
        "dp:mechanism": mechanisms(manifest),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": ROWS_FILE,
                "name": ROWS_FILE,
                "contentUrl": ROWS_FILE,
                "encodingFormat": "application/x-parquet",
                "sha256": sha256,
            }
        ],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "rows", "name": "rows", "field": fields}],
    }


def _context() -> dict[str, Any]:
    """Croissant 1.0's own context, and ours."""
    words = (
        "citeAs column equivalentProperty extract field fileProperty fileObject fileSet format includes isLiveDataset "
        "jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate separator source "
        "subField transform"
    )
    return {word: f"cr:{word}" for word in words.split()} | {
        "@language": "en",
        "@vocab": "https://schema.org/",
        "conformsTo": "dct:conformsTo",
        "cr": "http://mlcommons.org/croissant/",
        "rai": "http://mlcommons.org/croissant/RAI/",
        "data": {"@id": "cr:data", "@type": "@json"},
        "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
        "dct": "http://purl.org/dc/terms/",
        "examples": {"@id": "cr:examples", "@type": "@json"},
        "sc": "https://schema.org/",
        "dp": NAMESPACE,
    }


# -- the card ----------------------------------------------------------------------------------------


def card(manifest: Mapping[str, Any], schema: Schema, columns: pa.Schema) -> str:
    """README.md: front matter that dataset hubs read, then words for people."""
    count = manifest["rows"]["count"]
    sizes = ((1e3, "n<1K"), (1e4, "1K<n<10K"), (1e5, "10K<n<100K"), (1e6, "100K<n<1M"))
    size = next((name for most, name in sizes if count < most), "1M<n<10M")
    # JSON is YAML, so a name cannot end the front matter or begin a key.
    front = {
        "pretty_name": title(schema),
        "size_categories": [size],
        "tags": ["synthetic", "differential-privacy", "tabular"],
        "configs": [{"config_name": "default", "data_files": ROWS_FILE}],
    }
    rows = "\n".join(f"| {escaped(f.name)} | {_kind(schema, f)} | {escaped(told(schema, f.name))} |" for f in columns)
    assumed = "\n".join(f"- {escaped(a)}" for a in manifest["assumptions"])
    warned = "".join(f"- {escaped(w)}\n" for w in manifest["facts"].get("warnings", ()))
    warned = f"\n## Look at this first\n{warned}" if warned else ""
    return f"""---
{chr(10).join(f"{key}: {json.dumps(value)}" for key, value in front.items())}
---
# {escaped(title(schema))}

{escaped(summary(manifest))} The rows are made up, and their answers are noisy.
Further questions cost nothing: the guarantee holds whatever is done with this folder.
{warned}
| column | type | what it is |
|---|---|---|
{rows}

## What the guarantee assumes
{assumed}

## How to ask
```
dpjoin answer FOLDER "SELECT COUNT(*) FROM joined"
```
Counts, sums and averages have error bars this way. `{ROWS_FILE}` has the rows alone; `manifest.json` has every charge
(method {escaped(manifest["method"])}, noise: {escaped(", ".join(mechanisms(manifest)))}) and the hashes of the files.
"""


def escaped(text: str) -> str:
    """Text that Markdown and HTML show as it is, on one line."""
    line = " ".join(str(text).split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]#|!~$])", r"\\\1", line)
