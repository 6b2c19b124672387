/** The editor of Python and of WGSL. Loaded after the first map, since it is the largest script of the page. */

import { acceptCompletion, autocompletion } from '@codemirror/autocomplete';
import { indentWithTab } from '@codemirror/commands';
import { python, pythonLanguage } from '@codemirror/lang-python';
import { HighlightStyle, StreamLanguage, syntaxHighlighting } from '@codemirror/language';
import { EditorState, Prec, StateEffect, StateField } from '@codemirror/state';
import { Decoration, EditorView, keymap } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { basicSetup } from 'codemirror';
import { API } from './api-words.js';
import { wgslToken } from './wgsl.js';

const colors = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.bool, tags.null, tags.self], color: 'var(--code-keyword)' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--code-string)' },
  { tag: [tags.typeName, tags.meta], color: 'var(--code-type)' },
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

/**
 * @typedef {{ from: number, options: { label: string, type: string, detail: string }[] }} Names that can stand at a position
 * @typedef {{ line: number, kind?: string }} Mark a line, from 1 on, that has an "error" or a "warning"
 */

const ANSWER_MS = 400; // Python may be busy; then only the names of the API are offered

/**
 * The names that can follow `pa.`, `device.` and others, and those that Python has at the moment.
 * @param {((text: string, position: number) => Promise<Names>) | undefined} ask Python
 */
function completions(ask) {
  /** @param {import('@codemirror/autocomplete').CompletionContext} context */
  return async (context) => {
    const word = context.matchBefore(/[\w.]+$/u);
    if (!word && !context.explicit) return null;
    const known = knownNames(context);
    const live = ask && (await within(ask(context.state.doc.toString(), context.pos)));
    if (!live?.options.length) return known;
    const details = new Map(known?.options.map((one) => [one.label, one]));
    return { from: live.from, options: live.options.map((one) => details.get(one.label) ?? one), validFor: /^\w*$/u };
  };
}

/** @param {import('@codemirror/autocomplete').CompletionContext} context */
function knownNames(context) {
  const before = context.matchBefore(/\b(\w+(?:\.\w+)*)\.\w*$/u);
  if (!before) return null;
  const dot = before.text.lastIndexOf('.');
  const options = API[before.text.slice(0, dot)];
  return options ? { from: before.from + dot + 1, options, validFor: /^\w*$/u } : null;
}

/** An answer, or null where it takes too long or fails. @template T @param {Promise<T>} answer @returns {Promise<T | null>} */
function within(answer) {
  const late = /** @type {Promise<null>} */ (new Promise((resolve) => setTimeout(resolve, ANSWER_MS, null)));
  return Promise.race([answer.catch(() => null), late]);
}

const blame = /** @type {import('@codemirror/state').StateEffectType<Mark[]>} */ (StateEffect.define());
/** The lines with errors or warnings, until others are marked. */
const blamed = StateField.define({
  create: () => Decoration.none,
  update(lines, transaction) {
    for (const effect of transaction.effects) {
      if (!effect.is(blame)) continue;
      const { doc } = transaction.state;
      const inside = effect.value.filter(({ line }) => line >= 1 && line <= doc.lines);
      const marks = inside.map(({ line, kind }) =>
        Decoration.line({ class: kind === 'warning' ? 'cm-blamed cm-warned' : 'cm-blamed' }).range(doc.line(line).from),
      );
      return Decoration.set(marks, true);
    }
    return lines.map(transaction.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

/**
 * Replaces a selection with what is typed. Left to itself, Chromium gives the new text the old one's style as an attribute
 * first, which a strict Content-Security-Policy reports.
 */
const typedOver = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { data, inputType, isComposing } = event;
    const { from, to, empty } = view.state.selection.main;
    if (inputType !== 'insertText' || !data || isComposing || empty || view.state.selection.ranges.length > 1) return false;
    event.preventDefault();
    const replaced = () => view.state.update(view.state.replaceSelection(data), { userEvent: 'input.type', scrollIntoView: true });
    const isTaken = view.state.facet(EditorView.inputHandler).some((handle) => handle(view, from, to, data, replaced));
    if (!isTaken) view.dispatch(replaced());
    return true;
  },
});

/** @param {((text: string, position: number) => Promise<Names>) | undefined} ask */
const inPython = (ask) => [python(), pythonLanguage.data.of({ autocomplete: completions(ask) })];
const inWgsl = [
  StreamLanguage.define({
    name: 'wgsl',
    startState: () => ({ inComment: false }),
    token: wgslToken,
    languageData: { commentTokens: { line: '//', block: { open: '/*', close: '*/' } } },
  }),
];

/**
 * @param {HTMLElement} element
 * @param {string} text
 * @param {object} options
 * @param {string} [options.label]
 * @param {'python' | 'wgsl'} [options.language]
 * @param {() => void} options.onRun
 * @param {(text: string) => void} options.onChange
 * @param {(text: string, position: number) => Promise<Names>} [options.complete] asks Python for names
 */
export function createEditor(element, text, { label = 'Python code', language = 'python', onRun, onChange, complete }) {
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
        language === 'python' ? inPython(complete) : inWgsl,
        autocompletion({ icons: false }),
        syntaxHighlighting(colors),
        look,
        blamed,
        typedOver,
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
      view.dispatch({ effects: blame.of(line === null ? [] : [{ line }]) });
    },

    /** Marks all lines that have an error or a warning, and no others. @param {Mark[]} marks */
    markLines(marks) {
      view.dispatch({ effects: blame.of(marks) });
    },

    /** Puts the cursor on a line. @param {number} line from 1 on @param {number} [column] from 1 on */
    goTo(line, column = 1) {
      const at = view.state.doc.line(Math.min(Math.max(line, 1), view.state.doc.lines));
      view.dispatch({ selection: { anchor: Math.min(at.from + Math.max(column, 1) - 1, at.to) }, scrollIntoView: true });
      view.focus();
    },

    destroy: () => view.destroy(),

    focus: () => view.focus(),
  };
}
