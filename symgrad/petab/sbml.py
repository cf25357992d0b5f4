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
from graphlib import CycleError, TopologicalSorter
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
      2. ``initial`` has an expression for each state, and for each constant that depends on others,
         of parameters and of those before it alone.
      3. ``parameters`` have a number each: all other constants, compartments among them.
      4. ``volumes`` times states are amounts: a size for each concentration, 1 for all else.
    """

    name: str
    states: tuple[str, ...]
    rates: tuple[Any, ...]
    volumes: tuple[Any, ...]
    initial: Mapping[str, Any]
    parameters: Mapping[str, float]
    assigned: Mapping[str, Any]
    """Formulas that rules assign at every time, and speeds of reactions, by name: observables may
    use them."""
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
        self._laws = {r.getId(): self._law(r) for r in _each(model, "Reaction")}
        self._species = {s.getId(): s for s in _each(model, "Species")}
        self._sizes = {c.getId(): c for c in _each(model, "Compartment")}

    def model(self) -> Model:
        """The model, all rules put in."""
        states = tuple(self._states())
        assigned = self._closed(self._assigned | self._laws)
        self._require_constant_sizes(states, assigned)
        initial = self._starts(states, assigned)
        events = tuple(self._event(e, assigned) for e in _each(self._model, "Event"))
        return Model(
            self._name,
            states,
            tuple(sp.sympify(rate).xreplace(assigned) for rate in self._rates(states)),
            tuple(sp.sympify(self._volume(x)).xreplace(assigned) for x in states),
            initial,
            self._parameters({*states, *self._assigned, *initial}),
            {k.name: v for k, v in assigned.items()},
            events,
        )

    def _starts(self, states: tuple[str, ...], assigned: Mapping[Any, Any]) -> dict[str, Any]:
        """Values at the beginning that are formulas, each after those that it uses."""
        names = [*states, *(x for x in [*self._species, *self._initial] if x not in states)]
        at_start = {TIME: sp.Integer(0)}
        formulas = {
            x: sp.sympify(self._initial_value(x)).xreplace(assigned).xreplace(at_start)
            for x in dict.fromkeys(names)
            if x not in self._assigned
        }
        users = {x: {s.name for s in f.free_symbols} for x, f in formulas.items()}
        try:
            order = [*TopologicalSorter(users).static_order()]
        except CycleError as error:
            raise InputError(
                f"{self._name}: initial values depend on themselves: {', '.join(error.args[1])}"
            ) from error
        return {x: formulas[x] for x in order if x in formulas}

    def _require_constant_sizes(self, states: tuple[str, ...], assigned: Mapping[Any, Any]) -> None:
        changing = {TIME, *map(symbol, states)}
        for x in self._sizes:
            if x in self._assigned and assigned[symbol(x)].free_symbols & changing:
                raise InputError(f"{self._name}: the compartment {x!r} changes its size")

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

    def _parameters(self, gone: set[str]) -> dict[str, float]:
        """The numbers of all that stays as it is, but for what is gone."""
        values = {p.getId(): p.getValue() for p in _each(self._model, "Parameter")}
        values |= {c: s.getSize() if s.isSetSize() else 1.0 for c, s in self._sizes.items()}
        return {k: v for k, v in values.items() if k not in gone}

    def _initial_value(self, x: str) -> Any:
        """The value at the beginning, in the unit that formulas take."""
        if x in self._initial:
            return self._initial[x]
        if x not in self._species:
            return self._model.getParameter(x).getValue()
        species = self._species[x]
        if species.isSetInitialAmount():
            return species.getInitialAmount() / self._volume(x)
        if not species.isSetInitialConcentration():
            return math.nan
        size = symbol(species.getCompartment())
        return species.getInitialConcentration() * size / self._volume(x)

    def _volume(self, x: str) -> Any:
        """The size of a concentration's compartment: a symbol, as conditions may set it; or 1."""
        if x not in self._species or self._species[x].getHasOnlySubstanceUnits():
            return sp.Integer(1)
        return symbol(self._species[x].getCompartment())

    def _law(self, reaction: Any) -> Any:
        """How fast a reaction is."""
        law = reaction.getKineticLaw()
        if law is None:
            raise InputError(f"{self._name}: reaction {reaction.getId()!r} has no kinetic law")
        return self._math(law)

    def _rates(self, states: tuple[str, ...]) -> list[Any]:
        totals: dict[str, list[Any]] = {x: [] for x in states}
        for reaction in _each(self._model, "Reaction"):
            speed = self._laws[reaction.getId()]
            for reference, sign in _participants(reaction):
                x = reference.getSpecies()
                if x in totals and not self._species[x].getBoundaryCondition():
                    totals[x].append(sign * self._stoichiometry(reference) * speed)
        return [self._rate(x, totals[x]) for x in states]

    def _rate(self, x: str, terms: list[Any]) -> Any:
        if x in self._rules:
            return self._math(self._rules[x])
        return sp.Add(*terms) / self._volume(x)

    def _stoichiometry(self, reference: Any) -> Any:
        name = reference.getId()
        if reference.getStoichiometryMath() or (name and name in {*self._rules, *self._initial}):
            raise InputError(f"{self._name}: the stoichiometry {name!r} is given by a formula")
        number = reference.getStoichiometry()
        if math.isnan(number):
            raise InputError(f"{self._name}: {reference.getSpecies()!r} without a stoichiometry")
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
