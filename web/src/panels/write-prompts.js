/** Prompts to begin with. */

import { choose, h } from '../dom.js';

/** `chat` where the model is to answer it, instead of going on with it. */
export const PROMPTS = [
  { name: 'A story', text: 'The old lighthouse keeper opened the door and saw', chat: false },
  { name: 'A question', text: 'Why is the sky blue?', chat: true },
  // A head that finds the name that was said only once: arXiv 2211.00593.
  { name: 'Two names', text: 'When Mary and John went to the store, John gave a drink to', chat: false },
  // Induction heads, which go on with what came after the same token earlier: arXiv 2209.11895.
  { name: 'A list that repeats', text: 'red, green, blue, red, green, blue, red, green,', chat: false },
  { name: 'A pattern', text: 'Paris is in France. Tokyo is in Japan. Rome is in', chat: false },
  { name: 'A recipe', text: 'How do I make pancakes?', chat: true },
];

/** Buttons that fill the prompt's field. @param {HTMLTextAreaElement} prompt @param {HTMLElement} chat the choice between plain and chat */
export function promptButtons(prompt, chat) {
  const fill = (/** @type {typeof PROMPTS[number]} */ one) => {
    prompt.value = one.text;
    choose(chat, one.chat ? 'chat' : 'plain');
    prompt.dispatchEvent(new Event('input', { bubbles: true }));
  };
  const buttons = PROMPTS.map((one) => h('button', { type: 'button', class: 'example', title: one.text, onclick: () => fill(one) }, one.name));
  return h('div', { class: 'example-row', role: 'group', 'aria-label': 'Example prompts' }, buttons);
}
