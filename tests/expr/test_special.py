"""Special functions: those of arrays, of an order, and SciPy's calls with expressions."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import symgrad as sg
from symgrad.errors import DifferentiationError, TraceError
from symgrad.expr.ops.gamma import BERNOULLI
from symgrad.pipeline import DTypeName

special = pytest.importorskip("scipy.special")

LOGITS = np.array([
    [0.5, -1.0, 2.0], [1000.0, 1000.0, 999.0], [-1000.0, 0.0, 0.0], [0.0, 0.0, 0.0],
    [1e-20, -40.0, -50.0], [3.0, -np.inf, 1.0],
])  # fmt: skip


def exactly(function: Any) -> Any:
    """A function of mpmath's exponentials, of each row."""
    with mpmath.workdps(700):
        return np.array([function([mpmath.mpf(v) for v in row]) for row in LOGITS])


def log_sum(row: Any) -> Any:
    return mpmath.log(sum(mpmath.exp(v) for v in row))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_and_its_logarithm(name: str) -> None:
    kernel = sg.fused_forward(
        3, lambda v: list(getattr(sg, name)(v)), device="cpu", dtype="float64"
    )
    last = mpmath.exp if name == "softmax" else lambda v: v
    want = exactly(lambda row: [float(last(v - log_sum(row))) for v in row])
    np.testing.assert_allclose(np.stack(kernel.run(LOGITS), 1), want, rtol=1e-15, atol=1e-300)


def test_logsumexp_keeps_the_digits_of_small_sums() -> None:
    kernel = sg.fused_forward_backward(3, sg.logsumexp, device="cpu", dtype="float64")
    values, slopes = kernel.run(LOGITS)
    np.testing.assert_allclose(values, exactly(lambda row: float(log_sum(row))), rtol=4e-16)
    np.testing.assert_allclose(slopes, special.softmax(LOGITS, axis=1), rtol=4e-16, atol=1e-300)


def test_logsumexp_counts_equal_elements_and_keeps_infinities() -> None:
    rows = [[2.0, 2.0, 2.0], [3.0, 3.0, -40.0], [-np.inf] * 3, [np.inf, 1.0, np.inf],
            [-np.inf, 0.0, 0.0], [np.nan, 0.0, 0.0]]  # fmt: skip
    kernel = sg.fused_forward(3, sg.logsumexp, device="cpu", dtype="float64")
    want = [np.log(3.0) + 2.0, 3.0 + np.log(2.0 + np.exp(-43.0)), -np.inf, np.inf, np.log(2.0)]
    np.testing.assert_allclose(kernel.run(rows), [*want, np.nan], rtol=4e-16)


def test_second_derivatives_at_ties() -> None:
    kernel = sg.fused_hessian(3, sg.logsumexp, device="cpu", dtype="float64")
    _, _, hessian = kernel.run(np.zeros(3))
    np.testing.assert_allclose(hessian, np.eye(3) / 3 - 1 / 9, atol=1e-16)


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 1)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_axes_are_scipys(axis: Any, keepdims: bool) -> None:
    numbers = np.random.default_rng(0).normal(size=(2, 3))
    want = special.logsumexp(numbers, axis=axis, keepdims=keepdims)
    found = sg.logsumexp(sg.array(sg.symbols("x0:6")).reshape(2, 3), axis=axis, keepdims=keepdims)
    given = {f"x{k}": v for k, v in enumerate(numbers.ravel())}
    elements = np.asarray(sg.array(found), object)
    values = np.reshape([float(sg.evaluate(e, given)) for e in elements.flat], elements.shape)
    assert values.shape == want.shape
    np.testing.assert_allclose(values, want, rtol=1e-15)
    np.testing.assert_allclose(sg.logsumexp(numbers, axis=axis, keepdims=keepdims), want)
    np.testing.assert_allclose(sg.softmax(numbers, axis=axis), special.softmax(numbers, axis=axis))


def test_weights_of_logsumexp() -> None:
    x, y = sg.symbols("x y")
    found = sg.logsumexp(sg.array([x, y]), b=np.array([0.25, 3.0]))
    want = special.logsumexp([800.0, 799.0], b=[0.25, 3.0])
    np.testing.assert_allclose(sg.evaluate(found, {x: 800.0, y: 799.0}), want, rtol=1e-15)


@pytest.mark.parametrize("n", range(8))
@pytest.mark.parametrize("x", [0.01, 0.7, 1.0, 3.5, 40.0, -0.3, -2.6])
def test_polygamma_of_any_order(n: int, x: float) -> None:
    v = sg.var("v")
    want = float(mpmath.psi(n, x))
    for found in (sg.evaluate(sg.polygamma(n, v), {v: x}), sg.polygamma(n, x)):
        np.testing.assert_allclose(float(found), want, rtol=3e-14)


@pytest.mark.parametrize("n", [-1, 0.5])
def test_an_order_is_a_whole_number(n: Any) -> None:
    with pytest.raises(TraceError, match=r"constant whole number n >= 0"):
        sg.polygamma(n, sg.var("x"))


def test_logit_in_float64_keeps_its_digits_next_to_0() -> None:
    """There x/(1 - x) is not x yet."""
    x = np.array([[2e-10], [1e-12], [3e-15], [0.2]])
    made = sg.fused_forward(1, lambda v: sg.logit(v[0]), device="cpu", dtype="float64")
    with mpmath.workdps(40):
        want = [float(mpmath.log(mpmath.mpf(p) / (1 - mpmath.mpf(p)))) for p in x[:, 0].tolist()]
    np.testing.assert_allclose(made.run(x), want, rtol=4e-16)


UFUNCS: list[tuple[str, tuple[float, ...]]] = [
    ("gammaln", (2.5,)), ("psi", (0.7,)), ("digamma", (3.0,)), ("expit", (0.3,)), ("erf", (0.3,)),
    ("erfc", (2.0,)), ("log_expit", (-3.0,)), ("logit", (0.3,)), ("entr", (0.3,)),
    ("xlogy", (0.0, 0.0)), ("xlog1py", (2.0, 0.1)), ("huber", (1.0, -3.0)), ("ndtr", (0.7,)),
    ("betaln", (0.5, 1e9)), ("i0e", (-3.0,)), ("i1e", (-40.0,)),
    ("j0", (-3.0,)), ("j1", (11.0,)),
    ("log_ndtr", (-9.0,)), ("ndtri", (0.1,)), ("erfinv", (0.3,)),
    ("gammainc", (2.5, 1.5)), ("gammaincc", (2.5, 9.0)), ("gammainc", (0.0, 1.0)),
    ("betainc", (2.5, 1.5, 0.3)), ("betaincc", (2.5, 0.1, 0.99)), ("betainc", (0.0, 1.0, 0.5)),
    ("cbrt", (2.0,)), ("expm1", (1e-5,)), ("log1p", (1e-5,)), ("exp2", (0.3,)), ("sinc", (0.4,)),
    ("i0", (-2.5,)), ("i1", (-2.5,)), ("rel_entr", (0.3, 0.7)), ("rel_entr", (0.0, 0.0)),
    ("rel_entr", (0.2, 0.0)), ("rel_entr", (-0.1, 1.0)), ("kl_div", (0.3, 0.7)),
    ("kl_div", (0.0, 0.4)), ("pseudo_huber", (0.7, -3.0)), ("pseudo_huber", (0.0, 1.0)),
    ("pseudo_huber", (-1.0, 1.0)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "point"), UFUNCS)
def test_ufuncs_of_scipy_reach_the_rows(name: str, point: tuple[float, ...]) -> None:
    function = getattr(special, name)
    variables = [sg.var(f"x{k}") for k in range(len(point))]
    given = dict(zip(variables, point, strict=True))
    for found in (function(*variables), function(*[sg.array([v]) for v in variables])[0]):
        np.testing.assert_allclose(sg.evaluate(found, given), function(*point), rtol=1e-14)


WITH_CONSTANTS: list[tuple[str, tuple[float, ...], int]] = [
    ("jv", (0, -3.0), 1), ("jv", (1, 11.0), 1), ("iv", (1, 0.5), 1), ("ive", (0, 30.0), 1),
    *[(name, (n, 0.7), 1) for n in range(6) for name in (
        "eval_legendre", "eval_chebyt", "eval_chebyu", "eval_hermite", "eval_hermitenorm",
        "eval_laguerre",
    )],
    *[(name, (0.7, p), 0) for p in (0.0, 0.5, -1.0) for name in (
        "boxcox", "boxcox1p", "inv_boxcox", "inv_boxcox1p",
    )],
    ("pseudo_huber", (0.7, -3.0), 1), ("pseudo_huber", (0.0, 3.0), 1),
]  # fmt: skip
"""Ufuncs some of whose arguments are numbers, and the position of the expression."""


@pytest.mark.parametrize(("name", "point", "traced"), WITH_CONSTANTS)
def test_ufuncs_of_scipy_take_constants(name: str, point: tuple[Any, ...], traced: int) -> None:
    function, x = getattr(special, name), sg.var("x")
    given = [x if k == traced else v for k, v in enumerate(point)]
    found = sg.evaluate(function(*given), {x: point[traced]})
    np.testing.assert_allclose(found, function(*point), rtol=3e-14, atol=1e-15)


@pytest.mark.parametrize(
    ("name", "arguments", "remedy"),
    [
        ("jv", (2, None), r"jv\(n, x\) is defined for n = 0 and 1 only"),
        ("eval_legendre", (1.5, None), r"a constant whole number n >= 0"),
        ("boxcox", (2.0, None), r"a constant lmbda"),
        ("rgamma", (None,), r"1 / sg\.gamma\(x\)"),
        ("beta", (None, 2.0), r"sg\.betaln"),
    ],
)
def test_what_scipy_has_and_expressions_do_not_says_what_to_write(
    name: str, arguments: tuple[Any, ...], remedy: str
) -> None:
    x = sg.var("x")
    with pytest.raises(TraceError, match=remedy):
        getattr(special, name)(*[x if a is None else a for a in arguments])


def test_scipys_polygamma_says_what_to_call() -> None:
    for f in (lambda v: special.polygamma(1, v[0]), lambda v: special.polygamma(1, v).sum()):
        with pytest.raises(TraceError, match=r"(?s)polygamma takes no expr.*test_special.*sg\.pol"):
            sg.fused_forward_backward(2, f, device="cpu")


def test_other_type_errors_are_the_users() -> None:
    with pytest.raises(TypeError, match="has no len"):
        sg.fused_forward(1, lambda v: v[0] * len(3))  # type: ignore


def test_a_ufunc_of_scipy_that_is_not_known_is_named() -> None:
    with pytest.raises(TraceError, match=r"scipy\.special\.wofz is not defined for expressions"):
        special.wofz(sg.var("x"))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_scipys_python_functions_say_what_to_call(name: str) -> None:
    with pytest.raises(TraceError, match=f"SciPy's {name} computes with numbers: use sg.{name}"):
        getattr(special, name)(sg.array(sg.symbols("x y")))


def test_huber_is_scipys_with_its_slopes() -> None:
    points = np.array([[1.0, 0.3], [1.0, -3.0], [0.5, 0.5], [2.0, 0.0], [-1.0, 1.0], [1e30, 2.0]])
    kernel = sg.fused_forward_backward(2, lambda v: sg.huber(v[0], v[1]), device="cpu")
    values, slopes = kernel.run(points)
    np.testing.assert_allclose(values, special.huber(*points.T), rtol=2e-7)
    np.testing.assert_allclose(slopes[:4, 1], [0.3, -1.0, 0.5, 0.0], rtol=2e-7)
    np.testing.assert_allclose(slopes[:4, 0], [0.0, 2.0, 0.0, 0.0], atol=2e-7)


def test_the_logarithm_of_the_normal_distribution_keeps_its_digits_to_the_right() -> None:
    x = np.linspace(2.0, 37.0, 71)
    kernel = sg.fused_forward(1, lambda v: sg.log_ndtr(v[0]), device="cpu", dtype="float64")
    with mpmath.workdps(50):
        want = [
            float(mpmath.log1p(-mpmath.erfc(v / mpmath.sqrt(2)) / 2)) for v in map(mpmath.mpf, x)
        ]
    np.testing.assert_allclose(kernel.run(x[:, None]), want, rtol=4e-16)


BETA: list[tuple[float, float]] = [
    (3.0, 3.0), (1.5, 4.0), (9.5, 9.75), (10.0, 9.75), (10.0, 10.0), (10.25, 14.0), (0.5, 30.0),
    (0.25, 1e9), (40.0, 1e7), (1e6, 1e6), (7.5, 1e15),
]  # fmt: skip


TYPES = [
    ("float64", "cpu"), ("float32", "cpu"),
    *[("float32", d.index) for d in sg.devices() if d.is_gpu][:1],
]  # fmt: skip
"""Each with a device that has it."""


def true_beta(a: float, b: float) -> list[float]:
    """log B(a, b), its slopes, the second derivatives by a and by both."""
    with mpmath.workdps(60):
        x, y = mpmath.mpf(a), mpmath.mpf(b)
        slopes = [mpmath.psi(0, v) - mpmath.psi(0, x + y) for v in (x, y)]
        value = mpmath.loggamma(x) + mpmath.loggamma(y) - mpmath.loggamma(x + y)
        bends = [mpmath.psi(1, x) - mpmath.psi(1, x + y), -mpmath.psi(1, x + y)]
        return [float(v) for v in (value, *slopes, *bends)]


@pytest.mark.parametrize(("dtype", "device"), TYPES)
def test_betaln_and_its_derivatives_keep_their_digits(dtype: DTypeName, device: Any) -> None:
    def derivatives(v: Any) -> list[Any]:
        value = sg.betaln(v[0], v[1])
        slopes = [sg.grad(value, v[0]), sg.grad(value, v[1])]
        return [value, *slopes, sg.grad(slopes[0], v[0]), sg.grad(slopes[0], v[1])]

    points = np.array(BETA + [p[::-1] for p in BETA])
    found = sg.fused_forward(2, derivatives, device=device, dtype=dtype).run(points)
    want = np.array([true_beta(*p) for p in points.tolist()]).T
    np.testing.assert_allclose(found, want, rtol=16 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize(("dtype", "device"), TYPES)
def test_betaln_next_to_its_zeros_is_right_to_ulps_of_1(dtype: DTypeName, device: Any) -> None:
    random = np.random.default_rng(4)
    first = np.exp(random.uniform(np.log(0.35), np.log(20.0), 300))
    below, above = np.full(300, 1e-2), np.full(300, 1e4)
    for _ in range(60):
        middle = np.sqrt(below * above)
        positive = special.betaln(first, middle) > 0.0
        below, above = np.where(positive, middle, below), np.where(positive, above, middle)
    nearly = below * (1.0 + random.uniform(-1, 1, 300) * 10.0 ** random.uniform(-6, -1, 300))
    points = np.stack([first, nearly], axis=1).astype(dtype)
    kernel = sg.fused_forward(2, lambda v: sg.betaln(v[0], v[1]), device=device, dtype=dtype)
    want = [true_beta(*p)[0] for p in points.tolist()]
    np.testing.assert_allclose(
        np.ravel(kernel.run(points)), want, rtol=0, atol=6 * float(np.finfo(dtype).eps)
    )


def test_betaln_at_the_ends_and_of_numbers() -> None:
    np.testing.assert_allclose(
        sg.betaln([2.0, 0.0, 0.5, -1.5], [np.inf, 1.0, 0.5, 3.25]),
        [-np.inf, np.inf, np.log(np.pi), special.betaln(-1.5, 3.25)], rtol=1e-14,
    )  # fmt: skip


def test_a_second_derivative_by_a_parameter_of_betainc_is_an_error() -> None:
    a, b, x = sg.symbols("a b x")
    for first, second, word in ((a, a, "first"), (b, a, "first"), (a, b, "second")):
        with pytest.raises(DifferentiationError, match=rf'x\) by [ab]" with respect to its {word}'):
            sg.grad(sg.grad(sg.betaincc(a, b, x), first), second)
    slope = sg.evaluate(sg.grad(sg.betainc(a, b, x), x), {a: 2.5, b: 1.5, x: 0.3})
    assert slope == pytest.approx(0.3**1.5 * 0.7**0.5 / special.beta(2.5, 1.5), rel=1e-14)


BETA_POINTS = (
    (886574.0, 1e6, 0.47), (2.0, 3e5, 1e-4), (3e5, 2.0, 0.9999), (1e-3, 1e-3, 1e-200),
    (0.25, 1e-6, 0.9999999), (1e-6, 0.25, 1e-9), (5e3, 0.4, 1.0 - 2.0**-40), (1e9, 3.0, 1.0 - 4e-9),
    (893.9248985331432, 0.5543167941143464, 0.9993620299463849),
)  # fmt: skip


@pytest.mark.parametrize("point", BETA_POINTS)
def test_incomplete_beta_functions_far_out_are_those_of_mpmath(point: tuple[float, ...]) -> None:
    def both(v: Any) -> Any:
        return sg.betainc(v[0], v[1], v[2]), sg.betaincc(v[0], v[1], v[2])

    kernel = sg.fused_forward(3, both, device="cpu", dtype="float64")
    with mpmath.workdps(60):
        a, b, x = map(mpmath.mpf, point)
        rest = mpmath.loggamma(a + b) - mpmath.loggamma(a + 1) - mpmath.loggamma(b)
        scale = mpmath.exp(a * mpmath.log(x) + b * mpmath.log1p(-x) + rest)
        lower = scale * mpmath.hyp2f1(a + b, 1, a + 1, x, maxterms=10**7)
        want = [float(lower), float(1 - lower)]
    np.testing.assert_allclose(kernel.run(list(point)), want, rtol=3e-15)


def test_a_second_derivative_by_a_parameter_is_an_error_that_names_its_line() -> None:
    def loss(v: Any) -> Any:
        shape = 2.0 * v[0]
        return sg.betainc(shape, 2.0, v[1])  # the line

    message = r'betainc\(a, b, x\) by a" with respect to its first.*stop_gradient.*\n.*# the line'
    with pytest.raises(DifferentiationError, match=message):
        sg.fused_hessian(2, loss, device="cpu")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_derivatives_of_incomplete_beta_functions_by_their_parameters(
    dtype: DTypeName, device: Any
) -> None:
    """About the mean and far from it, next to 0 and 1, parameters of very different sizes."""
    if device == "gpu" and dtype == "float64":
        pytest.skip("float64 is the CPU's")
    points = np.asarray(PARAMETERS, dtype).astype(float)

    def both(v: Any) -> Any:
        return special.betainc(v[0], v[1], v[2]), special.betaincc(v[0], v[1], v[2])

    slopes = sg.fused_jacobian(3, both, device=device, dtype=dtype, wrt=[0, 1]).run(points)[1]
    with mpmath.workdps(200):
        want = [
            [float(mpmath.diff(lambda p, q, x=x: mpmath.betainc(p, q, 0, x, regularized=True),
                               (a, b), by)) for by in ((1, 0), (0, 1))]
            for a, b, x in points.tolist()
        ]  # fmt: skip
    rtol = 1e-6 if dtype == "float32" else 2e-15
    np.testing.assert_allclose(slopes, np.stack([want, np.negative(want)], 1), rtol=rtol)


def test_a_beta_distribution_is_fitted_to_shares_below_some_points() -> None:
    x = np.linspace(0.05, 0.95, 12)
    shares = special.betainc(2.5, 0.7, x)
    popt, _ = sg.curve_fit(lambda x, a, b: special.betainc(a, b, x), x, shares, p0=[1.0, 1.0])
    np.testing.assert_allclose(popt, [2.5, 0.7], rtol=1e-7)


def test_there_is_no_third_derivative_by_a_shape() -> None:
    a, x = sg.symbols("a x")
    second = sg.grad(sg.grad(sg.gammaincc(a, x), a), a)
    with pytest.raises(
        DifferentiationError,
        match=r'"the second derivative of gammainc\(a, x\) by a" with respect to its first',
    ):
        sg.grad(second, a)
    a, x = sg.symbols("a x")
    mixed = sg.evaluate(sg.grad(sg.grad(sg.gammainc(a, x), a), x), {a: 2.5, x: 1.5})
    with mpmath.workdps(30):
        want = mpmath.diff(lambda s: 1.5 ** (s - 1) * mpmath.exp(-1.5) / mpmath.gamma(s), 2.5)
    assert mixed == pytest.approx(float(want), rel=1e-14)


def test_the_faddeeva_function_keeps_its_digits_far_out() -> None:
    """Where squares of the argument are beyond the range."""
    kernel = sg.fused_forward(2, lambda v: sg.wofz(v[0], v[1]), device="cpu", dtype="float64")
    for x, y, place in ((0.0, 1e300, 0), (1e300, 0.0, 1)):
        assert kernel.run([x, y])[place] == pytest.approx(1e-300 / np.sqrt(np.pi), rel=1e-15)


PARAMETERS = [
    (2.5, 1.5, 0.75), (0.3, 0.2, 0.99), (1e-3, 40.0, 1e-4), (0.02, 1e-3, 0.5), (1e-3, 0.02, 0.9999),
    (300.0, 250.0, 0.5), (7.0, 0.01, 0.25), (60.0, 0.5, 0.996), (0.5, 300.0, 1e-6),
    (20.0, 3.0, 0.4),
]  # fmt: skip


SHAPES = [(0.5, 0.25), (1e-9, 1e-5), (1e-3, 0.6), (0.3, 3.0), (1.06, 1.1), (4.1, 3.6), (4.1, 3.9),
          (7.0, 20.0), (20.0, 19.0), (30.0, 3.0)]  # fmt: skip
"""Shapes and points on both sides of the median."""


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_derivatives_of_incomplete_gamma_functions_by_their_shape(
    dtype: DTypeName, device: Any
) -> None:
    if device == "gpu" and dtype == "float64":
        pytest.skip("float64 is the CPU's")
    points = np.asarray(SHAPES, dtype).astype(float)
    for name, sign in (("gammainc", 1.0), ("gammaincc", -1.0)):
        f = getattr(special, name)
        kernel = sg.fused_forward_backward(2, lambda v, f=f: f(v[0], v[1]), device=device,
                                           dtype=dtype)  # fmt: skip
        slopes = kernel.run(points)[1][:, 0]
        with mpmath.workdps(40):
            want = [
                sign * float(mpmath.diff(
                    lambda s, x=x: mpmath.gammainc(s, 0, x, regularized=True), a
                ))
                for a, x in points.tolist()
            ]  # fmt: skip
        np.testing.assert_allclose(slopes, want, rtol=1e-6 if dtype == "float32" else 4e-15)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_second_derivatives_of_incomplete_gamma_functions(dtype: DTypeName, device: Any) -> None:
    if device == "gpu" and dtype == "float64":
        pytest.skip("float64 is the CPU's")
    points = np.asarray(SHAPES, dtype).astype(float)
    kernel = sg.fused_hessian(
        2, lambda v: special.gammaincc(v[0], v[1]), device=device, dtype=dtype
    )
    bends = kernel.run(points)[2]
    with mpmath.workdps(60):
        want = [
            [float(mpmath.diff(lambda s, t: mpmath.gammainc(s, t, regularized=True), (a, x), by))
             for by in ((2, 0), (1, 1), (1, 1), (0, 2))]
            for a, x in points.tolist()
        ]  # fmt: skip
    size = np.abs(want).max(axis=1, keepdims=True)  # some pass through 0 next to these points
    allowed = 4e-6 if dtype == "float32" else 8e-15
    assert np.max(np.abs(bends.reshape(-1, 4) - want) / size) <= allowed


def test_the_shape_of_a_gamma_distribution_is_fitted() -> None:
    """The gradient by the shape, of counts that fall between edges, vanishes at the truth."""
    edges = np.array([0.5, 1.0, 2.0, 4.0])
    share = np.diff([0.0, *special.gammainc(2.5, edges), 1.0])

    def loss(v: Any) -> Any:
        inside = np.concatenate([special.gammainc(v[0], edges), [1.0]])
        return -np.sum(share * np.log(np.diff(inside, prepend=0.0)))

    kernel = sg.fused_forward_backward(1, loss, device="cpu", dtype="float64")
    at, above, below = (kernel.run([a])[1][0] for a in (2.5, 2.6, 2.4))
    assert abs(at) < 1e-15 < above and below < -1e-3


def test_a_parameter_that_does_not_vary_is_no_error() -> None:
    a, x = sg.symbols("a x")
    given = {a: 2.5, x: 1.5}
    density = sg.evaluate(sg.grad(sg.gammainc(a, x), x), given)
    assert density == pytest.approx(1.5**1.5 * np.exp(-1.5) / special.gamma(2.5), rel=1e-14)
    for fixed in (sg.stop_gradient(a), sg.floor(a) + 0.5, sg.where(a > 1.0, 2.5, 1.0)):
        slope = sg.grad(sg.gammaincc(fixed, a * x), a)
        want = -1.5 * np.exp(1.5 * np.log(3.75) - 3.75 - special.gammaln(2.5))
        assert sg.evaluate(slope, given) == pytest.approx(want, rel=1e-13)


def test_incomplete_gamma_functions_far_out_are_those_of_mpmath() -> None:
    """Where SciPy's own are off by 1e-6: in the tail of a large shape."""
    points = np.array([(886574.0, 881367.0), (1e5, 1.02e5), (3e-6, 1e-30), (2.0, 1e-150)])
    for name, ends in (
        ("gammainc", lambda a, x: (0, x)),
        ("gammaincc", lambda a, x: (x, mpmath.inf)),
    ):
        kernel = sg.fused_forward(
            2, lambda v, name=name: getattr(sg, name)(v[0], v[1]), device="cpu", dtype="float64"
        )
        with mpmath.workdps(40):
            want = [
                float(mpmath.gammainc(mpmath.mpf(a), *ends(a, mpmath.mpf(x)), regularized=True))
                for a, x in points
            ]
        np.testing.assert_allclose(kernel.run(points), want, rtol=2e-15)


def test_bernoulli_numbers() -> None:
    for j, (numerator, denominator) in enumerate(BERNOULLI, 1):
        assert mpmath.bernfrac(2 * j) == (numerator, denominator)
