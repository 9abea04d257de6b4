// bench_wasm.mjs FOLDER: times the model that `bench_wasm.py` built there, and onnxruntime-web, by turns.
import { createRequire } from 'node:module';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const folder = process.argv[2];
const task = JSON.parse(readFileSync(join(folder, 'task.json')));
const library = await import(pathToFileURL(join(folder, 'model.mjs')));
const model = await library.load();

const given = {};
for (const [name, { dims }] of Object.entries(task.inputs)) {
  const bytes = readFileSync(join(folder, `${name}.in`));
  given[name] = { data: new library.inputs[name].Array(new Uint8Array(bytes).buffer), dims };
}
const outputs = Object.values(model.run(given, task.sizes));
writeFileSync(join(folder, 'outputs.bin'), Buffer.concat(outputs.map((one) => Buffer.from(one.buffer))));

const calls = {};
if (task.states.length) {
  const stream = model.stream(task.sizes);
  for (const [name, view] of Object.entries(stream.inputs)) view.set(given[name].data);
  calls.ostinato = () => stream.step();
} else {
  calls.ostinato = () => model.run(given, task.sizes);
}
if (task.web) {
  const web = createRequire(join(task.web, 'x.js'))('onnxruntime-web');
  web.env.wasm.numThreads = 1;
  web.env.logLevel = 'error';
  const session = await web.InferenceSession.create(readFileSync(task.model), { executionProviders: ['wasm'] });
  const feeds = {};
  for (const [name, { type, dims }] of Object.entries(task.inputs)) {
    feeds[name] = new web.Tensor(type, given[name].data, dims);
  }
  calls.web = () => session.run(feeds);
}

// Processor time, in seconds: what else the machine does is left out. Only the sum is exact: Linux
// divides it by what its clock happened to interrupt.
const now = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};
const counts = {};
const best = {};
for (const [name, call] of Object.entries(calls)) {
  counts[name] = 1;
  for (;;) {
    const start = now();
    for (let i = 0; i < counts[name]; i++) await call();
    if (now() - start > 0.02) break;
    counts[name] *= 2;
  }
  best[name] = Infinity;
}
// The engine compiles what has turned out to be called often in other threads of this process.
await new Promise((done) => setTimeout(done, 1000));
for (let round = 0; round < task.rounds; round++) {
  for (const [name, call] of Object.entries(calls)) {
    const isPlain = name === 'ostinato';
    const start = now();
    if (isPlain) for (let i = 0; i < counts[name]; i++) call();
    else for (let i = 0; i < counts[name]; i++) await call();
    best[name] = Math.min(best[name], (now() - start) / counts[name]);
  }
}
console.log(JSON.stringify(best));
