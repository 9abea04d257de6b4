import * as denoiser from './built/denoiser.mjs';
import { Frames, HOP, RATE } from './frames.mjs';
import { Spectrogram } from './spectrogram.mjs';

const at = (id) => document.getElementById(id);
const say = (text) => { at('status').textContent = text; };
const pictures = [new Spectrogram(at('before')), new Spectrogram(at('after'))];

let model;
let sample;
let playing;

function show(shown) {
  for (let i = 0; i < shown.length; i += 2) {
    pictures[0].push(shown[i]);
    pictures[1].push(shown[i + 1]);
  }
}

/**
 * Microseconds of a step: the least of some rounds, so that what else the machine does is left out.
 * A round takes 20 ms: the clocks of some browsers advance by whole milliseconds.
 */
function measured() {
  const stream = model.stream({ time: 1, batch: 1 });
  stream.inputs.magnitude.fill(0.5);
  let least = Infinity;
  for (let round = 0; round < 5; round++) {
    const start = performance.now();
    let [steps, spent] = [0, 0];
    for (; spent < 20 && steps < 100000; spent = performance.now() - start) {
      for (let i = 0; i < 200; i++) stream.step();
      steps += 200;
    }
    least = Math.min(least, (spent * 1000) / steps);
  }
  stream.close();
  return least;
}

function describe() {
  const frame = measured();
  at('frame').textContent = `${frame.toFixed(1)} µs`;
  at('factor').textContent = `${Math.round((HOP / RATE) * 1e6 / frame).toLocaleString('en')} ×`;
  at('fuses').textContent = denoiser.fuses() ? 'yes' : 'emulated';
  return frame;
}

/** The whole sample at once, for the pictures and for browsers without worklets. */
function offline(signal) {
  const frames = new Frames(model);
  const cleaned = signal.slice(0, signal.length - (signal.length % HOP));
  for (let start = 0; start < cleaned.length; start += HOP) {
    frames.next(cleaned.subarray(start, start + HOP));
    show([frames.before, frames.after]);
  }
  frames.stream.close();
  return cleaned;
}

async function node(context) {
  await context.audioWorklet.addModule(new URL('processor.mjs', import.meta.url));
  const found = new AudioWorkletNode(context, 'denoiser', {
    channelCount: 1,
    channelCountMode: 'explicit',
    outputChannelCount: [1],
    processorOptions: { module: model.module, isOn: at('on').checked },
  });
  found.port.onmessage = ({ data }) => show(data);
  return found;
}

async function stop() {
  const { button, context, tracks } = playing;
  playing = undefined;
  button.setAttribute('aria-pressed', 'false');
  button.textContent = button.dataset.name;
  tracks.forEach((track) => track.stop());
  await context.close();
  say('Stopped.');
}

async function play(button, open, text) {
  const again = playing?.button !== button;
  if (playing) await stop();
  if (!again) return;
  button.dataset.name = button.textContent;
  const context = new AudioContext({ sampleRate: RATE, latencyHint: 'interactive' });
  playing = { button, context, tracks: [] };
  try {
    const source = await open(context, playing);
    if (context.audioWorklet) {
      playing.node = await node(context);
      source.connect(playing.node).connect(context.destination);
    } else {
      source.connect(context.destination);
    }
    await context.resume();
    button.textContent = 'Stop';
    button.setAttribute('aria-pressed', 'true');
    say(context.audioWorklet ? text : `${text} This browser has no audio worklets (a page needs https or localhost): what you hear was cleaned beforehand.`);
  } catch (error) {
    await stop();
    say(error.message);
  }
}

function openSample(context) {
  const signal = context.audioWorklet || !at('on').checked ? sample : offline(sample);
  const buffer = context.createBuffer(1, signal.length, RATE);
  buffer.copyToChannel(signal, 0);
  const source = new AudioBufferSourceNode(context, { buffer, loop: true });
  source.start();
  return source;
}

async function openMicrophone(context, state) {
  if (!context.audioWorklet) throw new Error('The microphone needs audio worklets: open the page by https or localhost.');
  const media = await navigator.mediaDevices.getUserMedia({
    audio: { channelCount: 1, echoCancellation: true, noiseSuppression: false, autoGainControl: false },
  });
  state.tracks = media.getTracks();
  return context.createMediaStreamSource(media);
}

async function decoded(url) {
  const bytes = await (await fetch(url)).arrayBuffer();
  return (await new OfflineAudioContext(1, 1, RATE).decodeAudioData(bytes)).getChannelData(0);
}

/** The sample through the worklet as fast as it goes: how long it took, and whether it is as offline. */
async function rendered() {
  const context = new OfflineAudioContext(1, sample.length, RATE);
  const worklet = await node(context);
  const buffer = context.createBuffer(1, sample.length, RATE);
  buffer.copyToChannel(sample, 0);
  const source = new AudioBufferSourceNode(context, { buffer });
  source.connect(worklet).connect(context.destination);
  source.start();
  const start = performance.now();
  const result = (await context.startRendering()).getChannelData(0);
  return { result, seconds: (performance.now() - start) / 1000 };
}

/** With `?check` tests hear what a page can do with nobody in front of it. */
async function report(make) {
  if (!new URLSearchParams(location.search).has('check')) return;
  await fetch('report', { method: 'POST', body: JSON.stringify(await make()) });
}

at('sample').addEventListener('click', () => play(at('sample'), openSample, 'Speech-like sounds under noise.'));
at('microphone').addEventListener('click', () => play(at('microphone'), openMicrophone, 'Listening. Use headphones, or it hears itself.'));
at('on').addEventListener('change', () => playing?.node?.port.postMessage({ isOn: at('on').checked }));

try {
  const built = new URL(`built/${denoiser.file()}`, import.meta.url);
  const response = await fetch(built);
  const bytes = await response.arrayBuffer();
  model = await denoiser.load(bytes);
  at('bytes').textContent = `${Math.round(bytes.byteLength / 1000)} kB`;
  sample = await decoded(new URL('built/sample.wav', import.meta.url));
  const frame = describe();
  offline(sample);
  at('sample').disabled = at('microphone').disabled = false;
  say('Ready.');
  await report(async () => {
    const cleaned = offline(sample);
    const { result, seconds } = await rendered();
    const delayed = result.subarray(HOP, cleaned.length);
    const same = delayed.every((value, i) => value === cleaned[i]);
    return { file: denoiser.file(), frame, seconds, length: sample.length / RATE, same };
  });
} catch (error) {
  say(error.message);
  await report(() => ({ error: error.message }));
}
