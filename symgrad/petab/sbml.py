"""Models of SBML as ordinary differential equations, in SymPy's expressions."""

# libsbml and SymPy have no types, and libsbml need not be here:
# pyright: reportMissingImports=false, reportMissingTypeStubs=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, Final

import sympy

from symgrad.errors import InputError

sp: Final[Any] = sympy

TIME: Final = sp.Symbol("time", real=True)
"""The time of a simulation, by PEtab's name."""

AVOGADRO: Final = 6.02214076e23
"""Avogadro's number per mole (International System of Units, 2019)."""


UNSUPPORTED: Final = (
    ("Constraint", "", "the constraint"),
    ("Event", "getDelay", "the delay of the event"),
    ("Event", "getPriority", "the priority of the event"),
    ("Species", "getConversionFactor", "the conversion factor of"),
    ("Reaction", "getFast", "the fast reaction"),
)
"""Elements that are refused: their kind, what they have that is refused, and its name."""


def symbol(name: str) -> Any:
    """The symbol of an entity of a model: as PEtab's own formulas have it, a real number."""
    return sp.Symbol(name, real=True)


@dataclass(frozen=True)
class Event:
    """Assignments that are made at the moment when ``trigger`` becomes positive.

    ``assignments`` are of the values just before it; ``initially`` says whether the trigger counts
    as met before the simulation begins, so that nothing happens at its start.
    """

    name: str
    trigger: Any
    assignments: tuple[tuple[str, Any], ...]
    initially: bool


@dataclass(frozen=True)
class Model:
    """``dx/dt = rates(x, parameters, time)``, with initial values that parameters determine.

    Invariants:
      1. Symbols of ``rates``, ``assigned`` and events are states, parameters and `TIME`.
      2. ``initial`` has an expression for each state, of parameters and other states' initial
         values alone.
      3. ``parameters`` have a number each: all constants of the model, compartments among them.
    """

    name: str
    states: tuple[str, ...]
    rates: tuple[Any, ...]
    initial: Mapping[str, Any]
    parameters: Mapping[str, float]
    assigned: Mapping[str, Any]
    """Formulas that rules assign at every time, by name: observables may use them."""
    events: tuple[Event, ...]


def read_model(document: Any, name: str) -> Model:
    """The model of an SBML document.

    Raises:
        InputError: for a document that is not valid, and for what a system of ordinary differential
        equations of this form cannot say, with its name: algebraic rules, delays, compartments
        that change, variable stoichiometries.
    """
    libsbml = _libsbml()
    if document.getNumErrors(libsbml.LIBSBML_SEV_ERROR):
        raise InputError(f"{name}: {document.getError(0).getMessage().strip()}")
    for option in ("expandFunctionDefinitions", "promoteLocalParameters"):
        properties = libsbml.ConversionProperties()
        properties.addOption(option, True)
        if document.convert(properties) != libsbml.LIBSBML_OPERATION_SUCCESS:
            raise InputError(f"{name}: libsbml cannot do {option} with this model")
    return _Reader(document.getModel(), name).model()


def _libsbml() -> Any:
    import libsbml

    return libsbml


class _Reader:
    """An SBML model, taken apart."""

    def __init__(self, model: Any, name: str) -> None:
        self._model, self._name = model, name
        self._formula = _Formulas(name)
        self._refuse_what_is_no_ode()
        self._rules = {r.getVariable(): r for r in _each(model, "Rule")}
        self._assigned = {k: self._math(r) for k, r in self._rules.items() if r.isAssignment()}
        self._initial = {a.getSymbol(): self._math(a) for a in _each(model, "InitialAssignment")}
        self._species = {s.getId(): s for s in _each(model, "Species")}
        self._sizes = {c.getId(): c for c in _each(model, "Compartment")}

    def model(self) -> Model:
        """The model, all rules put in."""
        states = tuple(self._states())
        parameters = self._parameters(states)
        assigned = self._closed(self._assigned | self._fixed_at_start(states))
        rates = [sp.sympify(rate).xreplace(assigned) for rate in self._rates(states)]
        events = tuple(self._event(e, assigned) for e in _each(self._model, "Event"))
        return Model(
            self._name,
            states,
            tuple(rates),
            {x: sp.sympify(self._initial_value(x)).xreplace(assigned) for x in states},
            parameters,
            {k.name: v for k, v in assigned.items()},
            events,
        )

    def _fixed_at_start(self, states: tuple[str, ...]) -> dict[str, Any]:
        """Initial assignments to constants, in which states are their initial values."""
        starts = {symbol(x): self._initial_value(x) for x in states}
        formulas = {k: f for k, f in self._initial.items() if k not in states}
        return {k: f.xreplace(starts) for k, f in formulas.items()}

    def _math(self, holder: Any) -> Any:
        if holder.getMath() is None:
            raise InputError(f"{self._name}: {holder.getElementName()} without a formula")
        return self._formula.of(holder.getMath())

    def _refuse_what_is_no_ode(self) -> None:
        model = self._model
        refused = ["an algebraic rule" for r in _each(model, "Rule") if r.isAlgebraic()]
        for kind, feature, name in UNSUPPORTED:
            holders = [e for e in _each(model, kind) if not feature or getattr(e, feature)()]
            refused += [f"{name} {e.getId()!r}" for e in holders]
        if model.getConversionFactor():
            refused.append("the model's conversion factor")
        if refused:
            raise InputError(
                f"{self._name} has {refused[0]}, which from_petab does not support: it takes "
                f"reactions, rate and assignment rules, initial assignments and events"
            )

    def _states(self) -> Iterator[str]:
        """Names of all that reactions, rates or events change: species first."""
        changed = {x for e in _each(self._model, "Event") for x in _assigned_by(e)}
        by_rate = {k for k, r in self._rules.items() if r.isRate()} | changed
        moved = {
            reference.getSpecies()
            for reaction in _each(self._model, "Reaction")
            for reference, _ in _participants(reaction)
        }
        for x, species in self._species.items():
            reacts = x in moved and not species.getBoundaryCondition()
            if (reacts or x in by_rate) and x not in self._assigned:
                yield x
        for x in sorted(by_rate - self._species.keys()):
            if x in self._sizes:
                raise InputError(f"{self._name}: the compartment {x!r} changes its size")
            yield x

    def _parameters(self, states: tuple[str, ...]) -> dict[str, float]:
        """The numbers of all that stays as it is."""
        values = {p.getId(): p.getValue() for p in _each(self._model, "Parameter")}
        values |= {c: s.getSize() if s.isSetSize() else 1.0 for c, s in self._sizes.items()}
        values |= {x: self._stated(x) for x in self._species}
        gone = {*states, *self._assigned, *self._initial}
        return {k: v for k, v in values.items() if k not in gone}

    def _stated(self, x: str) -> float:
        """The initial value that a species is declared with, in the unit that formulas take."""
        species = self._species[x]
        size = self._sizes[species.getCompartment()]
        volume = size.getSize() if size.isSetSize() else 1.0
        amount = species.getHasOnlySubstanceUnits()
        if species.isSetInitialAmount():
            return species.getInitialAmount() / (1.0 if amount else volume)
        if species.isSetInitialConcentration():
            return species.getInitialConcentration() * (volume if amount else 1.0)
        return math.nan

    def _initial_value(self, x: str) -> Any:
        if x in self._initial:
            return self._initial[x]
        if x not in self._species:
            return self._model.getParameter(x).getValue()
        species = self._species[x]
        if species.isSetInitialAmount() and not species.getHasOnlySubstanceUnits():
            return species.getInitialAmount() / self._size_of(species)
        return self._stated(x)

    def _size_of(self, species: Any) -> Any:
        """The size of the compartment of a species: a symbol, as conditions may set it."""
        return symbol(species.getCompartment())

    def _rates(self, states: tuple[str, ...]) -> list[Any]:
        totals: dict[str, list[Any]] = {x: [] for x in states}
        for reaction in _each(self._model, "Reaction"):
            law = reaction.getKineticLaw()
            if law is None:
                raise InputError(f"{self._name}: reaction {reaction.getId()!r} has no kinetic law")
            speed = self._math(law)
            for reference, sign in _participants(reaction):
                x = reference.getSpecies()
                if x in totals and not self._species[x].getBoundaryCondition():
                    totals[x].append(sign * self._stoichiometry(reference) * speed)
        return [self._rate(x, totals[x]) for x in states]

    def _rate(self, x: str, terms: list[Any]) -> Any:
        if x in self._rules:
            return self._math(self._rules[x])
        if x not in self._species:
            return sp.Integer(0)
        species, total = self._species[x], sp.Add(*terms)
        return total if species.getHasOnlySubstanceUnits() else total / self._size_of(species)

    def _stoichiometry(self, reference: Any) -> Any:
        name = reference.getId()
        if reference.getStoichiometryMath() or (name and name in {*self._rules, *self._initial}):
            raise InputError(f"{self._name}: the stoichiometry {name!r} is given by a formula")
        number = reference.getStoichiometry()
        return sp.Integer(int(number)) if number == int(number) else sp.Float(number)

    def _closed(self, formulas: Mapping[str, Any]) -> dict[Any, Any]:
        """Assignments by their symbols, those that they use put in."""
        closed: dict[Any, Any] = {}

        def close(name: str, users: tuple[str, ...]) -> Any:
            if name in users:
                raise InputError(f"{self._name}: the rule of {name!r} depends on itself")
            if symbol(name) not in closed:
                used = {s for s in formulas[name].free_symbols if s.name in formulas}
                inner = {s: close(s.name, (*users, name)) for s in used}
                closed[symbol(name)] = formulas[name].xreplace(inner)
            return closed[symbol(name)]

        for name in formulas:
            close(name, ())
        return closed

    def _event(self, event: Any, assigned: Mapping[Any, Any]) -> Event:
        trigger = event.getTrigger()
        assignments = [
            (a.getVariable(), self._math(a).xreplace(assigned))
            for a in _each(event, "EventAssignment")
        ]
        condition = self._math(trigger).xreplace(assigned)
        initially = not trigger.isSetInitialValue() or trigger.getInitialValue()
        return Event(event.getId(), _margin(condition, self._name), tuple(assignments), initially)


def _margin(condition: Any, name: str) -> Any:
    """A number that is positive where a condition holds, and crosses 0 where it begins to."""
    match type(condition).__name__:
        case "GreaterThan" | "StrictGreaterThan":
            return condition.lhs - condition.rhs
        case "LessThan" | "StrictLessThan":
            return condition.rhs - condition.lhs
        case "And":
            return sp.Min(*(_margin(c, name) for c in condition.args))
        case "Or":
            return sp.Max(*(_margin(c, name) for c in condition.args))
    raise InputError(f"{name}: an event with the trigger {condition}: write it with <, >, and, or")


def _each(holder: Any, kind: str) -> list[Any]:
    """The elements of one kind that stand in another element."""
    count = getattr(holder, f"getNum{kind}s" if kind != "Species" else "getNumSpecies")()
    return [getattr(holder, f"get{kind}")(k) for k in range(count)]


def _assigned_by(event: Any) -> list[str]:
    return [a.getVariable() for a in _each(event, "EventAssignment")]


def _participants(reaction: Any) -> Iterator[tuple[Any, int]]:
    """The species that a reaction takes, with -1, and those that it gives, with 1."""
    yield from ((r, -1) for r in _each(reaction, "Reactant"))
    yield from ((r, 1) for r in _each(reaction, "Product"))


class _Formulas:
    """MathML, as libsbml has it, as SymPy's expressions."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._builders = _builders(_libsbml())

    def of(self, node: Any) -> Any:
        """The expression of a node, its arguments first."""
        arguments = [self.of(node.getChild(k)) for k in range(node.getNumChildren())]
        libsbml, kind = _libsbml(), node.getType()
        if node.isInteger():
            return sp.Integer(node.getInteger())
        if node.isNumber():
            return _number(node.getReal())
        if kind == libsbml.AST_NAME:
            return symbol(node.getName())
        if kind not in self._builders:
            raise InputError(f"{self._name}: {libsbml.formulaToL3String(node)} is not supported")
        return self._builders[kind](*arguments)


def _number(value: float) -> Any:
    return sp.Integer(int(value)) if value == int(value) and abs(value) < 2**53 else sp.Float(value)


def _chain(relation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A relation of several arguments: of each with the next."""
    return lambda *a: sp.And(*(relation(x, y) for x, y in pairwise(a)))


def _piecewise(*arguments: Any) -> Any:
    pairs = [*zip(arguments[::2], arguments[1::2], strict=False)]
    otherwise = arguments[-1] if len(arguments) % 2 else sp.nan
    return sp.Piecewise(*pairs, (otherwise, True))


def _builders(libsbml: Any) -> dict[int, Callable[..., Any]]:
    """Builders of expressions by the kind of node."""
    named: dict[str, Callable[..., Any]] = {
        "PLUS": sp.Add,
        "TIMES": sp.Mul,
        "MINUS": lambda a, b=None: -a if b is None else a - b,
        "DIVIDE": lambda a, b: a / b,
        "POWER": sp.Pow,
        "FUNCTION_POWER": sp.Pow,
        "FUNCTION_ROOT": lambda n, x=None: sp.sqrt(n) if x is None else sp.root(x, n),
        "FUNCTION_LOG": lambda base, x=None: sp.log(base, 10) if x is None else sp.log(x, base),
        "FUNCTION_PIECEWISE": _piecewise,
        "FUNCTION_QUOTIENT": lambda a, b: sp.sign(a / b) * sp.floor(sp.Abs(a / b)),
        "FUNCTION_REM": lambda a, b: a - b * sp.sign(a / b) * sp.floor(sp.Abs(a / b)),
        "RELATIONAL_LT": _chain(sp.Lt),
        "RELATIONAL_LEQ": _chain(sp.Le),
        "RELATIONAL_GT": _chain(sp.Gt),
        "RELATIONAL_GEQ": _chain(sp.Ge),
        "RELATIONAL_EQ": _chain(sp.Eq),
        "RELATIONAL_NEQ": sp.Ne,
        "LOGICAL_AND": sp.And,
        "LOGICAL_OR": sp.Or,
        "LOGICAL_NOT": sp.Not,
        "LOGICAL_XOR": lambda *a: reduce(sp.Xor, a),
        "CONSTANT_TRUE": lambda: sp.true,
        "CONSTANT_FALSE": lambda: sp.false,
        "CONSTANT_E": lambda: sp.E,
        "CONSTANT_PI": lambda: sp.pi,
        "NAME_TIME": lambda: TIME,
        "NAME_AVOGADRO": lambda: sp.Float(AVOGADRO),
    }
    same = "exp sin cos tan sec csc cot sinh cosh tanh sech csch coth ceiling floor factorial"
    named |= {f"FUNCTION_{f.upper()}": getattr(sp, f) for f in same.split()}
    inverses = "sin cos tan sec csc cot sinh cosh tanh sech csch coth"
    named |= {f"FUNCTION_ARC{f.upper()}": getattr(sp, f"a{f}") for f in inverses.split()}
    named |= {
        "FUNCTION_LN": sp.log,
        "FUNCTION_ABS": sp.Abs,
        "FUNCTION_MIN": sp.Min,
        "FUNCTION_MAX": sp.Max,
    }
    return {getattr(libsbml, f"AST_{name}"): builder for name, builder in named.items()}
