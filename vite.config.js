import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";
import { devServer } from "./scripts/dev-server.js";

const web = fileURLToPath(new URL("./web/", import.meta.url));
const pages = ["index", "bench"].filter((name) => existsSync(`${web}${name}.html`));

/**
 * CodeMirror's styles in a constructed style sheet, as it does in shadow roots: its style element would be against a
 * Content-Security-Policy without 'unsafe-inline'.
 */
const constructedStyles = {
  name: "py-attn-constructed-styles",
  /** @param {string} code @param {string} id */
  transform(code, id) {
    if (!id.includes("/style-mod/")) return;
    const changed = code.replace("!root.head && root.adoptedStyleSheets", "root.adoptedStyleSheets");
    if (changed === code) throw new Error("style-mod no longer asks whether a root is a document");
    return { code: changed, map: null };
  },
};

/** The pages, and py-attn.js: the <py-attn> element for other people's pages, under a name that stays. */
const site = {
  plugins: [constructedStyles],
  worker: { format: "es" },
  build: {
    // scripts/build.py puts what comes out here together with Pyodide, wheels and models into dist/
    outDir: "../.cache/web",
    emptyOutDir: true,
    target: "esnext",
    sourcemap: true,
    license: { fileName: "assets/licenses.md" }, // of what is bundled; see THIRD_PARTY_NOTICES.md
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1000,
    rollupOptions: {
      input: {
        ...Object.fromEntries(pages.map((name) => [name, `${web}${name}.html`])),
        "py-attn": `${web}src/element.js`,
      },
      output: {
        entryFileNames: ({ name }) => (name === "py-attn" ? "py-attn.js" : "assets/[name]-[hash].js"),
      },
    },
  },
};

/**
 * One script of web/src for py_attn/widget/static.
 * @param {string} name @param {boolean} emptyOutDir @param {object} output
 */
const script = (name, emptyOutDir, output) => ({
  publicDir: false,
  build: {
    outDir: "../py_attn/widget/static",
    emptyOutDir,
    target: "esnext",
    modulePreload: { polyfill: false },
    rollupOptions: {
      input: `${web}src/${name}.js`,
      preserveEntrySignatures: "exports-only",
      output: { entryFileNames: `${name}.js`, ...output },
    },
  },
});

/** One file that a notebook loads as text, and its style sheet: `vite build --mode widget`. */
const widget = script("widget", true, { assetFileNames: "widget[extname]" });

/**
 * The bridge for a Python in a notebook that runs in the browser (JupyterLite), beside the widget: one script that
 * defines `bridge`, as what evaluates it (py_attn/gpu/bridge_pyodide.py) cannot wait for an import.
 * `vite build --mode bridge`.
 */
const bridge = script("bridge", false, { format: "iife", name: "bridge" });

/** The development server: `npm run dev`, which is `vite --mode dev`. PORT changes the port, as for `npm start`. */
const dev = {
  plugins: [devServer()],
  server: { host: "127.0.0.1", port: Number(process.env.PORT ?? 8000), strictPort: "PORT" in process.env },
  optimizeDeps: {
    // Workers too, so that no library is first noticed, and the page loaded again for it, while somebody uses the page.
    entries: ["*.html", "src/**/*.js"],
    exclude: ["onnxruntime-web", "@jax-js/jax"], // they find their own files by their address
  },
};

/** The unit tests of web/src: `npx vitest run`. They need no browser. */
const test = { include: ["tests/**/*.test.js"], environment: "node" };

export default defineConfig(({ mode }) => ({
  root: web,
  base: "./", // every address is relative: the site works under any sub-path
  cacheDir: "../.cache/vite",
  clearScreen: false,
  test,
  ...({ widget, bridge, dev }[mode] ?? site),
}));
