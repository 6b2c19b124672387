/** The terms that the page uses, each in one or two sentences. */

export const GLOSSARY = /** @type {const} */ ({
  attention: 'How a model lets every token look at the other tokens, and take over from some of them more than from others.',
  head: 'One of several attentions that a layer computes side by side. Each head has learned to look for something else.',
  layer: 'One step of the model. Each layer reads what the layer before it has made of the text; layers are counted from 0.',
  token: 'A piece of text as the model reads it: a word, a part of a word, or a punctuation mark.',
  query: 'What a token looks for. Every row of a map belongs to one query, and shows how its attention is spread.',
  key: 'What a token offers to those that look for something. Every column of a map belongs to one key.',
  value: 'What a token hands over to the queries that attend to it. A query’s output is the average of all values, by their weights.',
  weight: 'How much a query attends to a key, from 0 to 1. The weights of a row add up to 1.',
  softmax: 'Turns the scores of a row into weights: each becomes exp(score), divided by the sum of all of them.',
  LSE: 'Log-sum-exp: the logarithm of the sum of exp(score) over a row. With it a kernel can compute any weight of the row by itself.',
  score: 'The product of a query and a key, before the softmax: the higher it is, the more the query attends to the key.',
  score_mod: 'A function of your own that changes scores before the softmax; the page translates it into the kernel.',
  mask_mod: 'A function of your own that says which keys a query may see.',
  causal: 'Tokens see only themselves and what comes before them, as in a model that writes from left to right.',
  'KV cache': 'The keys and values of all tokens so far, kept so that writing one more token does not compute them again.',
  decode: 'To compute attention for one new token, over the cached keys and values of all earlier ones.',
  prefill: 'To read a whole prompt at once, before the first token is written.',
  kernel: 'A program that runs on the GPU.',
  WGSL: 'The language of programs for the GPU in a browser.',
  float64: 'Numbers with about 16 digits. The results of the GPU, which have about 7, are checked against them.',
  split: 'A part of the keys that is computed by itself; the parts’ results are combined at the end.',
  '##': 'Marks a piece that continues the word before it: “hedge” and “##hog” are one word.',
  '[CLS]': 'A token that the model puts at the beginning of every text. Heads that have nothing to find often attend to it.',
  '[SEP]': 'A token that the model puts at the end of every text.',
});

/** @typedef {keyof typeof GLOSSARY} Term */
