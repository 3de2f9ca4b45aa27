"""What cppcuda.testing tests: it imports this package, and each file registers one operator."""

from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")
