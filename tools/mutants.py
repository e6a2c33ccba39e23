"""Broken versions of a definition that a careless hand might write: weaker, not crashing.

Each operator looks at one node of the code and offers replacements. `KINDS` is their order: a guard that is gone
matters most to privacy, a changed literal least. The first mutant of a definition in that order (and in the order of
its lines) is its main mutant.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Replacement = tuple[ast.AST, str]
"""What stands there instead, and both in one line."""

OPPOSITE_CALLS = {
    "ceil": "floor",
    "floor": "ceil",
    "maximum": "minimum",
    "minimum": "maximum",
    "max": "min",
    "min": "max",
    "all": "any",
    "any": "all",
}
ROUNDINGS = {"ceil", "floor"}
QUANTIFIERS = {"all", "any"}
OPPOSITE_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


@dataclass(frozen=True, eq=False)
class Mutant:
    """One node of one definition, replaced. `apply` and `undo` change the tree it was found in."""

    definition: str
    kind: str
    text: str
    owner: ast.AST
    field: str
    index: int | None
    old: ast.AST
    new: ast.AST
    in_function: bool

    def apply(self) -> None:
        self._put(self.new)

    def undo(self) -> None:
        self._put(self.old)

    def _put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.owner, self.field, node)
        else:
            getattr(self.owner, self.field)[self.index] = node


def mutants(definition: str, node: ast.stmt, *, canonical: frozenset[str] = frozenset()) -> list[Mutant]:
    """All mutants of a definition, the main one first. `canonical` names functions whose call can be skipped.

    >>> broken = mutants("f", ast.parse("def f(x):\\n    return max(x, 1) * 2").body[0])
    >>> [mutant.text for mutant in broken][:2]
    ['max(x, 1) -> min(x, 1)', 'max(x, 1) * 2 -> max(x, 1)']
    """
    found: list[Mutant] = []
    seen: dict[str, int] = {}
    for owner, field, index, old, in_function in _places(node):
        for kind, (new, text) in _replacements(old, canonical, definition=node):
            seen[text] = seen.get(text, 0) + 1
            shown = text if seen[text] == 1 else f"{text} #{seen[text]}"
            fitted = ast.fix_missing_locations(ast.copy_location(new, old))
            found.append(Mutant(definition, kind, shown, owner, field, index, old, fitted, in_function))
    found.sort(key=lambda mutant: list(KINDS).index(mutant.kind))
    return found


def _places(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST, bool]]:
    """Where something can be replaced, in the order of the code: no docstrings, types, messages or decorators."""

    def below(owner: ast.AST, in_function: bool) -> Iterator[tuple[ast.AST, str, int | None, ast.AST, bool]]:
        inside = in_function or isinstance(owner, ast.FunctionDef)
        for field, value in ast.iter_fields(owner):
            if field in ("annotation", "returns", "args") and not isinstance(owner, ast.Call):
                continue
            if field == "decorator_list" and inside:
                continue
            for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.Raise | ast.Assert):
                    continue
                if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                    continue
                if field == "decorator_list":
                    yield from (
                        (child, "keywords", n, word, inside) for n, word in enumerate(getattr(child, "keywords", ()))
                    )
                    continue
                yield owner, field, index, child, inside
                yield from below(child, inside)

    yield from below(node, False)


def _replacements(
    node: ast.AST, canonical: frozenset[str], *, definition: ast.stmt
) -> Iterator[tuple[str, Replacement]]:
    is_constant = isinstance(definition, ast.Assign | ast.AnnAssign)
    for kind, operator in KINDS.items():
        if not is_constant or kind in ("member", "literal"):
            yield from ((kind, found) for found in operator(node))
    if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in canonical:
        yield "canonical", _changed(node, node.args[0])  # a value that is taken as it came
    if is_constant and node is definition.value:  # type: ignore[attr-defined]
        yield from (("value", found) for found in _value(node, ast.unparse(definition).split("=")[0]))


def _line(node: ast.AST, limit: int = 100) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _changed(old: ast.AST, new: ast.AST) -> Replacement:
    return new, f"{_line(old)} -> {_line(new)}"


def _guard(node: ast.AST) -> Iterator[Replacement]:
    """An `if …: raise` that is gone."""
    if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise):
        without: ast.AST = ast.Pass()
        if node.orelse:
            without = copy.copy(node)
            without.test = ast.Constant(False)  # type: ignore[attr-defined]
        yield without, f"if {_line(node.test)}: raise -> nothing"


def _effect(node: ast.AST) -> Iterator[Replacement]:
    """A call for its effect (a check, a charge) that is gone; a local list that stays empty would only crash."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not _fills_local(node.value.func):
        yield ast.Pass(), f"{_line(node)} -> nothing"


def _fills_local(function: ast.expr) -> bool:
    local = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id != "self"
    return local and function.attr in ("append", "extend", "add", "update", "remove")  # type: ignore[attr-defined]


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _renamed(call: ast.Call, name: str) -> ast.Call:
    new = copy.copy(call)
    new.func = copy.copy(call.func)
    setattr(new.func, "id" if isinstance(call.func, ast.Name) else "attr", name)
    return new


def _rounding(node: ast.AST) -> Iterator[Replacement]:
    """Rounded the other way: ceil and floor, the upper and the lower bound, a negated division."""
    if isinstance(node, ast.Call):
        name = _name(node)
        if name in ROUNDINGS:
            yield _changed(node, _renamed(node, OPPOSITE_CALLS[name]))
        for end, other in (("_upper", "_lower"), ("_lower", "_upper")):
            if name.endswith(end):
                yield _changed(node, _renamed(node, name.removesuffix(end) + other))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.BinOp):
        division = node.operand
        negated = division.left
        if isinstance(division.op, ast.FloorDiv) and isinstance(negated, ast.UnaryOp):
            yield _changed(node, ast.BinOp(negated.operand, ast.FloorDiv(), division.right))


def _extreme(node: ast.AST) -> Iterator[Replacement]:
    """The least instead of the largest, or a sign that counts."""
    if isinstance(node, ast.Call):
        name = _name(node)
        if name in OPPOSITE_CALLS and name not in ROUNDINGS | QUANTIFIERS:
            yield _changed(node, _renamed(node, OPPOSITE_CALLS[name]))
        if name == "abs" and len(node.args) == 1:
            yield _changed(node, node.args[0])


def _is_small(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value in (1, 2)


def _unit(node: ast.AST) -> Iterator[Replacement]:
    """One more or one less that is forgotten."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        if _is_small(node.right):
            yield _changed(node, node.left)
        elif _is_small(node.left) and isinstance(node.op, ast.Add):
            yield _changed(node, node.right)


def _factor(node: ast.AST) -> Iterator[Replacement]:
    """A factor, a divisor or a power that is forgotten."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv | ast.Pow):
        if isinstance(node.op, ast.Mult) and isinstance(node.left, ast.Constant):
            yield _changed(node, node.right)
        else:
            yield _changed(node, node.left)


def _filter(node: ast.AST) -> Iterator[Replacement]:
    """A comprehension that takes everything."""
    if isinstance(node, ast.comprehension) and node.ifs:
        new = copy.copy(node)
        new.ifs = []
        yield new, f"if {_line(node.ifs[0])} in a comprehension -> nothing"


def _logic(node: ast.AST) -> Iterator[Replacement]:
    """`not` that is gone, any for all, or for and."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield _changed(node, node.operand)
    if isinstance(node, ast.Call) and _name(node) in QUANTIFIERS:
        yield _changed(node, _renamed(node, OPPOSITE_CALLS[_name(node)]))
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield _changed(node, ast.BoolOp(other, node.values))


def _comparison(node: ast.AST) -> Iterator[Replacement]:
    """A boundary on the other side, or the opposite question."""
    if isinstance(node, ast.Compare):
        for n, sign in enumerate(node.ops):
            new = copy.copy(node)
            new.ops = [*node.ops[:n], OPPOSITE_COMPARISONS[type(sign)](), *node.ops[n + 1 :]]
            yield _changed(node, new)


def _branch(node: ast.AST) -> Iterator[Replacement]:
    """The other branch, always."""
    if isinstance(node, ast.IfExp):
        yield _changed(node, node.orelse)
    if isinstance(node, ast.If) and not isinstance(node.body[-1], ast.Raise):
        new = copy.copy(node)
        new.test = ast.Constant(False)
        yield new, f"if {_line(node.test)} -> if False"


def _term(node: ast.AST) -> Iterator[Replacement]:
    """A term of a sum, or of a union or an intersection, that is forgotten."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.BitAnd | ast.BitOr):
        yield _changed(node, node.left)


def _literal(node: ast.AST) -> Iterator[Replacement]:
    """A neighbouring literal."""
    if isinstance(node, ast.Constant):
        if type(node.value) is bool:
            yield _changed(node, ast.Constant(not node.value))
        elif type(node.value) is int:
            yield _changed(node, ast.Constant({0: 1, 1: 0}.get(node.value, node.value - 1)))


def _assignment(node: ast.AST) -> Iterator[Replacement]:
    """A value that is not stored, or not added."""
    stored = isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple)
    if stored or isinstance(node, ast.AugAssign):
        yield ast.Pass(), f"{_line(node)} -> nothing"


def _swap(node: ast.AST) -> Iterator[Replacement]:
    """Two arguments, or two parts of a result, in the wrong order."""
    if isinstance(node, ast.Call) and len(node.args) >= 2 and not any(isinstance(a, ast.Starred) for a in node.args):
        new = copy.copy(node)
        new.args = [node.args[1], node.args[0], *node.args[2:]]
        yield _changed(node, new)
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
        yield _changed(node, ast.Return(ast.Tuple(node.value.elts[::-1], ast.Load())))


def _skipped(node: ast.AST) -> Iterator[Replacement]:
    """A call that hands its first argument back."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
        yield _changed(node, node.args[0])


def _result(node: ast.AST) -> Iterator[Replacement]:
    """No result."""
    if isinstance(node, ast.Return) and node.value is not None:
        yield _changed(node, ast.Return(ast.Constant(None)))


def _value(node: ast.expr, name: str) -> Iterator[Replacement]:
    """A constant 16 times as large or as small: first what is weaker, to judge by its name."""
    inside = list(ast.walk(node))
    calls = [child for child in inside if isinstance(child, ast.Call)]
    if any(isinstance(child, ast.Set | ast.Tuple | ast.List | ast.Dict) for child in inside):
        return
    if any(_name(call) != "Fraction" for call in calls):  # no number
        return
    whole = all(not isinstance(child, ast.Constant) or type(child.value) is int for child in inside)
    divided = ast.FloorDiv() if whole and not calls else ast.Div()
    small, large = (ast.BinOp(node, sign, ast.Constant(16)) for sign in (divided, ast.Mult()))
    is_upper = any(word in name for word in ("LARGEST", "MOST", "LOWER"))  # 16 times a lower bound is none
    for new in (large, small) if is_upper else (small, large):
        yield _changed(node, new)


def _member(node: ast.AST) -> Iterator[Replacement]:
    """One member fewer of a literal set."""
    if isinstance(node, ast.Set) and len(node.elts) > 1:
        yield ast.Set(node.elts[:-1]), f"{{…, {_line(node.elts[-1])}}} -> without it"


def _open(node: ast.AST) -> Iterator[Replacement]:
    """A class whose instances can be changed."""
    if isinstance(node, ast.keyword) and node.arg == "frozen":
        yield ast.keyword("frozen", ast.Constant(False)), "frozen=True -> frozen=False"


KINDS: dict[str, Callable[[ast.AST], Iterator[Replacement]]] = {
    "guard": _guard,
    "effect": _effect,
    "canonical": lambda node: iter(()),  # see `_replacements`
    "rounding": _rounding,
    "extreme": _extreme,
    "unit": _unit,
    "factor": _factor,
    "filter": _filter,
    "logic": _logic,
    "comparison": _comparison,
    "value": lambda node: iter(()),
    "member": _member,
    "branch": _branch,
    "term": _term,
    "literal": _literal,
    "assignment": _assignment,
    "swap": _swap,
    "skipped": _skipped,
    "open": _open,
    "result": _result,
}
"""Operators, those that matter most to privacy first."""
