const BLOCK = 512;

/**
 * A tar archive in the form that scripts/packing.py writes.
 * @param {{ path: string, folder?: string, content: string | Uint8Array }[]} files
 */
export function tar(files) {
  const bytes = (/** @type {string | Uint8Array} */ content) => (typeof content === 'string' ? new TextEncoder().encode(content) : content);
  const contents = files.map(({ content }) => bytes(content));
  const sizes = contents.map(({ length }) => BLOCK + Math.ceil(length / BLOCK) * BLOCK);
  const archive = new Uint8Array(sizes.reduce((a, b) => a + b, 2 * BLOCK));
  let at = 0;
  files.forEach(({ path, folder = '' }, index) => {
    archive.set(bytes(path), at);
    archive.set(bytes(contents[index].length.toString(8).padStart(11, '0')), at + 124);
    archive.set(bytes(folder), at + 345);
    archive.set(contents[index], at + BLOCK);
    at += sizes[index];
  });
  return archive;
}
