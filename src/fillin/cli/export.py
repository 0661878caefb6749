"""`fillin export`: write a model as an ONNX file, which runs without Python or torch."""

import argparse

from fillin.cli.options import console

EXAMPLES = """\
  fillin export curve curve.onnx                 pretrained weights, by name
  fillin export runs/te-tnp te-tnp.onnx          the best of a run
  fillin export my-model my-model.onnx --force   a folder written by fillin.save; overwrite the file

The file takes any number of tasks, context points (or none) and targets; its metadata document inputs and outputs.
docs/export.md has an example.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "model",
        metavar="RUN|NAME",
        help="a run folder, a folder written by fillin.save, or the name of pretrained weights",
    )
    command.add_argument("file", metavar="FILE", help="output file, for example curve.onnx")
    command.add_argument("--force", action="store_true", help="overwrite an existing file")
    command.add_argument(
        "--no-check", dest="check", action="store_false", help="skip the comparison of onnxruntime with torch"
    )


def run(arguments: argparse.Namespace) -> None:
    from rich.filesize import decimal

    from fillin.onnx_export import export

    with console(stderr=True).status("tracing the model (about ten seconds)"):
        done = export(arguments.model, arguments.file, arguments.force, arguments.check)
    print(f"wrote {done.path}: {decimal(done.size)}, ONNX opset {done.opset}")
    for direction, shapes in (("in", done.inputs), ("out", done.outputs)):
        print(f"{direction}: " + ", ".join(f"{name} {shape}" for name, shape in shapes.items()))
    if done.difference is not None:
        print(f"onnxruntime and torch differ by at most {done.difference:.1e}")
    elif arguments.check:
        print("not compared with torch: onnxruntime is not installed")
