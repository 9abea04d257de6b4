// Frames of 20 ms every 10 ms at 16 kHz, denoised by the model and put together again. The window is
// the square root of Hann's, before and after, so that without a mask the signal comes out as it was.

export const RATE = 16000;
export const HOP = 160;
export const SIZE = 320;
export const BINS = 161;

const window = Float64Array.from({ length: SIZE }, (_, n) => Math.sin((Math.PI * n) / SIZE));
const cosine = Float64Array.from({ length: SIZE }, (_, n) => Math.cos((2 * Math.PI * n) / SIZE));
const sine = Float64Array.from({ length: SIZE }, (_, n) => Math.sin((2 * Math.PI * n) / SIZE));

/** A signal, hop by hop, with the states of the model. */
export class Frames {
  constructor(model) {
    this.stream = model.stream({ time: 1, batch: 1 });
    this.isOn = true;
    this.before = new Float32Array(BINS);
    this.after = new Float32Array(BINS);
    this.signal = new Float64Array(SIZE);
    this.overlap = new Float64Array(SIZE);
    this.real = new Float64Array(BINS);
    this.imaginary = new Float64Array(BINS);
  }

  /** The next HOP samples in place of those that came HOP samples before. */
  next(samples) {
    this.signal.copyWithin(0, HOP);
    this.signal.set(samples, HOP);
    this.transform();
    const { mask } = this.stream.step(this.before);
    for (let k = 0; k < BINS; k++) {
      const gain = this.isOn ? mask[k] : 1;
      this.real[k] *= gain;
      this.imaginary[k] *= gain;
      this.after[k] = this.before[k] * gain;
    }
    this.overlap.copyWithin(0, HOP);
    this.overlap.fill(0, HOP);
    this.add();
    samples.set(this.overlap.subarray(0, HOP));
  }

  transform() {
    for (let k = 0; k < BINS; k++) {
      let real = 0, imaginary = 0;
      for (let n = 0, turn = 0; n < SIZE; n++) {
        const value = this.signal[n] * window[n];
        real += value * cosine[turn];
        imaginary -= value * sine[turn];
        turn = (turn + k) % SIZE;
      }
      this.real[k] = real;
      this.imaginary[k] = imaginary;
      this.before[k] = Math.hypot(real, imaginary);
    }
  }

  add() {
    for (let n = 0; n < SIZE; n++) {
      let value = 0;
      for (let k = 0, turn = 0; k < BINS; k++) {
        const both = k === 0 || k === BINS - 1 ? 1 : 2;
        value += both * (this.real[k] * cosine[turn] - this.imaginary[k] * sine[turn]);
        turn = (turn + n) % SIZE;
      }
      this.overlap[n] += (value * window[n]) / SIZE;
    }
  }
}
