"""Shape expressions in an exported program, such as ``Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(-1))``.

PyTorch hands them to ``sympy.sympify``, which evaluates them as Python. So each is parsed first, and is let through
only where it consists of numbers, symbols, arithmetic, comparisons and the functions that PyTorch writes. Numbers and
powers are bounded as well: SymPy works out ``9**9**9`` as soon as it reads it.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache

# Of one expression. A convolutional network with free height and width needs some 2,000 characters in 30 levels.
LONGEST, DEEPEST = 16_384, 100
_CHARACTERS = re.compile(r"[A-Za-z0-9_ +\-*/%(),.<>=!&|~']+")
# What PyTorch calls symbols: s0, u12, zuf3. It counts up to the number of the last one.
SYMBOL = re.compile(r"[A-Za-z_]{1,40}\d{0,6}")
_BARE_SYMBOL = re.compile(r"[A-Za-z_]{1,40}\d{1,6}")
_CONSTANTS = frozenset({"true", "false", "oo", "int_oo", "zoo", "nan"})
_FLOAT = re.compile(r"-?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?|-?inf|nan")
_MOST_INTEGER, _MOST_EXPONENT, _MOST_PRECISION = 1 << 64, 64, 256
# In SymPy's notation (srepr) and in PyTorch's, torch/utils/_sympy/functions.py.
FUNCTIONS = frozenset({
    "Add", "Mul", "Mod", "Max", "Min", "Abs", "And", "Or", "Not", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Equality",
    "Unequality", "GreaterThan", "StrictGreaterThan", "LessThan", "StrictLessThan", "Integer", "Rational", "floor",
    "ceiling", "sqrt", "FloorDiv", "CleanDiv", "CeilDiv", "PythonMod", "ModularIndexing", "Where", "FloatTrueDiv",
    "IntTrueDiv", "FloorToInt", "CeilToInt", "RoundToInt", "TruncToInt", "TruncToFloat", "ToFloat", "Identity",
    "IsNonOverlappingAndDenseIndicator", "BitwiseFn_bitwise_and", "BitwiseFn_bitwise_or", "BitwiseFn_bitwise_xor",
    *(f"OpaqueUnaryFn_{name}" for name in ("sqrt", "exp", "log", "log2", "sin", "cos", "tan", "sinh", "cosh", "tanh",
                                           "asin", "acos", "atan", "asinh")),
})
# The second argument is an exponent, how far is shifted, or how many digits are kept.
POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift", "RShift", "RoundDecimal"})
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_SIGNS = (ast.UAdd, ast.USub, ast.Not, ast.Invert)


@lru_cache(maxsize=4096)
def is_shape_expression(text: str) -> bool:
    """Whether PyTorch may be given it."""
    if len(text) > LONGEST or not _CHARACTERS.fullmatch(text) or _nesting(text) > DEEPEST:
        return False
    try:
        return _is_plain(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # of a text that is no Python, or too much of it
        return False


def _nesting(text: str) -> int:
    """How many parentheses are open at once, and signs in a row, which nest as well."""
    depth = deepest = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        deepest = max(deepest, depth)
    return max(deepest, *map(len, re.findall(r"[-+~ ]+|(?:not )+", text)), 0)


def _is_plain(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=bool() | float()):
            return True
        case ast.Constant(value=int(value)):
            return value < _MOST_INTEGER
        case ast.Name(id=name):
            return name in _CONSTANTS or bool(_BARE_SYMBOL.fullmatch(name))
        case ast.UnaryOp(op=operator, operand=operand):
            return isinstance(operator, _SIGNS) and _is_plain(operand)
        case ast.BinOp(op=ast.Pow(), left=base, right=exponent):
            return _is_power(base, exponent)
        case ast.BinOp(op=operator, left=left, right=right):
            return isinstance(operator, _OPERATORS) and _is_plain(left) and _is_plain(right)
        case ast.BoolOp(values=values):
            return all(map(_is_plain, values))
        case ast.Compare(left=left, ops=operators, comparators=others):
            return all(isinstance(one, _COMPARISONS) for one in operators) and all(map(_is_plain, [left, *others]))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
            return _is_call(name, arguments, keywords)
    return False


def _is_call(name: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> bool:
    match name, arguments:
        case "Symbol", [ast.Constant(value=str(symbol))]:
            return bool(SYMBOL.fullmatch(symbol)) and all(
                isinstance(word.value, ast.Constant) and isinstance(word.value.value, bool) for word in keywords)
        case "Float", [ast.Constant(value=str(number))]:
            return bool(_FLOAT.fullmatch(number)) and all(
                word.arg == "precision" and _small(word.value, _MOST_PRECISION) for word in keywords)
        case power, [base, exponent] if power in POWERS:
            return not keywords and _is_power(base, exponent)
    return name in FUNCTIONS and not keywords and all(map(_is_plain, arguments))


def _is_power(base: ast.expr, exponent: ast.expr) -> bool:
    """Exponents are small numbers or symbols. A power of a power could have any number of digits."""
    nested = any(isinstance(node, ast.Pow) or (isinstance(node, ast.Name) and node.id in POWERS)
                 for node in ast.walk(base))
    return _is_plain(base) and not nested and _is_exponent(exponent)


def _is_exponent(node: ast.expr) -> bool:
    match node:
        case ast.Name() | ast.Call(func=ast.Name(id="Symbol" | "Float")):
            return _is_plain(node) and not (isinstance(node, ast.Name) and node.id in _CONSTANTS)
        case ast.Call(func=ast.Name(id="Integer" | "Rational"), args=arguments, keywords=[]):
            return all(_small(one, _MOST_EXPONENT) for one in arguments)
    return _small(node, _MOST_EXPONENT)


def _small(node: ast.expr, most: int) -> bool:
    match node:
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _small(operand, most)
        case ast.Constant(value=int() | float() as value):
            return value <= most
    return False
