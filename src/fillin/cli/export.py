"""`fillin export`: a model as a file that other programs run, without Python or torch."""

import argparse

from fillin.cli.options import console

EXAMPLES = """\
  fillin export curve curve.onnx                 pretrained weights, by name
  fillin export runs/te-tnp te-tnp.onnx          the best of a run
  fillin export my-model my-model.onnx --force   a folder that fillin.save wrote, over what is there

The file takes any number of tasks, known points (none too) and targets; its metadata name every input and output.
docs/export.md has an example.
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "model", metavar="RUN|NAME", help="a run folder, one that fillin.save wrote, or pretrained weights"
    )
    command.add_argument("file", metavar="FILE", help="where to, for example curve.onnx")
    command.add_argument("--force", action="store_true", help="replace a file that exists")
    command.add_argument(
        "--no-check", dest="check", action="store_false", help="do not compare onnxruntime with torch before writing"
    )


def run(arguments: argparse.Namespace) -> None:
    from rich.filesize import decimal

    from fillin.onnx_export import export

    with console(stderr=True).status("tracing the model: some ten seconds"):
        done = export(arguments.model, arguments.file, arguments.force, arguments.check)
    print(f"wrote {done.path}: {decimal(done.size)}, ONNX opset {done.opset}")
    for way, shapes in (("in", done.inputs), ("out", done.outputs)):
        print(f"{way}: " + ", ".join(f"{name} {shape}" for name, shape in shapes.items()))
    if done.difference is not None:
        print(f"onnxruntime and torch differ by at most {done.difference:.1e}")
    elif arguments.check:
        print("not compared with torch: onnxruntime is not installed")
