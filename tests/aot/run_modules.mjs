// run_modules.mjs FOLDER: runs the modules that runs.json lists, writes the bytes of all outputs to
// results.bin and prints their lengths.
import { readFileSync, writeFileSync } from 'node:fs';

const folder = process.argv[2];
const code = await WebAssembly.compile(readFileSync(`${folder}/code.wasm`));
const data = readFileSync(`${folder}/data.bin`);
const results = [];
const lengths = [];
for (const { name, runs } of JSON.parse(readFileSync(`${folder}/runs.json`))) {
  const library = await import(`${folder}/${name}.mjs`);
  const model = library.instantiate(code);
  lengths.push(runs.map(({ inputs, sizes }) => {
    const given = Object.fromEntries(Object.entries(inputs).map(([input, { start, bytes, dims }]) => {
      const Elements = library.inputs[input].Array;
      const raw = data.buffer.slice(data.byteOffset + start, data.byteOffset + start + bytes);
      return [input, { data: new Elements(raw), dims }];
    }));
    const found = Object.values(model.run(given, sizes));
    found.forEach((one) => results.push(Buffer.from(one.buffer, one.byteOffset, one.byteLength)));
    return found.map((one) => one.byteLength);
  }));
}
writeFileSync(`${folder}/results.bin`, Buffer.concat(results));
console.log(JSON.stringify(lengths));
