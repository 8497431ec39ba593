"""Eight float64 side by side in a compiled loop: loads, stores, arithmetic and the exponential.

LLVM vectorises a loop over 22 domains badly (a remainder of 6, a check for overlap each time) and calls the library's
scalar exponential for every entry. These few operations say what is meant: a value of type `Lanes` is a vector of
LLVM's own, which becomes one AVX-512 register, two of AVX2 or four of NEON. Every lane is rounded as a scalar would
be, and sums over lanes go pairwise in a fixed order, so results depend on no width and on no number of threads. A
product and its sum are rounded once where the processor can (``fmuladd``), twice elsewhere.

Rows need not be padded: loads and stores take the number of lanes that are there.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

__all__ = ["WIDTH", "exp", "fill", "fma", "largest", "load", "minus", "over", "pairwise_sum", "plus", "store", "upper"]

WIDTH = 8
_DOUBLE = ir.DoubleType()
_VECTOR = ir.VectorType(_DOUBLE, WIDTH)
_WHOLE = ir.VectorType(ir.IntType(64), WIDTH)
_MASK = ir.VectorType(ir.IntType(1), WIDTH)


class _LanesType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Lanes")


_LANES = _LanesType()


def _operation(function: Callable[..., Any]) -> Any:
    """Numba's `intrinsic`; the typing context, its first argument, is not the caller's to give."""
    return intrinsic(function)


@register_model(_LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _VECTOR)


def _splat(builder, value, vector=_VECTOR):
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)


def _constant(value):
    return ir.Constant(_VECTOR, [float(value)] * WIDTH)


def _there(builder, count):
    """Which lanes are below ``count``."""
    lanes = ir.Constant(_WHOLE, list(range(WIDTH)))
    return builder.icmp_signed("<", lanes, _splat(builder, count, _WHOLE))


def _place(context, builder, array_type, array, offset):
    """Vector at element ``offset`` of a contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), _VECTOR.as_pointer())


def _call(builder, name, result, arguments):
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def _fma(builder, a, b, c):
    return _call(builder, f"llvm.fmuladd.v{WIDTH}f64", _VECTOR, [a, b, c])


def _is_float64(array):
    return isinstance(array, types.Array) and array.dtype == types.float64 and array.layout == "C"


@_operation
def load(typing, array, offset, count, missing):
    """Entries of a contiguous float64 array from flat ``offset`` on; ``missing`` in the lanes from ``count`` on."""
    if not _is_float64(array):
        return None

    def generate(context, builder, signature, arguments):
        values, start, there, default = arguments
        place = _place(context, builder, signature.args[0], values, start)
        name = f"llvm.masked.load.v{WIDTH}f64.p0"
        align = ir.Constant(ir.IntType(32), 8)
        return _call(builder, name, _VECTOR, [place, align, _there(builder, there), _splat(builder, default)])

    return _LANES(array, types.int64, types.int64, types.float64), generate


@_operation
def store(typing, array, offset, count, value):
    """Write the first ``count`` lanes, eight at the most, to a contiguous float64 array from flat ``offset`` on."""
    if not _is_float64(array):
        return None

    def generate(context, builder, signature, arguments):
        values, start, there, lanes = arguments
        place = _place(context, builder, signature.args[0], values, start)
        align = ir.Constant(ir.IntType(32), 8)
        name = f"llvm.masked.store.v{WIDTH}f64.p0"
        _call(builder, name, ir.VoidType(), [lanes, place, align, _there(builder, there)])
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, _LANES), generate


@_operation
def fill(typing, value):
    """The same number in every lane."""
    return _LANES(types.float64), lambda context, builder, signature, arguments: _splat(builder, arguments[0])


@_operation
def fma(typing, a, b, c):
    """``a * b + c``."""
    return _LANES(_LANES, _LANES, _LANES), lambda context, builder, signature, arguments: _fma(builder, *arguments)


@_operation
def plus(typing, a, b):
    """``a + b``."""
    return _LANES(_LANES, _LANES), lambda context, builder, signature, arguments: builder.fadd(*arguments)


@_operation
def minus(typing, a, b):
    """``a - b``."""
    return _LANES(_LANES, _LANES), lambda context, builder, signature, arguments: builder.fsub(*arguments)


@_operation
def over(typing, a, b):
    """``a / b``."""
    return _LANES(_LANES, _LANES), lambda context, builder, signature, arguments: builder.fdiv(*arguments)


def _upper(builder, a, b):
    return builder.select(builder.fcmp_ordered("<", a, b), b, a)


@_operation
def upper(typing, a, b):
    """The larger of a and b, lane by lane; a where either is NaN."""
    return _LANES(_LANES, _LANES), lambda context, builder, signature, arguments: _upper(builder, *arguments)


def _fold(builder, value, join):
    """Join halves, quarters and eighths."""
    for half in (4, 2, 1):
        lanes = [(lane + half) % WIDTH for lane in range(WIDTH)]
        other = builder.shuffle_vector(value, value, ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), lanes))
        value = join(builder, value, other)
    return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))


@_operation
def pairwise_sum(typing, a):
    """Sum over lanes, pairwise."""

    def generate(context, builder, signature, arguments):
        return _fold(builder, arguments[0], lambda builder, x, y: builder.fadd(x, y))

    return types.float64(_LANES), generate


@_operation
def largest(typing, a):
    """Largest lane."""
    return types.float64(_LANES), lambda context, builder, signature, arguments: _fold(builder, arguments[0], _upper)


_LOWEST = -708.0  # below it an exponential counts as 0: what is left are numbers without all digits
_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01  # its last 20 bits are 0: the product with a whole number is exact
_LN2_LOW = 1.90821492927058770002e-10
_ROUNDER = 1.5 * 2.0**52  # added to a number, it leaves the nearest whole number in the last bits
_DEGREE = 13  # of Taylor's series on |r| <= ln(2)/2: the rest is below 5e-18


@_operation
def exp(typing, a):
    """``e^a`` for ``a <= 0``, within 1.5 units in the last place; 0 below -708, NaN of NaN.

    ``e^a = 2^n e^r`` with n the whole number nearest to ``a / ln 2`` and ``r = a - n ln 2`` in two parts.
    """

    def generate(context, builder, signature, arguments):
        value = arguments[0]
        x = _upper(builder, value, _constant(_LOWEST))
        shifted = _fma(builder, x, _constant(_LOG2E), _constant(_ROUNDER))
        whole = builder.fsub(shifted, _constant(_ROUNDER))
        r = _fma(builder, whole, _constant(-_LN2_HIGH), x)
        r = _fma(builder, whole, _constant(-_LN2_LOW), r)
        factorials = np.cumprod(np.arange(1.0, _DEGREE + 1))
        series = _constant(1.0 / factorials[-1])
        for factorial in factorials[-2::-1]:
            series = _fma(builder, series, r, _constant(1.0 / factorial))
        series = _fma(builder, series, r, _constant(1.0))
        exponent = builder.shl(builder.bitcast(shifted, _WHOLE), ir.Constant(_WHOLE, [52] * WIDTH))
        scaled = builder.bitcast(builder.add(builder.bitcast(series, _WHOLE), exponent), _VECTOR)
        tiny = builder.fcmp_ordered("<", value, _constant(_LOWEST))
        return builder.select(tiny, _constant(0.0), scaled)

    return _LANES(_LANES), generate


if config.DISABLE_JIT:  # type: ignore[attr-defined]  # numba makes it at run time
    from spatialpdvi.kernels.simd_fallback import (
        exp,
        fill,
        fma,
        largest,
        load,
        minus,
        over,
        pairwise_sum,
        plus,
        store,
        upper,
    )
