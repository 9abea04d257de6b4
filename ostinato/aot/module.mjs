const SIMD = 'SIMD_PROBE';
const FUSES = 'FUSES_PROBE';

const ARRAYS = {
  float32: Float32Array, float64: Float64Array,
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
};
// Whether only a step tells the sizes of what it gives, even if it gets no others than its stream.
const MEASURED = MODEL.sizes.some(({ kind }) => kind === 'value') || MODEL.exact.length > 0;
const ALIGNMENT = 64;
const PAGE = 65536;

const described = (tensors) =>
  Object.freeze(Object.fromEntries(tensors.map(({ name, type, array, dims }) =>
    [name, Object.freeze({ type, Array: ARRAYS[array], dims: Object.freeze(dims) })])));

/** Name of the model. */
export const name = MODEL.name;
/** What a call takes, by name: type and typed array of elements, sizes or names of run-time sizes. */
export const inputs = described(MODEL.called.inputs.map((i) => MODEL.inputs[i]));
/** What a call gives, by name. */
export const outputs = described(MODEL.called.outputs.map((i) => MODEL.outputs[i]));
/** The output of each state, by its input. */
export const states = Object.freeze(Object.fromEntries(
  MODEL.states.map(([read, written]) => [MODEL.inputs[read].name, MODEL.outputs[written].name])));
/** Names of the run-time sizes. */
export const sizes = Object.freeze(MODEL.sizes.map((size) => size.name));

function bytesOf(base64) {
  // `atob` is missing where sound is processed.
  const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  const found = [];
  let bits = 0, count = 0;
  for (const digit of base64.replace(/=/g, '')) {
    bits = (bits << 6) | digits.indexOf(digit);
    count += 6;
    if (count >= 8) found.push((bits >> (count -= 8)) & 255);
  }
  return new Uint8Array(found);
}

let fusing;

/** Whether this engine rounds a multiply-add once, as the faster one of two builds demands. */
export function fuses() {
  if (fusing === undefined) {
    const probe = bytesOf(FUSES);
    fusing = WebAssembly.validate(probe)
      && new WebAssembly.Instance(new WebAssembly.Module(probe)).exports.fuses() === 1;
  }
  return fusing;
}

/** The name of the file that this engine runs; raises where there is none. */
export function file() {
  if (typeof WebAssembly !== 'object' || !WebAssembly.validate(bytesOf(SIMD))) {
    throw new Error(`${name}: this engine has no WebAssembly with 128-bit vectors (SIMD); Chrome 91, `
      + 'Firefox 89, Safari 16.4, node 16.4 and later ones have them');
  }
  return MODEL.files.find(({ needsFusing }) => !needsFusing || fuses()).file;
}

async function read(source) {
  if (source instanceof URL || typeof source === 'string') {
    const url = new URL(source, import.meta.url);
    if (url.protocol === 'file:' && typeof process === 'object' && process.versions?.node) {
      const { readFile } = await import(/* webpackIgnore: true */ /* @vite-ignore */ 'node:fs/promises');
      return readFile(url);
    }
    source = await fetch(url);
  }
  if (typeof Response === 'function' && source instanceof Response) {
    if (!source.ok) throw new Error(`${name}: ${source.url}: HTTP status ${source.status}`);
    return new Uint8Array(await source.arrayBuffer());
  }
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  throw new TypeError(`${name}: expected a URL, bytes, a Response or a WebAssembly.Module`);
}

/** FNV-1a over words. */
function checksum(bytes) {
  const words = new Uint32Array((bytes.byteLength + 3) >> 2);
  new Uint8Array(words.buffer).set(bytes);
  let sum = 0x811c9dc5;
  for (let i = 0; i < words.length; i++) sum = Math.imul(sum ^ words[i], 0x01000193);
  return sum >>> 0;
}

/**
 * Fetch and compile the code that this engine runs. Other threads take a compiled module through
 * `postMessage`, and call `instantiate`.
 */
export async function compile(source) {
  const wanted = file();
  if (source instanceof WebAssembly.Module) return source;
  const bytes = await read(await (source ?? new URL(wanted, import.meta.url)));
  const sum = checksum(bytes);
  const found = MODEL.files.find((one) => one.bytes === bytes.byteLength && one.checksum === sum);
  if (!found) {
    throw new Error(`${name}: these ${bytes.byteLength} bytes are not ${MODEL.files.map((one) => one.file).join(' or ')} of this build, or damaged`);
  }
  if (found.needsFusing && !fuses()) throw new Error(`${name}: ${found.file} needs a fused multiply-add, which this engine lacks; it runs ${wanted}`);
  return WebAssembly.compile(bytes);
}

/**
 * Fetch the weights of a build that has them in a file of their own, which `instantiate` takes;
 * nothing of other builds.
 */
export async function weights(source) {
  const wanted = MODEL.files.find((one) => one.file === file()).weights;
  if (!wanted) return undefined;
  const bytes = await read(await (source ?? new URL(wanted.file, import.meta.url)));
  if (bytes.byteLength !== wanted.bytes || checksum(bytes) !== wanted.checksum) {
    throw new Error(`${name}: these ${bytes.byteLength} bytes are not ${wanted.file} of this build, or damaged`);
  }
  return bytes;
}

/**
 * Fetch, compile and start the model: from the files beside this one, or from `source` and, of
 * weights in a file of their own, `from`.
 */
export async function load(source, from) {
  const [module, bytes] = await Promise.all([compile(source), weights(from)]);
  return new Model(await WebAssembly.instantiate(module, {}), module, bytes);
}

/** Start a model that `compile` gave, at once: in an `AudioWorkletProcessor`, which cannot wait. */
export function instantiate(module, bytes) {
  file();
  return new Model(new WebAssembly.Instance(module, {}), module, bytes);
}

export default load;

/** Memory of the instance, in blocks that are used again. */
class Heap {
  #memory;
  #end;
  #free = new Map();

  constructor(exports) {
    this.#memory = exports.memory;
    this.#end = exports.__heap_base.value;
  }

  get buffer() {
    return this.#memory.buffer;
  }

  take(bytes) {
    const size = Math.ceil(Math.max(bytes, 1) / ALIGNMENT) * ALIGNMENT;
    const free = this.#free.get(size);
    if (free?.length) return free.pop();
    const start = Math.ceil(this.#end / ALIGNMENT) * ALIGNMENT;
    const missing = start + size - this.#memory.buffer.byteLength;
    if (missing > 0) {
      try {
        this.#memory.grow(Math.ceil(missing / PAGE));
      } catch (cause) {
        throw new Error(`${name}: no memory for ${size} bytes more`, { cause });
      }
    }
    this.#end = start + size;
    return start;
  }

  give(start, bytes) {
    const size = Math.ceil(Math.max(bytes, 1) / ALIGNMENT) * ALIGNMENT;
    if (!this.#free.has(size)) this.#free.set(size, []);
    this.#free.get(size).push(start);
  }
}

const product = (dims) => dims.reduce((count, size) => count * size, 1);

/** Elements of a tensor for these sizes. */
const shaped = (tensor, known) => tensor.dims.map((dim) => (typeof dim === 'number' ? dim : known[dim]));

function check(code) {
  if (code) throw new Error(`${name}: ${MODEL.errors[code] ?? `error ${code}`}`);
}

/** The elements, checked; of types that JavaScript lacks their bits. */
function elements(tensor, given) {
  const data = ArrayBuffer.isView(given) ? given : given?.data ?? given;
  const type = ARRAYS[tensor.array];
  if (data instanceof type) return data;
  const areBits = tensor.array !== tensor.type;
  if (areBits && ArrayBuffer.isView(data) && data.BYTES_PER_ELEMENT === type.BYTES_PER_ELEMENT) {
    return new type(data.buffer, data.byteOffset, data.length);
  }
  if (!areBits || tensor.type === 'bool') {
    const element = tensor.array.endsWith('64') && tensor.array !== 'float64' ? BigInt : Number;
    const isElement = (value) => ['number', 'bigint', 'boolean'].includes(typeof value);
    const list = Array.isArray(data) ? data.flat(Infinity) : undefined;
    if (list?.every(isElement)) return type.from(list, element);
    if (!tensor.dims.length && isElement(data)) return type.of(element(data));
  }
  throw new TypeError(`${name}: input ${tensor.name}: expected a ${type.name} for ${tensor.type}[${tensor.dims.join(', ')}], got ${data?.constructor?.name ?? typeof data}`);
}

/** The name of a size as a key of an object is written. */
const key = (size) => (/^[A-Za-z_$][\w$]*$/.test(size) ? size : `'${size}'`);

/** Sizes that follow from how many elements the tensors have; those of states are 1 if nothing tells. */
function inferred(places, given, known) {
  const there = places.map((place) => MODEL.inputs[place]).filter((tensor) => given[tensor.name] !== undefined);
  for (const tensor of there) {
    const { dims } = given[tensor.name];
    if (dims?.length !== tensor.dims.length) continue;
    tensor.dims.forEach((dim, i) => {
      if (typeof dim === 'string') known[dim] ??= Number(dims[i]);
    });
  }
  let left = there;
  while (left.length) {
    const waiting = left.filter((tensor) => !solved(tensor, given, known));
    if (waiting.length === left.length) {
      const open = MODEL.sizes.filter(({ name: size }) => known[size] === undefined);
      const state = open.find(({ kind }) => kind === 'state');
      if (!state) {
        throw new RangeError(`${name}: the sizes of input ${left[0].name}[${left[0].dims.join(', ')}] do not follow from its length; `
          + `say them: run(inputs, { ${open.map((size) => `${key(size.name)}: ..`).join(', ')} })`);
      }
      known[state.name] = 1;
    }
    left = waiting;
  }
  return known;
}

/** Whether at most one size of the tensor was open, which is now known; its length is checked. */
function solved(tensor, given, known) {
  const open = [...new Set(tensor.dims.filter((dim) => typeof dim === 'string' && known[dim] === undefined))];
  if (open.length > 1) return false;
  const count = elements(tensor, given[tensor.name]).length;
  if (open.length) {
    const others = product(shaped(tensor, { ...known, [open[0]]: 1 }));
    // No elements say nothing of a size beside one that is 0.
    if (!others && !count) return true;
    const power = tensor.dims.filter((dim) => dim === open[0]).length;
    known[open[0]] = others ? Math.round((count / others) ** (1 / power)) : 0;
  }
  const expected = product(shaped(tensor, known));
  if (count !== expected) {
    throw new RangeError(`${name}: input ${tensor.name}: expected ${expected} elements for [${shaped(tensor, known).join(', ')}], `
      + `a ${tensor.type}[${tensor.dims.join(', ')}], got ${count}`);
  }
  return true;
}

/** What a function takes for the sizes, in its order. */
function sizeArguments(list, known) {
  return list.map((size) => (size.kind === 'value' ? BigInt(known[size.name]) : known[size.name]));
}

/** An object of the compiled interface, with memory for its tensors. */
class Room {
  #model;
  #table;
  #blocks = [];

  constructor(model, known) {
    this.#model = model;
    this.sizes = known;
    const all = sizeArguments(MODEL.sizes, known);
    const bytes = model.call('memory_bytes', ...all) >>> 0;
    if (!bytes) throw new RangeError(`${name}: the sizes ${JSON.stringify(known)} are too large, or do not fit each other`);
    this.memory = this.take(bytes);
    const place = this.take(8);
    check(model.call('create_in', this.memory, bytes, ...model.weights, ...all, place));
    this.object = new Uint32Array(model.heap.buffer, place, 1)[0];
    if (!MODEL.plainOutputs) this.#table = this.take(8 * MODEL.maxRank * MODEL.outputs.length);
    this.shapes = this.shapesFor(known);
    const count = (tensor, dims) => product(dims) * ARRAYS[tensor.array].BYTES_PER_ELEMENT;
    const take = (places, tensors, dims) => {
      const starts = new Array(tensors.length);
      for (const i of places) starts[i] = this.take(count(tensors[i], dims(i)));
      return starts;
    };
    this.inputs = take(MODEL.called.inputs, MODEL.inputs, (i) => shaped(MODEL.inputs[i], known));
    this.outputs = take(MODEL.called.outputs, MODEL.outputs, (i) => this.shapes[i]);
  }

  /** Sizes of all outputs of a call; of those that only the call tells what they are at most. */
  shapesFor(known) {
    if (MODEL.plainOutputs) return MODEL.outputs.map((tensor) => shaped(tensor, known));
    check(this.#model.call('output_sizes', ...sizeArguments(MODEL.sizes, known), this.#table));
    const table = new BigInt64Array(this.#model.heap.buffer, this.#table, MODEL.maxRank * MODEL.outputs.length);
    return MODEL.outputs.map((tensor, i) =>
      tensor.dims.map((_, axis) => Number(table[i * MODEL.maxRank + axis])));
  }

  /** The sizes of an output after a call, which may have computed them. */
  exact(i, shapes) {
    const place = MODEL.exact.find(([output]) => output === i)?.[1];
    if (place === undefined) return shapes[i];
    return [...this.view(MODEL.outputs[place], this.outputs[place], shapes[place])].map(Number);
  }

  take(bytes) {
    const start = this.#model.heap.take(bytes);
    this.#blocks.push([start, bytes]);
    return start;
  }

  /** A view of a tensor; it is empty once the memory of the model has grown. */
  view(tensor, start, dims) {
    return new ARRAYS[tensor.array](this.#model.heap.buffer, start, product(dims));
  }

  close() {
    for (const block of this.#blocks.splice(0)) this.#model.heap.give(...block);
    this.object = 0;
  }

  get blocks() {
    return this.#blocks;
  }
}

/** A model in the memory of its own instance. */
export class Model {
  #exports;
  #room;
  #forgotten;

  /** Use `load` or `instantiate`. */
  constructor(instance, module, bytes) {
    this.#exports = instance.exports;
    if (!this.#exports[`${MODEL.name}_create_in`]) throw new Error(`${name}: this module is another one`);
    /** The compiled module, which other threads can `instantiate`. */
    this.module = module;
    this.heap = new Heap(instance.exports);
    /** @internal What an object takes for weights that are no part of the code. */
    this.weights = [];
    if (MODEL.files[0].weights) {
      if (!(bytes instanceof Uint8Array)) throw new TypeError(`${name}: the weights are missing: instantiate(module, await weights())`);
      const start = this.heap.take(bytes.byteLength);
      new Uint8Array(this.heap.buffer, start, bytes.byteLength).set(bytes);
      this.weights = [start, bytes.byteLength];
    }
    if (typeof FinalizationRegistry === 'function') {
      this.#forgotten = new FinalizationRegistry((room) => room.close());
    }
  }

  /** @internal */
  call(method, ...args) {
    return this.#exports[`${MODEL.name}_${method}`](...args);
  }

  /** @internal */
  keep(stream, room) {
    this.#forgotten?.register(stream, room, room);
  }

  /** @internal */
  forget(room) {
    this.#forgotten?.unregister(room);
  }

  /**
   * Compute all outputs, as arrays of their own. Inputs of states that are left out are what they
   * are before the first step. Sizes follow from the lengths of the arrays; `sizes` says those that
   * do not.
   */
  run(given, sizes = {}) {
    if (!MODEL.runs) throw new Error(`${name}: states of this model grow, so it has no run(): take stream()`);
    given = only(given);
    const places = MODEL.called.inputs;
    const known = inferred(places, given, { ...sizes });
    for (const size of MODEL.sizes) {
      if (size.kind === 'value') {
        const value = given[MODEL.inputs[size.source[0]].name];
        if (value !== undefined) known[size.name] = elements(MODEL.inputs[size.source[0]], value)[size.source[1]];
      }
    }
    complete(known);
    const room = this.#for(known);
    const initial = new Map(MODEL.states.map(([read], i) => [read, MODEL.shown[i][0]]));
    const pointers = MODEL.inputs.map((tensor, i) => {
      const value = given[tensor.name];
      if (value === undefined) {
        if (!initial.has(i)) throw new TypeError(`${name}: input ${tensor.name} is missing`);
        return this.call(initial.get(i), room.object);
      }
      room.view(tensor, room.inputs[i], shaped(tensor, known)).set(elements(tensor, value));
      return room.inputs[i];
    });
    const arguments_ = MODEL.sizes.filter(({ kind }) => kind === 'state' || kind === 'call');
    check(this.call('run', room.object, ...sizeArguments(arguments_, known), ...pointers, ...room.outputs));
    return Object.fromEntries(MODEL.outputs.map((tensor, i) =>
      [tensor.name, room.view(tensor, room.outputs[i], room.exact(i, room.shapes)).slice()]));
  }

  #for(known) {
    const key = JSON.stringify(known, (_, value) => (typeof value === 'bigint' ? `${value}` : value));
    if (this.#room?.key !== key) {
      this.#room?.close();
      this.#room = undefined;
      this.#room = new Room(this, known);
      this.#room.key = key;
    }
    return this.#room;
  }

  /**
   * The states of one signal. Sizes that are not given are 1: those of states for all steps, others
   * at most.
   */
  stream(sizes = {}) {
    if (!MODEL.states.length) throw new Error(`${name}: this model was built without states, hence without streams`);
    return new Stream(this, complete({ ...sizes }));
  }
}

/** Refuse names that are no inputs. */
function only(given) {
  const known = MODEL.called.inputs.map((i) => MODEL.inputs[i].name);
  if (given === null || typeof given !== 'object' || ArrayBuffer.isView(given) || Array.isArray(given)) {
    throw new TypeError(`${name}: expected inputs by name, { ${known.map((key) => `${key}: ..`).join(', ')} }, got ${given?.constructor?.name ?? given}`);
  }
  for (const key of Object.keys(given)) {
    if (!known.includes(key)) throw new TypeError(`${name}: there is no input ${key}; there are ${known.join(', ')}`);
  }
  return given;
}

/** Sizes that nobody told: 1, and 64 MiB for values of which nobody knows how large they get. */
function complete(known) {
  const names = MODEL.sizes.map((size) => size.name);
  for (const key of Object.keys(known)) {
    if (!names.includes(key)) throw new TypeError(`${name}: there is no size ${key}; there are ${names.join(', ') || 'none'}`);
    const isValue = MODEL.sizes.find((size) => size.name === key).kind === 'value';
    if (!isValue && !(Number.isInteger(known[key]) && known[key] >= 0)) {
      throw new RangeError(`${name}: size ${key}: expected a whole number, got ${known[key]}`);
    }
  }
  for (const size of MODEL.sizes) {
    if (size.kind === 'capacity' && known[size.name] === undefined) {
      throw new RangeError(`${name}: how many rows may states have? stream({ '${size.name}': .. })`);
    }
    known[size.name] ??= size.kind === 'spare' ? 1 << 26 : 1;
  }
  return known;
}

/** A signal that is computed step by step, with states of its own. */
export class Stream {
  #model;
  #room;
  #buffer;
  #views;
  #arguments;
  #most;
  #shapes;

  /** Use `Model.stream`. */
  constructor(model, sizes) {
    this.#model = model;
    this.#most = sizes;
    this.#room = new Room(model, sizes);
    this.#arguments = this.#argumentsFor(sizes);
    model.keep(this, this.#room);
  }

  /** The sizes that it was made for. */
  get sizes() {
    return { ...this.#most };
  }

  #argumentsFor(known) {
    const { inputs: ins, outputs: outs } = MODEL.step;
    const own = MODEL.sizes.filter(({ kind }) => kind === 'call');
    return [this.#room.object, ...sizeArguments(own, known),
      ...ins.map((i) => this.#room.inputs[i]), ...outs.map((i) => this.#room.outputs[i])];
  }

  #found() {
    if (!this.#room.object) throw new Error(`${name}: this stream is closed`);
    const buffer = this.#model.heap.buffer;
    if (this.#buffer !== buffer) {
      const views = (tensors, places, starts, dims) => Object.freeze(Object.fromEntries(
        places.map((i) => [tensors[i].name, this.#room.view(tensors[i], starts[i], dims(i))])));
      const { inputs: ins, outputs: outs } = MODEL.step;
      this.#views = {
        inputs: views(MODEL.inputs, ins, this.#room.inputs, (i) => shaped(MODEL.inputs[i], this.#most)),
        outputs: views(MODEL.outputs, outs, this.#room.outputs, (i) => this.#room.shapes[i]),
      };
      this.#buffer = buffer;
    }
    return this.#views;
  }

  /** Where a step reads: views to fill before `step()`. They end when the model's memory grows. */
  get inputs() {
    return this.#found().inputs;
  }

  /** What the last step gave: views that hold until the next one. */
  get outputs() {
    const { outputs: largest } = this.#found();
    if (!this.#shapes) return largest;
    return Object.freeze(Object.fromEntries(MODEL.step.outputs.map((i) => {
      const tensor = MODEL.outputs[i];
      return [tensor.name, this.#room.view(tensor, this.#room.outputs[i], this.#shapes[i])];
    })));
  }

  /** The states, those that grow with all the memory that they have, as views to read or to change. */
  get states() {
    this.#found();
    return Object.freeze(Object.fromEntries(MODEL.shown.map(([call, tensor]) => {
      const start = this.#model.call(call, this.#room.object) >>> 0;
      return [tensor.name, this.#room.view(tensor, start, shaped(tensor, this.#most))];
    })));
  }

  /**
   * One step. `given`: inputs by name, or the only one; without it what `inputs` hold. Returns views
   * of the outputs, which hold until the next step.
   */
  step(given) {
    const views = this.#found();
    const known = given === undefined ? this.#most : this.#filled(given, views.inputs);
    if (known === this.#most && !MEASURED) {
      check(this.#model.call('step', ...this.#arguments));
      this.#shapes = undefined;
      return views.outputs;
    }
    const shapes = this.#shapesOf(known, views.inputs);
    check(this.#model.call('step', ...this.#argumentsFor(known)));
    this.#shapes = shapes.map((_, i) => this.#room.exact(i, shapes));
    return this.outputs;
  }

  /** Write what a step gets to the memory of its inputs. Returns its sizes. */
  #filled(given, views) {
    const places = MODEL.step.inputs;
    if (places.length === 1) {
      const tensor = MODEL.inputs[places[0]];
      if (ARRAYS[tensor.array] === given?.constructor && views[tensor.name].length === given.length) {
        views[tensor.name].set(given);
        return this.#most;
      }
      if (ArrayBuffer.isView(given) || Array.isArray(given)) given = { [tensor.name]: given };
    }
    given = only(given);
    const known = this.#sizesOf(given, places);
    for (const place of places) {
      const tensor = MODEL.inputs[place];
      if (given[tensor.name] === undefined) throw new TypeError(`${name}: input ${tensor.name} is missing`);
      views[tensor.name].set(elements(tensor, given[tensor.name]));
    }
    return known;
  }

  /** Sizes of a step; those of the stream itself where they are the largest. */
  #sizesOf(given, places) {
    const known = {};
    for (const size of MODEL.sizes) if (size.kind !== 'call') known[size.name] = this.#most[size.name];
    inferred(places, given, known);
    let same = true;
    for (const { name: size, kind } of MODEL.sizes) {
      known[size] ??= this.#most[size];
      same &&= known[size] === this.#most[size];
      if (kind === 'call' && known[size] > this.#most[size]) {
        throw new RangeError(`${name}: ${size} is ${known[size]}, and this stream was made for ${this.#most[size]}; make it with stream({ ${key(size)}: ${known[size]} })`);
      }
    }
    return same ? this.#most : known;
  }

  /** Sizes of the outputs of a step, which elements of inputs may decide; they fit in. */
  #shapesOf(known, views) {
    const sizes = { ...known };
    for (const { name: size, kind, source: [place, element] } of MODEL.sizes) {
      const tensor = MODEL.inputs[place];
      if (kind === 'value') sizes[size] = (views[tensor.name] ?? this.states[tensor.name])[element];
    }
    const shapes = this.#room.shapesFor(sizes);
    for (const i of MODEL.step.outputs) {
      if (product(shapes[i]) > product(this.#room.shapes[i])) {
        const said = MODEL.sizes.map((size) => `${key(size.name)}: ${(size.kind === 'value' ? sizes : this.#most)[size.name]}`).join(', ');
        throw new RangeError(`${name}: output ${MODEL.outputs[i].name} has sizes [${shapes[i].join(', ')}] here, and this stream was made for `
          + `[${this.#room.shapes[i].join(', ')}]; make it with stream({ ${said} })`);
      }
    }
    return shapes;
  }

  /** Back to the states before the first step. */
  reset() {
    this.#found();
    check(this.#model.call('reset', this.#room.object));
  }

  /** The states as bytes, which any build of this model loads, on any machine. */
  save() {
    this.#found();
    const bytes = this.#model.call('save_bytes', this.#room.object) >>> 0;
    const place = this.#model.heap.take(bytes);
    try {
      check(this.#model.call('save', this.#room.object, place, bytes));
      return new Uint8Array(this.#model.heap.buffer, place, bytes).slice();
    } finally {
      this.#model.heap.give(place, bytes);
    }
  }

  /** Take over states that were saved, of the same sizes. */
  load(bytes) {
    this.#found();
    const place = this.#model.heap.take(bytes.byteLength);
    try {
      new Uint8Array(this.#model.heap.buffer, place, bytes.byteLength).set(bytes);
      check(this.#model.call('load', this.#room.object, place, bytes.byteLength));
    } finally {
      this.#model.heap.give(place, bytes.byteLength);
    }
  }

  /** Another stream that goes on from here. */
  fork() {
    const twin = this.#model.stream(this.#most);
    twin.load(this.save());
    return twin;
  }

  /** Give the memory back; a stream that nobody refers to does so by itself. */
  close() {
    this.#model.forget(this.#room);
    this.#room.close();
  }
}

if (Symbol.dispose) Stream.prototype[Symbol.dispose] = Stream.prototype.close;
