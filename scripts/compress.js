// Compresses files for servers that can send them compressed: reads lines `source<TAB>target without suffix` and writes
// target.br and target.gz. Node's own zlib: Python's standard library has no Brotli.
import { readFileSync } from "node:fs";
import { readFile, rename, writeFile } from "node:fs/promises";
import { promisify } from "node:util";
import zlib from "node:zlib";

const brotli = promisify(zlib.brotliCompress);
const gzip = promisify(zlib.gzip);
const MB = 1 << 20;

/** Brotli's quality: the best that is fast enough. Large files take seconds at the highest quality. @param {number} size */
function quality(size) {
  return size < MB / 2 ? 11 : size < 12 * MB ? 9 : 5;
}

/** @param {string} path @param {Buffer} content */
async function put(path, content) {
  await writeFile(`${path}.partial`, content);
  await rename(`${path}.partial`, path);
}

/** @param {string} line */
async function compress(line) {
  const [source, target] = line.split("\t");
  const content = await readFile(source);
  const params = {
    [zlib.constants.BROTLI_PARAM_QUALITY]: quality(content.length),
    [zlib.constants.BROTLI_PARAM_SIZE_HINT]: content.length,
  };
  const [br, gz] = await Promise.all([brotli(content, { params }), gzip(content, { level: 9 })]);
  await Promise.all([put(`${target}.br`, br), put(`${target}.gz`, gz)]);
}

await Promise.all(readFileSync(0, "utf8").split("\n").filter(Boolean).map(compress));
