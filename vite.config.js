import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

const web = fileURLToPath(new URL("./web/", import.meta.url));
const pages = ["index.html", "bench.html"].map((name) => web + name).filter((path) => existsSync(path));

export default defineConfig({
  root: web,
  base: "./", // every address is relative: the site works under any sub-path
  clearScreen: false,
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
    rollupOptions: { input: pages },
  },
});
