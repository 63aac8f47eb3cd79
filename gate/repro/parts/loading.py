"""Loading what is to be judged."""

from __future__ import annotations

import importlib
import importlib.util
import operator
import os
import sys
from typing import Any


def load(name: str) -> Any:
    """What is called `package.module:attribute` or `path/to/file.py:attribute`."""
    place, _, attribute = name.rpartition(":")
    if place.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        spec: Any = importlib.util.spec_from_file_location("target", place)
        module = sys.modules["target"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        module = importlib.import_module(place)
    found = operator.attrgetter(attribute)(module)
    return found if callable(found) else found.call
