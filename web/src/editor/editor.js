/** The Python editor. Loaded after the first map, since it is the largest script of the page. */

import { acceptCompletion, autocompletion } from '@codemirror/autocomplete';
import { indentWithTab } from '@codemirror/commands';
import { python, pythonLanguage } from '@codemirror/lang-python';
import { HighlightStyle, syntaxHighlighting } from '@codemirror/language';
import { EditorState, Prec, StateEffect, StateField } from '@codemirror/state';
import { Decoration, EditorView, keymap } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { basicSetup } from 'codemirror';
import { API } from './api-words.js';

const colors = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.bool, tags.null, tags.self], color: 'var(--code-keyword)' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--code-string)' },
  { tag: tags.number, color: 'var(--code-number)' },
  { tag: tags.comment, color: 'var(--muted)', fontStyle: 'italic' },
  { tag: [tags.function(tags.variableName), tags.function(tags.propertyName)], color: 'var(--code-function)' },
]);

const look = EditorView.theme({
  '&': { fontSize: '0.87rem', backgroundColor: 'transparent', height: '100%' },
  '&.cm-focused': { outline: '2px solid var(--accent)', outlineOffset: '1px' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.55' },
  '.cm-content': { caretColor: 'var(--ink)', padding: '10px 0' },
  '.cm-gutters': { backgroundColor: 'transparent', color: 'var(--muted)', border: '0' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'color-mix(in srgb, var(--ink) 4%, transparent)' },
  '.cm-cursor': { borderLeftColor: 'var(--ink)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': {
    backgroundColor: 'color-mix(in srgb, var(--accent) 24%, transparent)',
  },
  '.cm-tooltip': { backgroundColor: 'var(--surface)', border: '1px solid var(--line)', borderRadius: '8px' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { backgroundColor: 'var(--accent)', color: 'var(--accent-ink)' },
});

/** The names that can follow `pa.`, `device.` and others. @param {import('@codemirror/autocomplete').CompletionContext} context */
function complete(context) {
  const before = context.matchBefore(/\b(\w+(?:\.\w+)*)\.\w*$/u);
  if (!before) return null;
  const dot = before.text.lastIndexOf('.');
  const options = API[before.text.slice(0, dot)];
  return options ? { from: before.from + dot + 1, options, validFor: /^\w*$/u } : null;
}

const blame = /** @type {import('@codemirror/state').StateEffectType<number | null>} */ (StateEffect.define());
/** The line with an error, until the text changes. */
const blamed = StateField.define({
  create: () => Decoration.none,
  update(lines, transaction) {
    for (const effect of transaction.effects) {
      if (!effect.is(blame)) continue;
      const line = effect.value;
      if (line === null || line > transaction.state.doc.lines) return Decoration.none;
      return Decoration.set(Decoration.line({ class: 'cm-blamed' }).range(transaction.state.doc.line(line).from));
    }
    return lines.map(transaction.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

/**
 * @param {HTMLElement} element
 * @param {string} text
 * @param {{ label?: string, onRun: () => void, onChange: (text: string) => void }} options
 */
export function createEditor(element, text, { label = 'Python code', onRun, onChange }) {
  const view = new EditorView({
    parent: element,
    state: EditorState.create({
      doc: text,
      extensions: [
        Prec.highest(
          keymap.of([
            {
              key: 'Mod-Enter',
              run: () => {
                onRun();
                return true;
              },
            },
            { key: 'Tab', run: acceptCompletion },
            // Tab indents; Escape and then Tab leaves the editor.
          ]),
        ),
        basicSetup,
        keymap.of([indentWithTab]),
        python(),
        pythonLanguage.data.of({ autocomplete: complete }),
        autocompletion({ icons: false }),
        syntaxHighlighting(colors),
        look,
        blamed,
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ 'aria-label': label, spellcheck: 'false', tabindex: '0' }),
        EditorView.updateListener.of((update) => update.docChanged && onChange(update.state.doc.toString())),
      ],
    }),
  });

  // An editor that was hidden does not notice that its lines wrap differently now.
  new ResizeObserver(() => view.requestMeasure()).observe(element);

  return {
    get text() {
      return view.state.doc.toString();
    },

    /** @param {string} given */
    set(given) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: given } });
    },

    /** Marks the line that has an error, or none. @param {number | null} line from 1 on */
    markLine(line) {
      view.dispatch({ effects: blame.of(line) });
    },

    focus: () => view.focus(),
  };
}
