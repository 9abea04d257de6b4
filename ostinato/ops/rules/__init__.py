"""Rules of lowering, one file per family of operators. The import of this package registers all."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
