"""The operations that the library's own functions are made of: bits, words, casts."""

from __future__ import annotations

from typing import Any

import numpy as np

from symgrad.expr import references
from symgrad.expr.graph.node import Op
from symgrad.expr.ops.law import exact

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

# --- bits and words -------------------------------------------------------------------------------

float_bits = Op(
    name="float_bits", signature="f->u", meaning="the 32 bits of a float",
    reference=lambda x: np.asarray(x, dtype=np.float32).view(np.uint32),
    llvm="bitcast {f} {0} to {u}", wgsl="bitcast<u32>({0})", points=((1.5,),),
)
bits_float = Op(
    name="bits_float", signature="u->f", meaning="the float with these 32 bits",
    reference=lambda x: np.asarray(x, dtype=np.uint32).view(np.float32),
    llvm="bitcast {u} {0} to {f}", wgsl="bitcast<f32>({0})", points=((0x3FC00000,),),
)
word_add = Op(
    name="word_add", signature="uu->u", reference=np.add, meaning="a + b modulo 2**32",
    llvm="add {u} {0}, {1}", wgsl="{0} + {1}", latex="{0} + {1}", commutative=True,
    points=((7, 9),),
    laws=lambda a, b: (exact(word_add(a, a.number(0)), a),),
)
word_and = Op(
    name="word_and", signature="uu->u", reference=np.bitwise_and, meaning="the bits in a and in b",
    llvm="and {u} {0}, {1}", wgsl="{0} & {1}", commutative=True, points=((7, 9),),
    laws=lambda a, b: (exact(word_and(a, a.number(0)), a.number(0)),),
)
word_div = Op(
    name="word_div", signature="uu->u", reference=np.floor_divide, meaning="a // b, b > 0",
    llvm="udiv {u} {0}, {1}", wgsl="{0} / {1}", points=((29, 9),),
)
word_sub = Op(
    name="word_sub", signature="uu->u", reference=np.subtract, meaning="a - b modulo 2**32",
    llvm="sub {u} {0}, {1}", wgsl="{0} - {1}", latex="{0} - {1}", points=((29, 9), (9, 29)),
    laws=lambda a, b: (exact(word_sub(a, a.number(0)), a), exact(word_sub(a, a), a.number(0))),
)
word_mul = Op(
    name="word_mul", signature="uu->u", reference=np.multiply, meaning="a * b modulo 2**32",
    llvm="mul {u} {0}, {1}", wgsl="{0} * {1}", latex=r"{0} \, {1}", commutative=True,
    points=((29, 9), (0x12345678, 0x9ABCDEF)),
    laws=lambda a, b: (
        exact(word_mul(a, a.number(0)), a.number(0)), exact(word_mul(a, a.number(1)), a),
    ),
)
word_or = Op(
    name="word_or", signature="uu->u", reference=np.bitwise_or, meaning="the bits in a or in b",
    llvm="or {u} {0}, {1}", wgsl="{0} | {1}", commutative=True, points=((7, 9),),
    laws=lambda a, b: (exact(word_or(a, a.number(0)), a),),
)
word_xor = Op(
    name="word_xor", signature="uu->u", reference=np.bitwise_xor, meaning="the bits in one of them",
    llvm="xor {u} {0}, {1}", wgsl="{0} ^ {1}", commutative=True, points=((7, 9),),
    laws=lambda a, b: (exact(word_xor(a, a.number(0)), a), exact(word_xor(a, a), a.number(0))),
)
word_shift_left = Op(
    name="word_shift_left", signature="uu->u", reference=np.left_shift,
    meaning="a * 2**b modulo 2**32, b < 32",
    llvm="shl {u} {0}, {1}", wgsl="{0} << {1}", points=((29, 9), (0x90000001, 3)),
    laws=lambda a, b: (exact(word_shift_left(a, a.number(0)), a),),
)
word_shift_right = Op(
    name="word_shift_right", signature="uu->u", reference=np.right_shift,
    meaning="a // 2**b, b < 32",
    llvm="lshr {u} {0}, {1}", wgsl="{0} >> {1}", points=((29, 3), (0x90000001, 31)),
    laws=lambda a, b: (exact(word_shift_right(a, a.number(0)), a),),
)
word_lt = Op(
    name="word_lt", signature="uu->b", reference=np.less, meaning="a < b of words",
    llvm="icmp ult {u} {0}, {1}", wgsl="{0} < {1}", points=((7, 9), (0x90000001, 3)),
)
word_eq = Op(
    name="word_eq", signature="uu->b", reference=np.equal, meaning="a == b of words",
    llvm="icmp eq {u} {0}, {1}", wgsl="{0} == {1}", commutative=True, points=((7, 9), (9, 9)),
)
word_min = Op(
    name="word_min", signature="uu->u", reference=np.minimum, meaning="the smaller of two words",
    llvm="c = icmp ult {u} {0}, {1}; select {b} {c}, {u} {0}, {u} {1}", wgsl="min({0}, {1})",
    commutative=True, points=((7, 9), (0x90000001, 3)),
)
word_where = Op(
    name="word_where", signature="buu->u", reference=references.where,
    meaning="the word a where the condition c holds, else b",
    llvm="select {b} {0}, {u} {1}, {u} {2}", wgsl="select({2}, {1}, {0})",
    points=((1, 7, 9), (0, 7, 9)),
)
word_float = Op(
    name="word_float", signature="u->f", meaning="the float with the value of a word below 2**24",
    reference=lambda x: np.asarray(x, dtype=np.float32),
    llvm="uitofp {u} {0} to {f}", wgsl="{f}({0})", points=((29,),),
)
signed_float = Op(
    name="signed_float", signature="u->f", meaning="the float of a word taken as a signed number",
    reference=lambda x: np.asarray(x, np.uint32).view(np.int32).astype(np.float32),
    llvm="sitofp {u} {0} to {f}", wgsl="{f}(bitcast<i32>({0}))", points=((29,), (0xFFFFFFFD,)),
)
nearest_word = Op(
    name="nearest_word", signature="f->u",
    meaning="the whole number nearest to x, |x| < 2**31, as a signed word",
    reference=lambda x: np.round(x).astype(np.int64).astype(np.uint32),
    llvm="r = call {f} @llvm.roundeven.{m}({f} {0}); fptosi {f} {r} to {u}",
    wgsl="bitcast<u32>(i32(round({0})))",
    wgsl_f64="u32(bitcast<u64>(bitcast<f64>(bitcast<u64>({0}) + params.zero) + {whole}) & "
    "0xfffffffflu)", points=((29.3,), (-2.7,)),
)

# --- the device's arithmetic ----------------------------------------------------------------------

wide_div = Op(
    name="wide_div", signature="ff->f", reference=np.true_divide, cost=6,
    meaning="a / b, also where 1/b is subnormal, which some devices flush to 0",
    llvm="fdiv {f} {0}, {1}", wgsl="{0} / {1}", points=((1.5, -0.7), (0.4, 2.0)),
)
ratio = Op(
    name="ratio", signature="ff->f", reference=np.true_divide, cost=4,
    meaning="a / b as the device divides, which may be off by 3 ULP",
    llvm="fdiv {f} {0}, {1}", wgsl="{0} / {1}", points=((1.5, -0.7), (0.4, 2.0)),
)
decay_between = Op(
    name="decay_between", signature="ff->f", reference=references.decay_between, cost=18,
    meaning="exp(-|a - b|), the difference not rounded; 1 where a = b, infinite or not",
    commutative=True, transcendental=True, points=((1.5, -0.25), (0.5, 0.5), (-20.0, 30.0)),
)
root = Op(
    name="root", signature="f->f", reference=np.sqrt, cost=4,
    meaning="the square root as the device has it, which may be off by 3 ULP",
    llvm="call {f} @llvm.sqrt.{m}({f} {0})", wgsl="sqrt({0})", points=((2.0,), (0.3,)),
)
saturate = Op(
    name="saturate", signature="f->f", reference=lambda x: np.clip(x, 0, 1),
    meaning="x limited to [0, 1]; of NaN, some number in [0, 1] or NaN",
    llvm="a = call {f} @llvm.maxnum.{m}({f} {0}, {f} {zero}); "
    "call {f} @llvm.minnum.{m}({f} {a}, {f} {one})",
    wgsl="saturate({0})", points=((0.25,), (-4.0,), (3.0,)),
)

# --- remainders -----------------------------------------------------------------------------------

modulus = Op(
    name="modulus", signature="ff->f", reference=np.remainder, cost=20,
    meaning="a - b*floor(a/b), b >= 0, rounded once",
    points=((7.5, 2.0), (1e30, 3.0)),
)
far_modulus = Op(
    name="far_modulus", signature="ff->f", reference=np.remainder, cost=90,
    meaning="modulus(a, b) where a/b is large, or b very large or small",
    points=((7.5, 2.0), (1e30, 3.0)),
)


# Casts between real numbers and integers of 32 bits, and the bits of random numbers.

uint32 = Op(
    name="uint32", signature="f->u", reference=references.uint32, cost=8,
    meaning="the unsigned integer that is x rounded towards 0, or the nearest one; 0 of NaN",
    exact=lambda x: min(max(int(x), 0), 2**32 - 1), points=((29.7,), (-3.5,), (3e9,)),
)
int32 = Op(
    name="int32", signature="f->u", reference=references.int32, cost=6,
    meaning="the word of the signed integer that is x rounded towards 0, or the nearest; 0 of NaN",
    exact=lambda x: min(max(int(x), -(2**31)), 2**31 - 1) % 2**32,
    points=((29.7,), (-3.5,), (3e9,)),
)
uint32_float = Op(
    name="uint32_float", signature="u->f", reference=lambda w: np.asarray(w, np.float64), cost=5,
    meaning="the word as a real number, rounded once", points=((29,), (0xFFFFFF01,)),
)
int32_float = Op(
    name="int32_float", signature="u->f", cost=9,
    reference=lambda w: np.asarray(w, np.uint32).view(np.int32).astype(np.float64),
    meaning="the word as a signed number, rounded once", points=((29,), (0xFFFFFF01,)),
)


def _threefry(k: int) -> Any:
    return lambda *words: references.threefry(*words)[k]


threefry_first = Op(
    name="threefry_first", signature="uuuu->u", reference=_threefry(0), cost=120,
    meaning="the first word of Threefry-2x32's block (c, d) under the key (a, b), 20 rounds",
    points=((0, 0, 0, 0), (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3)),
)
threefry_second = Op(
    name="threefry_second", signature="uuuu->u", reference=_threefry(1), cost=120,
    meaning="the second word of Threefry-2x32's block (c, d) under the key (a, b), 20 rounds",
    points=((0, 0, 0, 0), (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3)),
)
