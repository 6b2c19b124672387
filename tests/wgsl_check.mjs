// Parses WGSL texts without a GPU. In: JSON {name: text} on stdin; out: JSON {name: what was found or the error}.
import { readFileSync } from 'node:fs';
import { WgslReflect } from '../node_modules/wgsl_reflect/wgsl_reflect.module.js';

// wgsl_reflect takes an address space's name for a keyword everywhere; in WGSL it is one only within var<…>.
const plain = (text) => text.replace(/\bworkgroup\b(?!>)/g, 'workgroup_');

function reflect(text) {
  const found = new WgslReflect(plain(text));
  const [params] = found.uniforms;
  return {
    entries: found.entry.compute.map(({ name }) => name),
    storage: found.storage.map(({ group, binding, name, access }) => ({ group, binding, name, access })),
    uniform: { group: params.group, binding: params.binding, size: params.size },
    params: params.members.map(({ name, offset, size }) => [name, offset, size]),
  };
}

const answers = {};
for (const [name, text] of Object.entries(JSON.parse(readFileSync(0, 'utf8')))) {
  try {
    answers[name] = reflect(text);
  } catch (error) {
    answers[name] = { error: String(error?.message ?? error) };
  }
}
console.log(JSON.stringify(answers));
