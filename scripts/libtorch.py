#!/usr/bin/env python3
"""Puts the libtorch that tch needs where cargo looks for it, once.

Uses LIBTORCH or LIBTORCH_USE_PYTORCH when one of them is set, and says at once when its version is
not the one that tch expects. Otherwise it fetches PyTorch's wheel with pip into `.libtorch/`, laid
out like a site-packages folder so that the libraries find each other: on a machine without an
NVIDIA driver only the CPU's libraries and the headers are kept (about 0.5 GB), on one with a driver
the whole wheel and NVIDIA's libraries (about 5 GB).

Everything is made in a folder beside and renamed at the end: what is interrupted leaves nothing.
"""

import argparse
import ctypes
import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Iterable, List, Optional

VERSION = "2.11.0"
# The wheels that the CPU's library needs in order to load.
CPU_NEEDS = ["nvidia-cuda-runtime==13.0.96", "nvidia-cuda-cupti==13.0.85"]
CPU_LIBRARIES = ["libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libshm.so", "libtorch_global_deps.so"]
# Only the C++ part is used, so any Python for which there is a wheel will do. pip takes a platform
# literally: each that a wheel may carry is named (NCCL's has 2_18 only).
WHEEL_TAGS = ["--python-version", "3.12", "--implementation", "cp"] + [
    tag
    for name in [*(f"manylinux_2_{minor}" for minor in range(28, 16, -1)), "manylinux2014"]
    for tag in ("--platform", f"{name}_x86_64")
]
# What has to be free on the disk, in GB, while wheels and their contents stand side by side.
NEEDED_GB = {"cpu": 2, "cuda": 12}
BY_HAND = f"Set LIBTORCH to the folder of a libtorch {VERSION}, or LIBTORCH_USE_PYTORCH=1."


class Problem(Exception):
    """Something the user has to know; the text says what was expected and what was found."""


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--flavour", choices=["auto", "cpu", "cuda"], default="auto")
    options = parser.parse_args(arguments)
    try:
        if not use_what_is_set():
            set_up(options.root.resolve() / ".libtorch", options.flavour)
        check_compiler()
    except Problem as problem:
        print(f"libtorch: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("libtorch: interrupted, nothing is left half done", file=sys.stderr)
        return 130
    return 0


def say(text: str) -> None:
    print(f"libtorch: {text}", flush=True)


# What the user has set ---------------------------------------------------------------------------


def use_what_is_set() -> bool:
    """Whether the environment names a libtorch; it is checked. Cargo's own setting does not count."""
    if os.environ.get("LIBTORCH_USE_PYTORCH"):
        python = "python" if os.environ.get("VIRTUAL_ENV") else "python3"
        script = "import torch; print(torch.__version__, torch.__file__)"
        asked = subprocess.run([python, "-c", script], capture_output=True, text=True)
        if asked.returncode != 0:
            last = (asked.stderr.strip().splitlines() or ["no word"])[-1]
            raise Problem(f"LIBTORCH_USE_PYTORCH is set, expected {python} to import torch, found: {last}")
        version, path = asked.stdout.split(maxsplit=1)
        compare(version, path.strip(), "Install that version, or unset LIBTORCH_USE_PYTORCH.")
        return True
    folder = os.environ.get("LIBTORCH")
    if not folder:
        return False
    if not Path(folder).is_absolute():
        raise Problem(f"LIBTORCH is set, expected an absolute path (cargo builds elsewhere), found {folder}")
    if not (Path(folder) / "lib").is_dir():
        raise Problem(f"LIBTORCH is set, expected a folder lib in {folder}, found none. {BY_HAND}")
    version = version_of(Path(folder))
    if version is None:
        say(f"using LIBTORCH={folder}, which does not tell its version")
    else:
        compare(version, folder, "Point LIBTORCH at that version, or unset it.")
    return True


def compare(version: str, where: str, advice: str) -> None:
    if version.split("+")[0] == VERSION:
        say(f"using {version} at {where}")
    elif os.environ.get("LIBTORCH_BYPASS_VERSION_CHECK"):
        say(f"using {version} at {where} instead of {VERSION}: LIBTORCH_BYPASS_VERSION_CHECK is set")
    else:
        raise Problem(f"expected version {VERSION}, found {version} at {where}. {advice}")


def version_of(folder: Path) -> Optional[str]:
    """From `build-version`, else from the headers."""
    told = folder / "build-version"
    if told.is_file():
        return told.read_text().strip()
    for header in (folder / "include" / "torch").rglob("version.h"):
        macros = dict(re.findall(r"#define TORCH_VERSION_(MAJOR|MINOR|PATCH) (\d+)", header.read_text()))
        if len(macros) == 3:
            return ".".join(macros[part] for part in ("MAJOR", "MINOR", "PATCH"))
    return None


# What is fetched ---------------------------------------------------------------------------------


def set_up(target: Path, flavour: str) -> None:
    driver = has_driver()
    if complete(target):
        if driver and flavour == "auto" and not is_cuda(target):
            say("an NVIDIA driver is here, but the CPU's libtorch: `make libtorch FLAVOUR=cuda` changes it")
        if flavour == "auto" or is_cuda(target) == (flavour == "cuda"):
            return
    if flavour == "auto":
        flavour = "cuda" if driver else "cpu"
    check_machine(target.parent, flavour)
    with open(target.parent / ".libtorch.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if complete(target) and is_cuda(target) == (flavour == "cuda"):
            return  # Another run has made it meanwhile.
        remove_stale(target)
        partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
        try:
            fetch(partial, flavour)
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    say(f"ready in {target}")


def complete(target: Path) -> bool:
    torch = target / "torch"
    libraries = [torch / "lib" / name for name in ["libtorch.so", *CPU_LIBRARIES]]
    headers = torch / "include" / "torch" / "csrc" / "autograd" / "engine.h"
    needs = [target / "nvidia" / "cu13" / "lib" / name for name in ("libcudart.so.13", "libcupti.so.13")]
    there = headers.is_file() and all(path.is_file() and path.stat().st_size for path in [*libraries, *needs])
    return there and (version_of(torch) or "").split("+")[0] == VERSION


def is_cuda(target: Path) -> bool:
    return (target / "torch" / "lib" / "libtorch_cuda.so").is_file()


def has_driver() -> bool:
    if Path("/proc/driver/nvidia/version").exists():
        return True
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def check_machine(folder: Path, flavour: str) -> None:
    found = f"{platform.system()} {platform.machine()}"
    if found != "Linux x86_64":
        raise Problem(f"expected Linux x86_64 to fetch libtorch for, found {found}. {BY_HAND}")
    pip = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True)
    if pip.returncode != 0:
        raise Problem(f"expected pip in {sys.executable}, found none. Install it, or: {BY_HAND}")
    check_compiler()
    free = shutil.disk_usage(folder).free / 1e9
    if free < NEEDED_GB[flavour]:
        raise Problem(f"expected {NEEDED_GB[flavour]} GB free in {folder}, found {free:.1f} GB")


def compiler() -> str:
    return os.environ.get("CXX", "c++")


def check_compiler() -> None:
    if shutil.which(compiler()) is None:
        raise Problem(f"expected a C++ compiler, found no `{compiler()}`. Install g++ or clang++, or set CXX.")


def remove_stale(target: Path) -> None:
    """Removes what dead runs left; the lock is held, so no other is at work."""
    for left in target.parent.glob(f"{target.name}.partial-*"):
        shutil.rmtree(left, ignore_errors=True)


def fetch(partial: Path, flavour: str) -> None:
    wheels = partial / "wheels"
    wheels.mkdir(parents=True)
    say(f"1/4: fetching PyTorch {VERSION} ({flavour})")
    download(wheels, [f"torch=={VERSION}"])
    torch = next(wheels.glob("torch-*.whl"))
    say("2/4: fetching what it needs")
    download(wheels, CPU_NEEDS if flavour == "cpu" else cuda_needs(torch), flavour == "cuda")
    say("3/4: unpacking")
    for wheel in sorted(wheels.glob("*.whl")):
        unpack(wheel, partial, flavour)
    say("4/4: finishing")
    (partial / "torch" / "build-version").write_text(VERSION + "\n")
    if flavour == "cpu":
        stand_in(partial)
    shutil.rmtree(wheels)
    if not complete(partial):
        raise Problem(f"expected the wheels to hold libtorch {VERSION}, found parts missing in {partial}")


def download(folder: Path, packages: Iterable[str], dependencies: bool = False) -> None:
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-cache-dir"]
    command += ["--only-binary=:all:", *WHEEL_TAGS, "--dest", str(folder)]
    command += ([] if dependencies else ["--no-deps"]) + list(packages)
    # On a terminal pip shows its own bar; its errors go to the user as they are.
    if subprocess.run(command, stdout=None if sys.stdout.isatty() else subprocess.DEVNULL).returncode != 0:
        raise Problem(f"expected pip to fetch {' '.join(packages)}, it failed; its last words stand above")


def cuda_needs(torch: Path) -> List[str]:
    """NVIDIA's wheels among the requirements of PyTorch's; Python's own are not needed."""
    with zipfile.ZipFile(torch) as wheel:
        metadata = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        lines = wheel.read(metadata).decode().splitlines()
    needs = [line.split(":", 1)[1].split(";")[0].strip() for line in lines if line.startswith("Requires-Dist:")]
    return [need for need in needs if need.startswith(("nvidia-", "cuda-toolkit"))]


def unpack(path: Path, partial: Path, flavour: str) -> None:
    try:
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(partial, [name for name in wheel.namelist() if kept(name, flavour)])
    except zipfile.BadZipFile as error:
        raise Problem(f"expected a wheel, found something else in {path.name}: {error}")


def kept(name: str, flavour: str) -> bool:
    if name.endswith((".a", "/")):
        return False
    if name.startswith("torch/lib/"):
        return flavour == "cuda" or name[len("torch/lib/") :] in CPU_LIBRARIES
    return name.startswith("torch/include/") or (name.startswith("nvidia/") and "/lib/" in name)


def stand_in(partial: Path) -> None:
    """A libtorch.so that needs the CPU's library only; the wheel's own needs CUDA's too."""
    lib = partial / "torch" / "lib"
    command = [compiler(), "-shared", "-fPIC", "-x", "c++", "/dev/null", "-o", str(lib / "libtorch.so")]
    command += ["-Wl,-soname,libtorch.so", "-Wl,--no-as-needed", f"-L{lib}", "-ltorch_cpu", "-lc10"]
    command += ["-Wl,-rpath,$ORIGIN", f"-Wl,-rpath-link,{lib}"]
    command += [f"-Wl,-rpath-link,{partial / 'nvidia' / 'cu13' / 'lib'}"]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode != 0:
        raise Problem(f"expected {compiler()} to link a stand-in for libtorch.so, found:\n{made.stderr}")


if __name__ == "__main__":
    sys.exit(main())
