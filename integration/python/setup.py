"""Generates messages and stubs from the proto files while the package is built."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithStubs(build_py):
    def run(self):
        super().run()
        import grpc_tools
        from grpc_tools import protoc

        proto = Path(__file__).resolve().parents[2] / "proto"
        files = sorted(str(file) for file in (proto / "snic").rglob("*.proto"))
        if not files:
            raise SystemExit(f"no proto files in {proto}: build the package in a clone of the project")
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        out = self.build_lib
        arguments = ["protoc", f"-I{proto}", f"-I{well_known}"]
        arguments += [f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}"]
        if protoc.main(arguments + files) != 0:
            raise SystemExit("protoc failed; its message is above")


setup(cmdclass={"build_py": BuildWithStubs})
