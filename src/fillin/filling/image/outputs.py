"""Where a completion goes: pictures beside one another, never over anything without leave, whole or not at all."""

from dataclasses import dataclass
from pathlib import Path

from jaxtyping import UInt8
from numpy import ndarray

from fillin.errors import InputError


@dataclass(frozen=True)
class Outputs:
    """NAME.png, NAME.std.png, NAME.samples.png and NAME.attend.png (where they are wanted) and NAME.sheet.png."""

    picture: Path
    std: Path
    samples: Path | None
    sheet: Path
    attend: Path | None = None
    force: bool = False

    @classmethod
    def of(cls, sources: list[Path], out: str | None, samples: bool, attend: bool, force: bool) -> "Outputs":
        """NAME.completed.png beside the input unless `out` says where; checked before anything slow begins."""
        if out is not None and not out.strip():
            raise InputError("-o: the name of the output is empty; name a file, or leave -o out")
        path = Path(out) if out else sources[0].with_name(f"{sources[0].stem}.completed.png")
        if not path.suffix:
            path = path.with_name(f"{path.name}.png")
        if path.suffix.lower() != ".png":
            raise InputError(f"-o {path}: pictures are written as PNG, which loses nothing; let its name end in .png")
        names = ("std", "samples", "sheet", "attend")
        std, drawn, sheet, heads = (path.with_name(f"{path.stem}.{what}.png") for what in names)
        made = cls(path, std, drawn if samples else None, sheet, heads if attend else None, force)
        for path in made.paths:
            if any(path.exists() and source.exists() and path.samefile(source) for source in sources):
                raise InputError(f"-o {path} is the input, which is never touched; name another file")
            if path.is_dir():
                raise InputError(f"{path} is a folder; name a file with -o")
            if path.exists() and not force:
                raise InputError(f"{path} exists; replace it with --force, or name another with -o")
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent}; make it, or name another file with -o")
        return made

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.picture, self.std, self.samples, self.sheet, self.attend) if path is not None]


def save_pixels(path: Path, pixels: UInt8[ndarray, "h w c"], force: bool) -> None:
    """As PNG of eight bits, grey or in colour."""
    from PIL import Image

    from fillin.filling.write import put

    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    put(path, lambda beside: picture.save(beside, format="PNG"), force)
