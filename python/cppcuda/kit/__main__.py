"""``python -m cppcuda.kit``: makes a library of operators, adds operators to it, or makes its wheel."""

import argparse
import sys

from cppcuda import _compile
from cppcuda.kit import LICENSES, KitError, _wheel, add, new


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cppcuda.kit", description="Makes libraries of PyTorch operators.")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")

    new_project = command("new", "make a project with one operator")
    new_project.add_argument("path", metavar="PATH", help="the project's folder")
    add_operators = command("add", "add operators to a project")
    add_operators.add_argument("path", metavar="PATH", help="the project's folder")
    kinds = {
        "--elementwise": "an elementwise operator, with one formula",
        "--points": "an elementwise operator with a few values for each element, with one formula",
        "--rows": "an operator that computes with rows, such as a norm, with one formula",
    }
    one = new_project.add_mutually_exclusive_group(required=True)
    for option, text in kinds.items():
        one.add_argument(option, metavar="NAME", help=text)
        add_operators.add_argument(option, action="extend", nargs="+", default=[], metavar="NAME", help=text)
    new_project.add_argument("--namespace", required=True, help="operators are torch.ops.NAMESPACE.NAME")
    new_project.add_argument(
        "--cuda", action=argparse.BooleanOptionalAction, default=True, help="with CUDA kernels (default: yes)"
    )
    new_project.add_argument("--license", choices=LICENSES, default="MIT", help="the licence (default: MIT)")
    new_project.add_argument("--author", help="the copyright holder (default: the authors of NAMESPACE)")
    _wheel.add_arguments(command("wheel", "make one wheel for several versions of torch"))
    tool = command("tool", "print the path of a program that builds projects, also if its folder is not on PATH")
    tool.add_argument("name", metavar="NAME", help="cmake, ninja, or another program that pip installs")
    return parser


def main() -> int:
    given = vars(_parser().parse_args())
    command = given.pop("command")
    try:
        if command == "tool":
            print(_compile.tool(**given))
            return 0
        if command == "wheel":
            print(_wheel.wheel(**given))
            return 0
        files = new(**given) if command == "new" else add(**given)
    except (KitError, _compile.BuildError, _wheel.WheelError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(*files, sep="\n")
    for file in files:
        if file.parent.name == "samples" and file.name != "__init__.py":
            print(f"{file} lists the files that are still copies of the template's operator.")
    print(f"Build and test them with {given['path']}/scripts/test")
    return 0


if __name__ == "__main__":
    sys.exit(main())
