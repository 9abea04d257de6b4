// A picture that moves to the left with every frame: levels in dB as colours, low frequencies below.

const LOUDEST = 30;
const RANGE = 80;
// From dark to bright, evenly for the eye (after matplotlib's magma).
const STOPS = [
  [0, 0, 4], [28, 16, 68], [79, 18, 123], [129, 37, 129], [181, 54, 122],
  [229, 80, 100], [251, 135, 97], [254, 194, 135], [252, 253, 191],
];
const COLOURS = Uint32Array.from({ length: 256 }, (_, i) => {
  const place = (i / 255) * (STOPS.length - 1);
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  const [r, g, b] = STOPS[low].map((value, c) =>
    Math.round(value + (place - low) * (STOPS[low + 1][c] - value)));
  return (255 << 24) | (b << 16) | (g << 8) | r;
});

export class Spectrogram {
  constructor(canvas) {
    this.context = canvas.getContext('2d', { alpha: false });
    this.image = this.context.createImageData(canvas.width, canvas.height);
    this.pixels = new Uint32Array(this.image.data.buffer).fill(COLOURS[0]);
    this.isWaiting = false;
  }

  /** The magnitudes of a frame. */
  push(magnitudes) {
    const { width, height } = this.image;
    this.pixels.copyWithin(0, 1);
    for (let k = 0; k < height; k++) {
      const level = 20 * Math.log10(magnitudes[k] + 1e-9);
      const share = Math.min(Math.max((level - LOUDEST + RANGE) / RANGE, 0), 1);
      this.pixels[(height - k) * width - 1] = COLOURS[Math.round(255 * share)];
    }
    if (this.isWaiting) return;
    this.isWaiting = true;
    requestAnimationFrame(() => {
      this.isWaiting = false;
      this.context.putImageData(this.image, 0, 0);
    });
  }
}
