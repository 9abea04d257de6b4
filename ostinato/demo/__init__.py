"""The embedded demo: a small recurrent denoiser cleans a noisy signal frame by frame.

Nothing is downloaded: the model lies in this package (trained by `tools/train_denoiser.py`), and
without a recording of your own the signal is synthetic speech.
"""

from ostinato.demo.run import MODEL, DemoResult, run_demo
from ostinato.demo.stream import Timing

__all__ = ["MODEL", "DemoResult", "Timing", "run_demo"]
