"""The command line: ``python -m symgrad demo``, ``bench``, ``devices``, ``show``, ``export``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from symgrad.demo.bench import page, run_bench, write_report
from symgrad.demo.demonstration import available, run_demo
from symgrad.errors import InputError, SymgradError
from symgrad.front.fused import fused_forward, fused_forward_backward, fused_hessian, fused_jacobian
from symgrad.mathlib.define import MATH
from symgrad.report.progress import open_screen
from symgrad.targets import choose, devices
from symgrad.web.model import export_html

KINDS: Final[dict[str, Callable[..., Any]]] = {
    "gradient": fused_forward_backward,
    "values": fused_forward,
    "jacobian": fused_jacobian,
    "hessian": fused_hessian,
}
"""The choices of ``show --kind``, and the verbs that they are."""

DEMO: Final = Path(tempfile.gettempdir(), "symgrad-demo.png")
"""Where the demonstration draws its picture, unless ``--plot`` names a file."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code: 0, 1 for an error, 2 for a wrong command line."""
    options = parser().parse_args(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
    except (SymgradError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # the reader has gone, as in `... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        sys.stderr.write(f"symgrad: error: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser("symgrad", description="A Python loss in, one fused kernel out.")
    commands = top.add_subparsers(required=True, metavar="command")
    _add_demo(commands)
    _add_bench(commands)
    listing = commands.add_parser("devices", help="list what kernels can run on")
    listing.set_defaults(run=lambda _: list_devices())
    _add_show(commands)
    _add_export(commands)
    return top


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser("demo", help="fit a data set of NIST and compare")
    demo.add_argument("--dataset", default="Thurber", metavar="NAME", help=", ".join(available()))
    demo.add_argument("--device", type=device, help="gpu, cpu, or an index of `symgrad devices`")
    demo.add_argument("--starts", type=count, default=500, help="how many (%(default)s)")
    demo.add_argument("--steps", type=count, default=60, help="of the optimiser (%(default)s)")
    demo.add_argument(
        "--output",
        type=Path,
        default=DEMO,
        metavar="FILE",
        help="where the plot goes: .png, .svg or .pdf (%(default)s)",
    )
    demo.set_defaults(run=demonstrate)


def _add_bench(commands: Any) -> None:
    bench = commands.add_parser("bench", help="measure this machine, beside others known before")
    bench.add_argument("--device", type=device, help="gpu, cpu, or an index of `symgrad devices`")
    bench.add_argument(
        "--report",
        type=Path,
        nargs="?",
        const=Path(),
        metavar="FOLDER",
        help="write symgrad-report.json and symgrad-report.md there (the current folder), to send",
    )
    bench.add_argument("--seconds", type=float, default=3.0, help="for each work (%(default)s)")
    bench.add_argument("--scale", type=float, default=1.0, help="part of the usual size (1.0)")
    bench.set_defaults(run=measure)


def _add_show(commands: Any) -> None:
    show = commands.add_parser("show", help="print the kernel of a function of yours")
    show.add_argument("function", metavar="module:function", help="a module of this folder")
    show.add_argument("n", type=count, help="the number of variables of the function")
    show.add_argument("--kind", choices=KINDS, default="gradient", help="(%(default)s)")
    show.add_argument("--math", choices=MATH, default="accurate")
    show.set_defaults(run=show_kernel)


def _add_export(commands: Any) -> None:
    export = commands.add_parser("export", help="write a function of yours for browsers")
    export.add_argument("function", metavar="module:function", help="a module of this folder")
    export.add_argument("n", type=count, help="the number of its variables, or of parameters")
    where = export.add_mutually_exclusive_group(required=True)
    where.add_argument("--js", type=Path, metavar="FOLDER", help="an ES module for WebGPU")
    where.add_argument(
        "--html",
        type=Path,
        metavar="FOLDER",
        help="a page that fits a model f(x, *parameters) to data",
    )
    export.add_argument("--kind", choices=KINDS, default="gradient", help="of --js (%(default)s)")
    export.add_argument("--math", choices=MATH, default="accurate", help="of --js (%(default)s)")
    export.set_defaults(run=export_function)


def device(text: str) -> str | int:
    """A device as the command line names it."""
    return int(text) if text.isdecimal() else text


def count(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


# --- the commands ---------------------------------------------------------------------------------


def demonstrate(options: argparse.Namespace) -> None:
    """``symgrad demo``."""
    require_writable(options.output)
    run_demo(
        open_screen(),
        options.dataset,
        options.device,
        options.starts,
        options.steps,
        options.output,
    )


def measure(options: argparse.Namespace) -> None:
    """``symgrad bench``."""
    if options.report is not None and not options.report.is_dir():
        raise InputError(f"--report {options.report}: there is no such folder")
    report = run_bench(open_screen(), options.device, options.seconds, options.scale)
    write("\n" + page(report).rstrip("\n"))
    if options.report is not None:
        data, text = write_report(report, options.report)
        write(f"\nWritten: {data} and {text}")


def require_writable(path: Path) -> None:
    """Refuse a place for the plot before the work is done rather than after it."""
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(
            f"--output {path}: there is no folder {path.parent}"
            if not path.is_dir()
            else f"--output {path} is a folder: name a file in it"
        )
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"--output {path}: the name must end in .png, .svg or .pdf")


def list_devices() -> None:
    """``symgrad devices``."""
    chosen = choose(None)
    for d in devices():
        default = d == chosen or (d.kind, chosen.kind) == ("cpu", "cpu")
        rate = f" (1/{1 / d.float64_rate:g} of float32's rate)" if d.float64_rate else ""
        mark = "  <- device=None" if default else ""
        write(f"{d.index}  {d}: {', '.join(d.dtypes)}{rate}{mark}")


def show_kernel(options: argparse.Namespace) -> None:
    """``symgrad show``."""
    write(_of_users(options, _kernel).wgsl.rstrip("\n"))


def export_function(options: argparse.Namespace) -> None:
    """``symgrad export``."""
    name = options.function.rpartition(":")[2]
    if options.js:
        place, kernel = options.js / f"{name}.mjs", _of_users(options, _kernel)
        options.js.mkdir(parents=True, exist_ok=True)
        kernel.export_js(place)
    else:
        place, start = options.html / f"{name}.html", [1.0] * options.n
        options.html.mkdir(parents=True, exist_ok=True)
        _of_users(options, lambda f, _: export_html(f, place, start))
    write(str(place))


def _kernel(f: Callable[..., Any], options: argparse.Namespace) -> Any:
    """The kernel that a command asks for."""
    return KINDS[options.kind](options.n, f, device="cpu", math=options.math)


def _of_users(
    options: argparse.Namespace, make: Callable[[Callable[..., Any], argparse.Namespace], Any]
) -> Any:
    """The result of ``make`` for the named function; errors are reported with their line."""
    f = find_function(options.function)
    try:
        return make(f, options)
    except SymgradError:
        raise
    except Exception as error:
        raise InputError(
            f"{options.function} with n = {options.n} raised {_told(error)}"
        ) from error


def find_function(name: str) -> Callable[..., Any]:
    """The function that ``module:function`` names, of a module in the current folder or installed.

    Raises:
        InputError: if there is none; the message says what there is.
    """
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise InputError(
            f"{name!r} does not name a function: write module:function, such as losses:f"
        )
    module = import_from_here(module_name)
    function = getattr(module, function_name, None)
    if callable(function):
        return function
    own = [k for k, v in vars(module).items() if getattr(v, "__module__", "") == module_name]
    contents = f"it has {', '.join(own)}" if own else "it defines none"
    raise InputError(f"module {module_name} has no function {function_name!r}: {contents}")


def import_from_here(name: str) -> Any:
    """The module of this name, looked for in the current folder first."""
    if sys.path[:1] != [os.getcwd()]:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):
            message = f"there is no module {name!r}, here in {os.getcwd()} or installed"
            raise InputError(message) from error
        raise InputError(f"module {name} raised {_told(error)}") from error
    except Exception as error:
        raise InputError(f"module {name} raised {_told(error)}") from error


def _told(error: BaseException) -> str:
    """An error of the user's code: what it says, and the line that it came from."""
    own = [f for f in traceback.extract_tb(error.__traceback__) if _is_users(Path(f.filename))]
    where = f'\n  at {own[-1].filename}:{own[-1].lineno}: "{own[-1].line}"' if own else ""
    return f"{type(error).__name__}: {error}{where}"


def _is_users(file: Path) -> bool:
    """Whether a file is below the current folder and none of symgrad's."""
    return file.is_relative_to(Path.cwd()) and not file.is_relative_to(Path(__file__).parent)


def write(text: str) -> None:
    """A line of output."""
    sys.stdout.write(text + "\n")
