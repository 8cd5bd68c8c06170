"""Cut what a photograph shows out of its background with U2-Net, every layer of it on the Vulkan device.

    python examples/background_removal.py [IMAGE] [--output PNG] [--device DEVICE] [--model PATH]

IMAGE is any picture that Pillow opens; without one, scikit-image's photograph of Eileen Collins is taken. Writes the picture
with an alpha channel, which hides the background, to PNG (cut-out.png where nothing else is said). Prints how much of the
picture is foreground, and where the network's nodes ran:

    foreground 55.0 % of 512 x 512, written to cut-out.png
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from models import account, model
from PIL import Image
from skimage import data

from dmlvk.onnx import InferenceSession

Array = npt.NDArray[Any]

SIDE = 320  # of the network's image, which is square: it sees the picture stretched
MEAN = np.array([0.485, 0.456, 0.406], np.float32)  # of ImageNet's red, green and blue
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


def network_input(image: Image.Image) -> Array:
    """A picture as the network wants it: {1, 3, 320, 320}, normalised."""
    pixels = np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float32)[np.newaxis]
    normalised: Array = (pixels / pixels.max() - MEAN) / DEVIATION
    return normalised.transpose(0, 3, 1, 2)


def find_foreground(session: Any, image: Image.Image) -> Array:
    """How surely each pixel is foreground, from 0 to 1: {320, 320}.

    Only the first output is asked for: the others are the coarser masks that it is made of.
    """
    names = session.get_outputs()[0].name, session.get_inputs()[0].name
    (mask,) = session.run([names[0]], {names[1]: network_input(image)})
    surely: Array = (mask[0, 0] - mask.min()) / (mask.max() - mask.min())
    return surely


def cut_out(image: Image.Image, foreground: Array) -> Image.Image:
    """The picture with the foreground, enlarged to its size, as its alpha channel."""
    alpha = Image.fromarray((foreground * 255).astype(np.uint8)).resize(image.size, Image.Resampling.LANCZOS)
    result = image.convert("RGB")
    result.putalpha(alpha)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", nargs="?", type=Path, metavar="IMAGE")
    parser.add_argument("--output", type=Path, default=Path("cut-out.png"), metavar="PNG")
    parser.add_argument("--device", help="index, UUID or part of the name; python -m dmlvk devices lists them")
    parser.add_argument("--model", type=Path, help="another file than the one that tools/fetch_models.py fetches")
    options = parser.parse_args(arguments)
    image = Image.open(options.image) if options.image else Image.fromarray(data.astronaut())
    session = InferenceSession(options.model or model("u2netp.onnx"), options.device)
    foreground = find_foreground(session, image)
    cut_out(image, foreground).save(options.output)
    share = f"{(foreground > 0.5).mean():.1%}".replace("%", " %")
    print(f"foreground {share} of {image.width} x {image.height}, written to {options.output}")
    print(account(session))


if __name__ == "__main__":
    main()
