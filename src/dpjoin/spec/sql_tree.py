"""SQL as DuckDB parses it: statements as trees, constants as values, and trees as statements again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any

from dpjoin.canonical import shown
from dpjoin.errors import SpecError, suggest
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import check_askable

Node = Mapping[str, Any]
Constant = str | int | float | bool
ACCEPTED = "ask SELECT columns, COUNT(*), SUM(column) or AVG(column) FROM joined WHERE … AND … GROUP BY columns"


class Unsupported(SpecError):
    """The statement is good SQL, but not a linear query that a workload can hold."""


@cache
def _database() -> Any:
    """A DuckDB that holds nothing and opens nothing."""
    import duckdb

    return duckdb.connect(":memory:", config={"enable_external_access": "false"})


@lru_cache(maxsize=64)
def parsed(statement: str) -> Any:
    """The tree of a statement, or of several."""
    import duckdb

    try:
        row = _database().cursor().execute("SELECT json_serialize_sql(CAST(? AS VARCHAR))", [statement]).fetchone()
    except duckdb.Error as error:
        raise SpecError(f"SQL: {statement!r} cannot be read: {str(error).splitlines()[0]}") from None
    return json.loads(row[0])


def expression(text: str) -> Node:
    """The tree of an expression."""
    node: Node = parsed(f"SELECT {text}")["statements"][0]["node"]["select_list"][0]
    return node


def written(text: str, **parts: Any) -> str:
    """A SELECT with some parts of its tree replaced, as a statement again."""
    tree = parsed(text)
    (statement,) = tree["statements"]
    return _unparsed({**tree, "statements": [{**statement, "node": {**statement["node"], **parts}}]})


def _unparsed(tree: Any) -> str:
    given = [json.dumps(tree)]
    return str(_database().cursor().execute("SELECT json_deserialize_sql(CAST(? AS JSON))", given).fetchone()[0])


_EQUALS = {f"COMPARE_{kind}" for kind in ("EQUAL", "NOTEQUAL", "IN", "NOT_IN", "DISTINCT_FROM", "NOT_DISTINCT_FROM")}


def _text(node: Node) -> str | None:
    """The value of a literal that is text."""
    if node["class"] != "CONSTANT" or _is_null(node):
        return None
    try:
        value = constant(node)
    except Unsupported:
        return None
    return value if isinstance(value, str) else None


def with_bins(schema: Schema, statement: str) -> str:
    """A statement for rows with numbers: where it takes a column to be equal to a bin, that is the column of bins."""
    labels = {a.name: a.labels for a in schema.attributes if a.bins is not None}

    def renamed(node: Any, texts: set[str]) -> Any:
        attribute = matching(schema, str(node["column_names"][-1])) if node.get("class") == "COLUMN_REF" else None
        if attribute is None or texts.isdisjoint(map(str, labels.get(attribute, ()))):
            return changed(node)
        return {**node, "column_names": [*node["column_names"][:-1], bins_name(schema, attribute)]}

    def changed(node: Any) -> Any:
        if isinstance(node, list):
            return [changed(child) for child in node]
        if not isinstance(node, Mapping):
            return node
        if node.get("type") not in _EQUALS:
            return {key: changed(child) for key, child in node.items()}
        sides = {key: node[key] for key in ("left", "right", "children") if key in node}
        listed = [part for side in sides.values() for part in (side if isinstance(side, list) else [side])]
        texts = {text for text in map(_text, listed) if text is not None}
        found = {
            key: [renamed(s, texts) for s in side] if isinstance(side, list) else renamed(side, texts)
            for key, side in sides.items()
        }
        return {**node, **found}

    tree = parsed(statement)
    if tree.get("error") or len(tree["statements"]) != 1:
        return statement
    mended = changed(tree)
    return statement if mended == tree else _unparsed(mended)


def rows_of(statement: str, **tables: Any) -> list[tuple[Any, ...]]:
    """The result of a statement over Arrow tables."""
    import duckdb

    with _database().cursor() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        try:
            found: list[tuple[Any, ...]] = connection.execute(statement).fetchall()
        except duckdb.Error as error:
            said = str(error).splitlines()[0].partition(": ")[2].rstrip(".")
            raise SpecError(f"SQL: {said}; correct the statement") from None
    return found


def walk(node: Any) -> Iterator[Node]:
    """All expressions of a tree."""
    if isinstance(node, Mapping) and "class" in node:
        yield node
    for child in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
        yield from walk(child)


def in_sql(name: str) -> str:
    """A name as a statement has it: in double quotes where it is a word of SQL, or more than a word.

    >>> in_sql("delay"), in_sql("when"), in_sql("height m")
    ('delay', '"when"', '"height m"')
    """
    plain = re.fullmatch(r"[^\W\d]\w*", name) and not parsed(f"SELECT f({name}), {name} >= 1").get("error")
    return name if plain else '"' + name.replace('"', '""') + '"'


def select_node(statement: str, names: Sequence[str] = ()) -> Node:
    """The one SELECT of the statement, with everything a workload cannot hold refused; columns may have these names."""
    if not isinstance(statement, str) or not statement.strip():
        raise SpecError(f"SQL ({shown(statement)}) must be a statement; {ACCEPTED}")
    tree = parsed(statement)
    if tree.get("error"):
        if "Only SELECT" in tree.get("error_message", ""):
            raise SpecError(f"SQL: only SELECT can be asked; {ACCEPTED}")
        message = tree.get("error_message", "").splitlines()[0]
        named = (name for name in names if re.search(rf"(?i)(?<!\w){re.escape(name)}(?!\w)", statement))
        quoted = [q for name in named if (q := in_sql(name)) != name and q not in statement]
        hint = f"; write {' and '.join(quoted)}, in double quotes" if quoted else ""
        raise SpecError(f"SQL: {statement!r} cannot be read: {message}{hint}")
    if len(tree["statements"]) != 1:
        raise SpecError(f"SQL: one statement at a time, not {len(tree['statements'])}; split them")
    node: Node = tree["statements"][0]["node"]
    if node["type"] != "SELECT_NODE":
        raise Unsupported("SQL: UNION and other set operations cannot be asked; ask each SELECT on its own")
    source = node["from_table"]
    refused = {
        "the tables are joined already; use FROM joined": source["type"] == "JOIN",
        "subqueries cannot be asked; use FROM joined": source["type"] == "SUBQUERY"
        or node.get("cte_map", {}).get("map"),
        f"the only table is joined, the join of all tables; {ACCEPTED}": source["type"] != "BASE_TABLE"
        or source["table_name"].lower() != "joined"
        or source.get("schema_name"),
        "QUALIFY cannot be asked; leave it out and filter the answers": node.get("qualify"),
        "SAMPLE cannot be asked; leave it out": node.get("sample") or source.get("sample"),
        "DISTINCT cannot be asked; use GROUP BY, whose cells are distinct": any(
            m["type"] == "DISTINCT_MODIFIER" for m in node.get("modifiers", ())
        ),
        "ROLLUP, CUBE and GROUPING SETS cannot be asked; ask one GROUP BY for each set": len(node.get("group_sets", ()))
        > 1,
    }
    for reason, found in refused.items():
        if found:
            raise Unsupported(f"SQL: {reason}")
    return node


def column(schema: Schema, node: Node) -> str:
    """The declared attribute a column reference means; case does not matter, as in SQL."""
    name = str(node["column_names"][-1])
    found = matching(schema, name)
    if found is None:
        raise SpecError(f"SQL: {name!r} is not an attribute; {suggest(name, [a.name for a in schema.attributes])}")
    if schema.attribute(found).key:
        raise SpecError(f"SQL: {found!r} is a key that no query can look at; give it values, a range or bins instead")
    check_askable(schema.attribute(found))
    return found


def matching(schema: Schema, name: str) -> str | None:
    """The attribute of that name, or whose bins have it; names of attributes differ in more than case."""
    names = {bins_name(schema, a.name).lower(): a.name for a in schema.attributes if a.bins is not None}
    return (names | {a.name.lower(): a.name for a in schema.attributes}).get(name.lower())


def bins_name(schema: Schema, attribute: str) -> str:
    """What the column of an attribute's bins is called beside that of its numbers."""
    name, taken = f"{attribute}_bin", {a.name.lower() for a in schema.attributes}
    while name.lower() in taken:
        name += "_"
    return name


def arguments(node: Node) -> list[Node]:
    """A function's arguments; versions of DuckDB print them in two ways."""
    return [a["expression"] for a in node["arguments"]] if "arguments" in node else list(node.get("children", ()))


def is_constant(node: Node) -> bool:
    """Whether an expression is made of literals, with signs and the like; NULL is none."""
    return all(
        e["class"] in ("CAST", "TYPE")
        or (e["class"] == "CONSTANT" and not _is_null(e))
        or (e["class"] == "FUNCTION" and e["function_name"] in ("-", "+", "*", "/"))
        for e in walk(node)
    )


def _is_null(node: Node) -> bool:
    """Versions of DuckDB print literals in two ways."""
    return "NULL" in node.get("literal", {}).get("kind", "") or bool(node.get("value", {}).get("is_null"))


def constants(nodes: Sequence[Node]) -> list[Constant]:
    """The values of constants; DuckDB works them out."""
    values: Sequence[Any] = [None]
    if all(map(is_constant, nodes)):
        (values,) = rows_of(written("SELECT 1", select_list=list(nodes)))
    found = [float(v) if isinstance(v, Decimal) else str(v) if isinstance(v, date) else v for v in values]
    if not all(isinstance(v, str | int | float) for v in found):
        raise Unsupported(
            "SQL: a column can only be compared with text, a number, true or false; write the constant out"
        )
    return found


def constant(node: Node) -> Constant:
    return constants([node])[0]
