"""``python -m cppcuda.kit``: makes a library of operators, adds an operator to it, or makes its wheel."""

import argparse
import sys

from cppcuda.kit import LICENSES, KitError, _wheel, add, new


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cppcuda.kit", description="Makes libraries of PyTorch operators.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("new", "make a project with one operator"), ("add", "add an operator to a project")):
        command = commands.add_parser(name, help=text, description=text.capitalize() + ".")
        command.add_argument("path", metavar="PATH", help="the project's folder")
        kinds = command.add_mutually_exclusive_group(required=True)
        kinds.add_argument("--elementwise", metavar="NAME", help="an elementwise operator, with one formula")
        kinds.add_argument("--rows", metavar="NAME", help="an operator that reduces rows, with kernels and derivatives")
        if name == "new":
            command.add_argument("--namespace", required=True, help="operators are torch.ops.NAMESPACE.NAME")
            command.add_argument(
                "--cuda", action=argparse.BooleanOptionalAction, default=True, help="with CUDA kernels (default: yes)"
            )
            command.add_argument("--license", choices=LICENSES, default="MIT", help="the licence (default: MIT)")
            command.add_argument("--author", help="the copyright holder (default: the authors of NAMESPACE)")
    text = "make one wheel for several versions of torch"
    _wheel.add_arguments(commands.add_parser("wheel", help=text, description=text.capitalize() + "."))
    return parser


def main() -> int:
    given = vars(_parser().parse_args())
    command = given.pop("command")
    try:
        if command == "wheel":
            print(_wheel.wheel(**given))
            return 0
        files = new(**given) if command == "new" else add(**given)
    except (KitError, _wheel.WheelError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(*files, sep="\n")
    print(f"Build and test them with {given['path']}/scripts/test")
    return 0


if __name__ == "__main__":
    sys.exit(main())
