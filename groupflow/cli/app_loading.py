"""Importing the operator's application, ``--app MODULE:ATTR``, with errors that say what to do."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import traceback
from pathlib import Path

from groupflow.core.app import App
from groupflow.core.errors import ConfigError, Problem

_SETTING = "--app"
_OURS = f"{Path(__file__).parents[1]}{os.sep}"
_LIBRARIES = tuple(
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "purelib", "platlib")
)


def load_app(target: str) -> App:
    """Import the application ``MODULE:ATTR``, with the current directory on the import path.

    Raises:
        ConfigError: the module or the attribute is not there, is no `App`, or its import raised.
    """
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute) or module_name.startswith("."):
        raise _error(target, "Write MODULE:ATTR, such as handlers:app for `app` in handlers.py.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found: object = _import(module_name, target)
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            remedy = f"The module {module_name} has no {attribute}; name its App there."
            raise _error(target, remedy) from None
    if not isinstance(found, App):
        kind = type(found).__name__
        remedy = f"{attribute} is of type {kind}, not an App; name the variable that holds App()."
        raise _error(target, remedy)
    return found


def _import(module_name: str, target: str) -> object:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            remedy = (
                f"There is no module {missing}. Run it from the directory that holds the module, "
                "or install the module."
            )
            raise _error(target, remedy) from None
        raise _raised(error, target) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  the module may raise anything
        raise _raised(error, target) from None


def _raised(error: BaseException, target: str) -> ConfigError:
    """What an import raised, and where in the operator's own code."""
    if isinstance(error, SyntaxError):
        said, where = f"SyntaxError: {error.msg}", f" at {error.filename}:{error.lineno}"
    else:
        message = " ".join(str(error).split())
        said = f"{type(error).__name__}: {message}".removesuffix(": ")
        where = _where(error)
    return _error(target, f"Importing it raised {said}{where}. Correct it there.")


def _where(error: BaseException) -> str:
    """The innermost line of the operator's own code, not the library's that it called."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and not frame.filename.startswith(_OURS)
    ]
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    found = own or frames
    return f" at {found[-1].filename}:{found[-1].lineno}" if found else ""


def _error(target: str, remedy: str) -> ConfigError:
    return ConfigError([Problem(_SETTING, target, remedy)])
