"""Installs the programs that `make test-targets` runs other machines with, where it may.

python -m tools.install_targets

They are packages of Debian. Without the rights to install them, or without a network, it says what
is missing and ends well: tests that need it are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

# Programs, and the packages that have them.
PACKAGES = {
    "qemu-aarch64-static": "qemu-user-static",
    "debootstrap": "debootstrap",
    "wine": "wine",
    "chromium": "chromium",
    "cc": "gcc",
}
_PATIENCE = 300
_INSTALL = ["apt-get", "install", "-qq", "-y", "--no-install-recommends"]


def missing() -> dict[str, str]:
    """The programs that are not here, and their packages."""
    return {program: name for program, name in PACKAGES.items() if shutil.which(program) is None}


def install() -> str:
    """Install what is missing; returns why that was not possible, or nothing."""
    if not missing():
        return ""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return "there is no apt-get, or no right to use it"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    commands = [["apt-get", "update", "-qq"]]
    # Wine's package of 64 bits has its libraries.
    needed = [*missing().values(), *(["wine64"] if "wine" in missing() else [])]
    # One by one: what one system lacks keeps nobody from the others.
    commands += [[*_INSTALL, package] for package in needed]
    failures = []
    for command in commands:
        try:
            subprocess.run(
                command,
                env=environment,
                check=True,
                timeout=_PATIENCE,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        except subprocess.TimeoutExpired:
            failures.append(f"{' '.join(command)}: no end after {_PATIENCE} s")
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            failures.append(f"{' '.join(command)}: {said.strip().splitlines()[-1]}")
    return "; ".join(failures)


def main() -> int:
    """Print what could not be installed."""
    why = install()
    for program, package in missing().items():
        print(f"no {program} (package {package}): {why}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
