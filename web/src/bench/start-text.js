/** Starts of the page as lines of text: when each stage began, what the worker did, what Python imported. */

import { median } from './clocks.js';

/** @typedef {import('./types').Start} Start */

const IMPORTS = 70;

/** @param {Start} start @returns {string[]} */
export function describeStart({ visit, marks, profile }) {
  const stages = Object.entries(marks).sort(([, a], [, b]) => a - b);
  const lines = [`start, ${visit} visit; stages began at: ${stages.map(([name, at]) => `${name} ${at.toFixed(0)}`).join(', ')} ms`];
  const spans = [...profile.spans].sort((a, b) => a.at - b.at);
  for (const { name, at, ms } of spans) {
    lines.push(`  ${at.toFixed(0).padStart(6)} to ${(at + ms).toFixed(0).padStart(6)}: ${ms.toFixed(1).padStart(7)} ms ${name}`);
  }
  return [...lines, ...describeImports(profile.imports)];
}

/** The longest of -X importtime. @param {string[]} lines @returns {string[]} */
function describeImports(lines) {
  const found = lines.flatMap((line) => {
    const [, own, all, name] = /import time:\s*(\d+) \|\s*(\d+) \|\s*(\S+)/u.exec(line) ?? [];
    return name ? [{ own: Number(own) / 1000, all: Number(all) / 1000, name }] : [];
  });
  if (!found.length) return [];
  const sum = found.reduce((total, { own }) => total + own, 0);
  const longest = [...found].sort((a, b) => b.own - a.own).slice(0, IMPORTS);
  return [
    `  ${found.length} imports take ${sum.toFixed(0)} ms; the longest (ms by itself, with what it imports):`,
    ...longest.map(({ own, all, name }) => `  ${own.toFixed(1).padStart(7)} ${all.toFixed(1).padStart(7)} ${name}`),
  ];
}

/** @param {Start[]} starts @returns {string[]} */
export function describeMedians(starts) {
  return /** @type {const} */ (['first', 'repeated']).flatMap((visit) => {
    const marks = starts.filter((start) => start.visit === visit).map((start) => start.marks);
    if (!marks.length) return [];
    const stages = Object.keys(marks[0]).map((name) => /** @type {const} */ ([name, median(marks.flatMap((of) => of[name] ?? []))]));
    stages.sort(([, a], [, b]) => a - b);
    return [`medians of ${marks.length} ${visit} visits: ${stages.map(([name, at]) => `${name} ${at.toFixed(0)}`).join(', ')} ms`];
  });
}
