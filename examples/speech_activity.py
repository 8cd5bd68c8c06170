"""Tell where somebody speaks in a recording with Silero VAD, every layer of it on the Vulkan device.

    python examples/speech_activity.py [WAV] [--device DEVICE] [--model PATH]

WAV is a recording of 16,000 samples a second, 16 bits, mono; without one, one of CMU Sphinx's tests is taken, in which
somebody says "five, five". Prints a line for each stretch of speech, from when until when in seconds and the mean
probability that it is speech; then where the network's nodes ran:

    0.32 to 0.77  0.939
    0.93 to 1.34  0.925

The network hears 32 ms at a time, as a microphone would bring them, and remembers what it heard in a state. The state never
leaves the device: ``run_with_device_arrays`` returns outputs as arrays there, and takes them as inputs of the next run. Only
the samples go up, and one probability comes down.
"""

from __future__ import annotations

import argparse
import wave
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from models import account, model

from dmlvk.onnx import InferenceSession

Array = npt.NDArray[Any]

RATE = 16000  # samples a second
STEP, CONTEXT = 512, 64  # samples the network takes at a time, after the last ones of the step before
START, END = 0.5, 0.35  # speech starts with this probability and ends below that one
LONGEST_BREAK = 0.1  # seconds of silence that do not end it


class Speech(NamedTuple):
    """A stretch of speech: from when until when in seconds, and its mean probability."""

    start: float
    end: float
    probability: float


def read_wave(path: Path) -> Array:
    """The samples of a recording, from -1 to 1.

    Raises:
        ValueError: it is not 16 bits, mono, 16 kHz.
    """
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getsampwidth(), file.getnchannels()) != (RATE, 2, 1):
            raise ValueError(f"{path} is not of {RATE} samples a second, 16 bits, mono")
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 2**15


def probabilities(session: InferenceSession, samples: Array) -> Iterator[float]:
    """The probability of speech in each step of the recording, one after the other."""
    padded = np.pad(samples, (CONTEXT, -len(samples) % STEP))
    state: Any = np.zeros((2, 1, 128), np.float32)
    rate = np.array(RATE, np.int64)
    for start in range(0, len(padded) - CONTEXT, STEP):
        heard = padded[np.newaxis, start : start + CONTEXT + STEP]
        feeds = {"input": heard, "state": state, "sr": rate}
        probability, state = session.run_with_device_arrays(["output", "stateN"], feeds)
        yield probability.numpy().item()


def find_speech(steps: Sequence[float]) -> list[Speech]:
    """The stretches of speech in what the network said of each step."""
    seconds = STEP / RATE
    found: list[Speech] = []
    silence = [0.0] * (int(LONGEST_BREAK / seconds) + 1)  # ends a stretch that lasts until the recording does
    start, last = None, 0  # the step with which the present stretch starts, and the one after its last loud one
    for index, probability in enumerate([*steps, *silence]):
        if probability >= (START if start is None else END):
            start, last = index if start is None else start, index + 1
        elif start is not None and (index + 1 - last) * seconds > LONGEST_BREAK:
            found.append(Speech(start * seconds, last * seconds, float(np.mean(steps[start:last]))))
            start = None
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", nargs="?", type=Path, metavar="WAV")
    parser.add_argument("--device", help="index, UUID or part of the name; python -m dmlvk devices lists them")
    parser.add_argument("--model", type=Path, help="another file than the one that tools/fetch_models.py fetches")
    options = parser.parse_args(arguments)
    samples = read_wave(options.recording or model("pocketsphinx/004.wav"))
    session = InferenceSession(options.model or model("silero_vad_op18_ifless.onnx"), options.device)
    for start, end, probability in find_speech(list(probabilities(session, samples))):
        print(f"{start:.2f} to {end:.2f}  {probability:.3f}")
    print(account(session))


if __name__ == "__main__":
    main()
