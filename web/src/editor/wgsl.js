/** Colours for WGSL: enough of a tokenizer to tell keywords, types, numbers, attributes and comments. */

const TOKENS =
  /(?<comment>\/\/[^\n]*|\/\*[\s\S]*?\*\/)|(?<attribute>@\w+)|(?<number>\b0x[\da-fA-F]+[iu]?\b|\b\d[\d.]*(?:e[+-]?\d+)?[iufh]?\b)|(?<word>\b[A-Za-z_]\w*\b)/gu;
const KEYWORDS = new Set(
  'alias break case const const_assert continue continuing default diagnostic discard else enable false fn for if let loop override requires return struct switch true var while'.split(
    ' ',
  ),
);
const TYPES =
  /^(?:bool|[iuf]32|f16|vec[234][iufh]?|mat[234]x[234][fh]?|array|atomic|ptr|storage|uniform|workgroup|private|function|read|write|read_write)$/u;

/**
 * @param {string} text
 * @returns {Node[]}
 */
export function highlight(text) {
  /** @type {Node[]} */
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(TOKENS)) {
    const kind = kindOf(match.groups ?? {});
    if (!kind) continue;
    if (match.index > at) nodes.push(document.createTextNode(text.slice(at, match.index)));
    const span = document.createElement('span');
    span.className = `wgsl-${kind}`;
    span.textContent = match[0];
    nodes.push(span);
    at = match.index + match[0].length;
  }
  nodes.push(document.createTextNode(text.slice(at)));
  return nodes;
}

/** @param {Record<string, string | undefined>} groups */
function kindOf({ comment, attribute, number, word }) {
  if (comment) return 'comment';
  if (attribute) return 'attribute';
  if (number) return 'number';
  if (word && KEYWORDS.has(word)) return 'keyword';
  if (word && TYPES.test(word)) return 'type';
  return '';
}

const STYLES = /** @type {Record<string, string>} */ ({ keyword: 'keyword', type: 'typeName', number: 'number', attribute: 'meta' });

/**
 * The next token of a line, for the editor: CodeMirror's names of styles.
 * @param {import('@codemirror/language').StringStream} stream @param {{ inComment: boolean }} state
 */
export function wgslToken(stream, state) {
  if (state.inComment || stream.match('/*')) {
    state.inComment = !stream.match(/^.*?\*\//u);
    if (state.inComment) stream.skipToEnd();
    return 'comment';
  }
  if (stream.match('//')) {
    stream.skipToEnd();
    return 'comment';
  }
  if (stream.match(/^@\w+/u)) return STYLES.attribute;
  if (stream.match(/^(?:0x[\da-fA-F]+[iu]?|\d[\d.]*(?:e[+-]?\d+)?[iufh]?)/u)) return STYLES.number;
  const word = /** @type {RegExpMatchArray | null} */ (stream.match(/^[A-Za-z_]\w*/u));
  if (word) return STYLES[kindOf({ word: word[0] })] ?? null;
  stream.next();
  return null;
}
