"""The libtorch set-up through its command line, with small wheels in place of PyTorch's."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "libtorch.py"
SET_BY_USERS = ("LIBTORCH", "LIBTORCH_USE_PYTORCH", "LIBTORCH_BYPASS_VERSION_CHECK", "PIP_FIND_LINKS")
CPU_LIBRARIES = ("libc10.so", "libgomp.so.1", "libshm.so", "libtorch_cpu.so", "libtorch_global_deps.so")
NVIDIA = {"nvidia_cuda_runtime": "13.0.96", "nvidia_cuda_cupti": "13.0.85"}


class SetUp(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.root = self.folder / "root"
        self.wheels = self.folder / "wheels"
        self.root.mkdir()
        self.wheels.mkdir()

    def run_script(self, **extra: str) -> "subprocess.CompletedProcess[str]":
        environment = {k: v for k, v in os.environ.items() if k not in SET_BY_USERS}
        environment.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(self.wheels), **extra)
        command = [sys.executable, "-B", str(SCRIPT), "--root", str(self.root), "--flavour", "cpu"]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    def target(self) -> Path:
        return self.root / ".libtorch"

    def library(self, name: str) -> bytes:
        """A shared library with nothing in it."""
        path = self.folder / name
        command = ["c++", "-shared", "-fPIC", "-x", "c++", "/dev/null", "-o", str(path), f"-Wl,-soname,{name}"]
        subprocess.run(command, check=True)
        return path.read_bytes()

    def wheel(self, name: str, version: str, tag: str, files: "dict[str, bytes]") -> None:
        info = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(self.wheels / f"{name}-{version}-{tag}.whl", "w") as wheel:
            for path, content in files.items():
                wheel.writestr(path, content)
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
            wheel.writestr(f"{info}/RECORD", "")

    def publish(self) -> None:
        """Wheels with the parts that matter."""
        files = {f"torch/lib/{name}": self.library(name) for name in CPU_LIBRARIES}
        files["torch/lib/libtorch_cuda.so"] = b"large"
        files["torch/include/torch/csrc/autograd/engine.h"] = b""
        self.wheel("torch", "2.11.0", "cp312-cp312-manylinux_2_28_x86_64", files)
        for name, version in NVIDIA.items():
            file = "libcudart.so.13" if "runtime" in name else "libcupti.so.13"
            lib = {f"nvidia/cu13/lib/{file}": b"library"}
            self.wheel(name, version, "py3-none-manylinux_2_17_x86_64", lib)

    def left(self) -> "list[str]":
        return sorted(path.name for path in self.root.iterdir() if path.name != ".libtorch.lock")

    def test_the_cpu_flavour_keeps_the_cpu_libraries_and_links_a_stand_in(self) -> None:
        self.publish()
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stderr)
        lib = self.target() / "torch" / "lib"
        self.assertEqual(sorted(path.name for path in lib.iterdir()), sorted([*CPU_LIBRARIES, "libtorch.so"]))
        self.assertEqual((self.target() / "torch" / "build-version").read_text(), "2.11.0\n")
        self.assertIn("libtorch: 4/4", done.stdout)
        self.assertEqual(self.left(), [".libtorch"])

    def test_a_second_run_fetches_nothing_and_a_damaged_folder_is_made_again(self) -> None:
        self.publish()
        self.assertEqual(self.run_script().returncode, 0)
        self.assertEqual(self.run_script().stdout, "")
        (self.target() / "torch" / "lib" / "libc10.so").unlink()
        again = self.run_script()
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertTrue((self.target() / "torch" / "lib" / "libc10.so").is_file())

    def test_a_missing_library_that_the_cpu_library_needs_is_noticed(self) -> None:
        self.publish()
        self.assertEqual(self.run_script().returncode, 0)
        for part in ("torch/lib/libgomp.so.1", "nvidia/cu13/lib/libcupti.so.13"):
            (self.target() / part).unlink()
            self.assertEqual(self.run_script().returncode, 0)
            self.assertTrue((self.target() / part).is_file(), part)

    def test_a_wheel_for_an_old_linux_between_the_usual_ones_is_found(self) -> None:
        self.publish()
        old = next(self.wheels.glob("nvidia_cuda_cupti-*.whl"))
        old.rename(old.with_name(old.name.replace("manylinux_2_17", "manylinux_2_18")))
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_relative_libtorch_is_told(self) -> None:
        self.assertIn("expected an absolute path", self.run_script(LIBTORCH="theirs").stderr)

    def test_a_failed_download_leaves_nothing(self) -> None:
        done = self.run_script()
        self.assertEqual(done.returncode, 1)
        self.assertIn("expected pip to fetch torch==2.11.0", done.stderr)
        self.assertEqual(self.left(), [])

    def test_a_broken_wheel_leaves_nothing_and_keeps_what_was_there(self) -> None:
        self.publish()
        self.assertEqual(self.run_script().returncode, 0)
        kept = self.target() / "torch" / "lib" / "libtorch_cpu.so"
        (self.target() / "torch" / "lib" / "libc10.so").unlink()
        wheel = next(self.wheels.glob("torch-*.whl"))
        wheel.write_bytes(wheel.read_bytes()[:2000])
        done = self.run_script()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.left(), [".libtorch"])
        self.assertTrue(kept.is_file())

    def test_what_a_dead_run_left_is_removed(self) -> None:
        self.publish()
        (self.root / ".libtorch.partial-1").mkdir()
        self.assertEqual(self.run_script().returncode, 0)
        self.assertEqual(self.left(), [".libtorch"])

    def test_the_users_libtorch_is_used_and_nothing_is_fetched(self) -> None:
        theirs = self.users_libtorch("2.11.0+cpu")
        done = self.run_script(LIBTORCH=str(theirs))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("using 2.11.0+cpu at", done.stdout)
        self.assertEqual(self.left(), [])

    def test_another_version_is_told_before_a_build(self) -> None:
        done = self.run_script(LIBTORCH=str(self.users_libtorch("2.9.1")))
        self.assertEqual(done.returncode, 1)
        self.assertIn("expected version 2.11.0, found 2.9.1 at", done.stderr)

    def test_the_version_is_read_from_the_headers_where_no_file_tells_it(self) -> None:
        theirs = self.users_libtorch(None)
        header = theirs / "include" / "torch" / "headeronly" / "version.h"
        header.parent.mkdir(parents=True)
        parts = {"MAJOR": 2, "MINOR": 10, "PATCH": 0}
        header.write_text("".join(f"#define TORCH_VERSION_{name} {number}\n" for name, number in parts.items()))
        self.assertIn("found 2.10.0 at", self.run_script(LIBTORCH=str(theirs)).stderr)

    def test_the_version_check_can_be_bypassed_and_says_so(self) -> None:
        theirs = self.users_libtorch("2.9.1")
        done = self.run_script(LIBTORCH=str(theirs), LIBTORCH_BYPASS_VERSION_CHECK="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("instead of 2.11.0: LIBTORCH_BYPASS_VERSION_CHECK is set", done.stdout)

    def test_a_libtorch_that_is_not_there_is_told(self) -> None:
        done = self.run_script(LIBTORCH=str(self.folder / "none"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("expected a folder lib in", done.stderr)

    def test_a_missing_compiler_is_told(self) -> None:
        done = self.run_script(CXX="no-such-compiler")
        self.assertEqual(done.returncode, 1)
        self.assertIn("expected a C++ compiler, found no `no-such-compiler`", done.stderr)

    def users_libtorch(self, version: "str | None") -> Path:
        theirs = self.folder / "theirs"
        (theirs / "lib").mkdir(parents=True)
        if version:
            (theirs / "build-version").write_text(version)
        return theirs


if __name__ == "__main__":
    unittest.main()
