// Runs in the audio thread, which cannot wait: the model arrives compiled.

import { instantiate } from './built/denoiser.mjs';
import { BINS, Frames, HOP } from './frames.mjs';

// Frames that are shown together.
const TOGETHER = 4;

class Denoiser extends AudioWorkletProcessor {
  constructor({ processorOptions }) {
    super();
    this.frames = new Frames(instantiate(processorOptions.module));
    this.frames.isOn = processorOptions.isOn;
    this.port.onmessage = ({ data }) => { this.frames.isOn = data.isOn; };
    this.waiting = new Float32Array(HOP);
    this.ready = new Float32Array(HOP);
    this.place = 0;
    this.shown = [];
  }

  process([[input]], [[output]]) {
    for (let i = 0; i < output.length; i++) {
      output[i] = this.ready[this.place];
      this.waiting[this.place] = input ? input[i] : 0;
      if (++this.place === HOP) this.next();
    }
    return true;
  }

  next() {
    this.place = 0;
    this.ready.set(this.waiting);
    this.frames.next(this.ready);
    this.shown.push(this.frames.before.slice(), this.frames.after.slice());
    if (this.shown.length === 2 * TOGETHER) {
      this.port.postMessage(this.shown);
      this.shown = [];
    }
  }
}

registerProcessor('denoiser', Denoiser);
