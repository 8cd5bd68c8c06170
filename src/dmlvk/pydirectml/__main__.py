"""``python -m dmlvk.pydirectml SCRIPT.py ARGS`` runs a script as Python would, with this package as its ``pydirectml``.

Exit status: the script's own; 1 where it ends with an exception, 2 where there is no such script.
"""

from __future__ import annotations

import builtins
import io
import pathlib
import sys
import types
from collections.abc import Sequence

import dmlvk.pydirectml

USAGE = "usage: python -m dmlvk.pydirectml SCRIPT.py [ARGUMENT]..."


def main(arguments: Sequence[str]) -> int:
    """Runs the script that the first argument names, with the others as its own; returns the exit status.

    Raises:
        SystemExit: the script ended so.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    script = arguments[0]
    try:
        with io.open_code(str(pathlib.Path(script).absolute())) as file:
            source = file.read()
    except OSError as error:
        print(f"dmlvk: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    sys.modules["pydirectml"] = dmlvk.pydirectml
    sys.argv = list(arguments)
    sys.path[0] = str(pathlib.Path(script).resolve().parent)
    module = types.ModuleType("__main__")
    module.__file__ = script
    module.__builtins__ = builtins  # type: ignore[attr-defined]
    sys.modules["__main__"] = module
    try:
        exec(compile(source, script, "exec", dont_inherit=True), module.__dict__)
    except Exception as error:
        frames = error.__traceback__
        assert frames is not None, "this function's frame is the first"
        error = error.with_traceback(frames.tb_next)  # shown as Python shows it: the script's frames alone
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
