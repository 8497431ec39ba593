"""Eight float64 at once in a compiled loop: loads, stores, arithmetic, the exponential and the logarithm.

LLVM vectorises a loop over, say, 22 domains badly (six domains are left over, and overlap is checked each time) and
calls the scalar exponential of the C library for every entry. The few operations here say what is wanted: a value of
type `Lanes` is one of LLVM's own vectors and becomes one AVX-512 register, two of AVX2 or four of NEON. Every lane is
rounded as a scalar would be, and sums over lanes are pairwise in a fixed order, so results depend neither on the width
of the registers nor on the number of threads. Rows need no padding: loads and stores take the number of lanes that
exist. Nothing here may know what the numbers mean.

Maintainer's note
-----------------
What the code does. Each public function is a numba `intrinsic`: the decorated function gives its types, and
``generate`` emits LLVM instructions through ``llvmlite.ir``. Arithmetic is LLVM's vector ``fadd``, ``fsub`` and
``fdiv``. Two LLVM intrinsics are called by name: ``llvm.masked.load``, which does not touch memory behind the end of a
row (a store must not either: it may belong to another thread), and ``llvm.fmuladd``, which rounds a product and its
sum once where the processor can and twice elsewhere. That one choice is why two kinds of processor can differ in the
last bits. `exp` adds the exponent by integer arithmetic on the bits of the series.

Versions. tests/kernels pass with numba 0.60 (llvmlite 0.43, LLVM 14), the oldest that pyproject.toml allows, and 0.68.1
(llvmlite 0.50). CI runs them with the oldest and with the newest numba.

What a new numba may break. ``numba.core.types``, ``cgutils``, ``models.PrimitiveModel`` and ``context.make_array`` are
not public and may move: the import fails, or the first call of a kernel raises a typing or lowering error. llvmlite is
retiring typed pointers (`_address` casts to one), and LLVM moves the alignment of masked loads from an
argument (here the ``i32`` after the address) to an attribute: both show as an error of LLVM's parser or verifier that
quotes the instruction. Caches need no care: numba keys them by its version and by a kernel's file, `dispatch` by the
content of all files here. It sets an attribute of numba's cache for that, which is not public either.

The fallback. With ``NUMBA_DISABLE_JIT=1`` this module exports the functions of `spatialpdvi.kernels.simd_fallback`
under the same names, in plain NumPy. ``NUMBA_DISABLE_JIT=1 pytest tests/kernels tests/graph`` tests it. It is far too
slow for a real section, but it is the reference for what every operation must return.

A miscompilation shows as wrong numbers without an error. tests/kernels/test_simd.py checks every operation alone,
test_mixture.py checks whole kernels against NumPy. Where the first fails, the fault is here; where only the second
does, run it once more with ``NUMBA_DISABLE_JIT=1``. If it then passes, compare ``.serial`` with ``.parallel`` of the
failing kernel, set ``NUMBA_OPT=0`` and ``NUMBA_CPU_NAME=generic`` to see whether LLVM's optimiser or its code for this
processor is at fault, and read ``kernel.serial.inspect_llvm()`` and ``inspect_asm()``. ``NUMBA_CACHE_DIR`` must be an
empty folder in all of these runs.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

__all__ = [
    "WIDTH",
    "exp",
    "fill",
    "fma",
    "largest",
    "load",
    "log",
    "minus",
    "over",
    "pairwise_sum",
    "plus",
    "store",
    "upper",
]

WIDTH = 8
_DOUBLE = ir.DoubleType()
_VECTOR = ir.VectorType(_DOUBLE, WIDTH)
_WHOLE = ir.VectorType(ir.IntType(64), WIDTH)


class _LanesType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Lanes")


_LANES = _LanesType()


def _operation(function: Callable[..., Any]) -> Any:
    """Apply numba's `intrinsic`, untyped: callers do not give the first argument, the typing context."""
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


def _mask(builder, count):
    """The lanes below ``count``."""
    lanes = ir.Constant(_WHOLE, list(range(WIDTH)))
    return builder.icmp_signed("<", lanes, _splat(builder, count, _WHOLE))


def _address(context, builder, array_type, array, offset):
    """Address of the vector that begins at element ``offset`` of a contiguous array."""
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
    """Load entries of a contiguous float64 array from flat ``offset`` on; lanes from ``count`` on are ``missing``."""
    if not _is_float64(array):
        return None

    def generate(context, builder, signature, arguments):
        values, start, n_lanes, default = arguments
        address = _address(context, builder, signature.args[0], values, start)
        name = f"llvm.masked.load.v{WIDTH}f64.p0"
        align = ir.Constant(ir.IntType(32), 8)
        return _call(builder, name, _VECTOR, [address, align, _mask(builder, n_lanes), _splat(builder, default)])

    return _LANES(array, types.int64, types.int64, types.float64), generate


def _store_first(builder, lanes, address, count):
    """Write fewer lanes than all: four of them, two and one, as far as these are in ``count``.

    Processors without AVX-512 take tens of cycles for a masked store, or have none.
    """
    whole = ir.IntType(64)
    count = builder.select(builder.icmp_signed(">", count, ir.Constant(whole, 0)), count, ir.Constant(whole, 0))
    done = ir.Constant(whole, 0)
    start = builder.bitcast(address, _DOUBLE.as_pointer())
    for size in (4, 2, 1):
        part = builder.icmp_unsigned("!=", builder.and_(count, ir.Constant(whole, size)), ir.Constant(whole, 0))
        with builder.if_then(part):
            here = builder.bitcast(builder.gep(start, [done]), ir.VectorType(_DOUBLE, size).as_pointer())
            builder.store(_lanes(builder, lanes, 0, size), here, align=8)
        done = builder.select(part, builder.add(done, ir.Constant(whole, size)), done)
        lanes = builder.select(part, _lanes(builder, lanes, size, WIDTH), lanes)


def _lanes(builder, value, first, count):
    """``count`` lanes from ``first`` on; lanes beyond the last are any."""
    chosen = [min(first + lane, WIDTH - 1) for lane in range(count)]
    places = ir.Constant(ir.VectorType(ir.IntType(32), count), chosen)
    return builder.shuffle_vector(value, ir.Constant(_VECTOR, ir.Undefined), places)


@_operation
def store(typing, array, offset, count, value):
    """Write the first ``count`` lanes, at most eight, to a contiguous float64 array from flat ``offset`` on."""
    if not _is_float64(array):
        return None

    def generate(context, builder, signature, arguments):
        values, start, n_lanes, lanes = arguments
        address = _address(context, builder, signature.args[0], values, start)
        whole = builder.icmp_signed(">=", n_lanes, ir.Constant(ir.IntType(64), WIDTH))
        with builder.if_else(whole) as (all_lanes, first_lanes):
            with all_lanes:
                builder.store(lanes, address, align=8)
            with first_lanes:
                _store_first(builder, lanes, address, n_lanes)
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
    """Join all lanes: halves first, then quarters, then eighths."""
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


_LOWEST = -708.0  # below it the exponential is taken as 0: e^-709 is a number that lacks digits
_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01  # its last bits are 0, so its product with a small whole number is exact
_LN2_LOW = 1.90821492927058770002e-10
_ROUNDER = 1.5 * 2.0**52  # added to a number, it puts the nearest whole number into the last bits
_DEGREE = 13  # of the Taylor series on |r| <= ln(2)/2; the remainder is below 5e-18


@_operation
def exp(typing, a):
    """``e^a`` for ``a <= 0``, within 1.5 units in the last place; 0 below -708, NaN for NaN.

    ``e^a = 2^n e^r``, where n is the whole number nearest to ``a / ln 2`` and ``r = a - n ln 2`` is computed in two
    parts.
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


_ONE = 0x3FF0000000000000  # the bits of 1.0
_ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of sqrt(1/2)
_MANTISSA = 0x000FFFFFFFFFFFFF
_TERMS = 11  # of the series of the inverse hyperbolic tangent; for |s| <= 0.1716 the remainder is below 2e-18


@_operation
def log(typing, a):
    """The natural logarithm of normal positive numbers, within 2 units in the last place; NaN for NaN.

    ``a = 2^n m`` with m between sqrt(1/2) and sqrt(2), and ``log m = 2 atanh(s)`` with ``s = (m - 1) / (m + 1)``. The
    lanes of other numbers (0, negative, infinite or below 2^-1022) mean nothing.
    """

    def generate(context, builder, signature, arguments):
        value = arguments[0]
        bits = builder.bitcast(value, _WHOLE)

        def whole(number):
            return ir.Constant(_WHOLE, [number] * WIDTH)

        shifted = builder.add(bits, whole(_ONE - _ROOT_HALF))
        exponent = builder.ashr(builder.sub(shifted, whole(_ONE)), whole(52))
        mantissa = builder.add(builder.and_(shifted, whole(_MANTISSA)), whole(_ROOT_HALF))
        m = builder.bitcast(mantissa, _VECTOR)
        # adding the exponent to the last bits of a large number makes a float64 of it: not all processors convert
        magic = builder.bitcast(_constant(_ROUNDER), _WHOLE)
        n = builder.fsub(builder.bitcast(builder.add(magic, exponent), _VECTOR), _constant(_ROUNDER))
        f = builder.fsub(m, _constant(1.0))
        s = builder.fdiv(f, builder.fadd(m, _constant(1.0)))
        square = builder.fmul(s, s)
        series = _constant(2.0 / (2 * _TERMS + 1))
        for term in range(_TERMS - 1, 0, -1):
            series = _fma(builder, series, square, _constant(2.0 / (2 * term + 1)))
        # log m = f - s (f - square * series), which keeps the digits of f where m is close to 1
        rest = builder.fsub(f, builder.fmul(square, series))
        low = _fma(builder, n, _constant(_LN2_LOW), builder.fsub(_constant(0.0), builder.fmul(s, rest)))
        result = _fma(builder, n, _constant(_LN2_HIGH), builder.fadd(f, low))
        return builder.select(builder.fcmp_unordered("uno", value, value), value, result)

    return _LANES(_LANES), generate


if config.DISABLE_JIT:  # type: ignore[attr-defined]  # numba makes it at run time
    from spatialpdvi.kernels.simd_fallback import (
        exp,
        fill,
        fma,
        largest,
        load,
        log,
        minus,
        over,
        pairwise_sum,
        plus,
        store,
        upper,
    )
