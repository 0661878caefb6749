"""`fillin export`: a model as a file that other programs run, without Python or torch."""

import argparse

from fillin.cli.options import console, describe

_EXAMPLES = """\
  fillin export curve curve.onnx                 pretrained weights, by name
  fillin export runs/te-tnp te-tnp.onnx          the best of a run
  fillin export my-model my-model.onnx --force   a folder that fillin.save wrote, over what is there

The file takes any number of tasks, known points (none too) and targets; its metadata name every input and output.
docs/export.md has an example.
"""


def add(commands) -> None:
    command = describe(commands, "export", "write a model as an ONNX file", _EXAMPLES)
    command.add_argument(
        "model", metavar="RUN|NAME", help="a run folder, one that fillin.save wrote, or pretrained weights"
    )
    command.add_argument("file", metavar="FILE", help="where to, for example curve.onnx")
    command.add_argument("--force", action="store_true", help="replace a file that exists")
    command.add_argument(
        "--no-check", dest="check", action="store_false", help="do not compare onnxruntime with torch before writing"
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    from rich.filesize import decimal

    from fillin.onnx_export import export

    with console(stderr=True).status("tracing the model: some ten seconds"):
        done = export(arguments.model, arguments.file, arguments.force, arguments.check)
    out = console()

    def say(line: str) -> None:
        out.print(line, highlight=False, soft_wrap=True, markup=False)

    say(f"wrote {done.path}: {decimal(done.size)}, ONNX opset {done.opset}")
    for way, shapes in (("in", done.inputs), ("out", done.outputs)):
        say(f"{way}: " + ", ".join(f"{name} {shape}" for name, shape in shapes.items()))
    if done.difference is not None:
        say(f"onnxruntime and torch differ by at most {done.difference:.1e}")
    elif arguments.check:
        say("not compared with torch: onnxruntime is not installed")
