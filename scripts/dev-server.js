// The development server's part in Vite: serves what scripts/dev.py has put into .cache/dev/ beside web/, and after each
// change of Python or WGSL has it brought up to date, then reloads the pages.
import { spawn } from "node:child_process";
import { createReadStream, statSync } from "node:fs";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const folder = path.join(root, ".cache", "dev");
/** A change of any file below these is followed by an update; the second one are files that tools write. */
const WATCHED = ["py_attn", "shaders"].map((name) => path.join(root, name) + path.sep);
const IGNORED = /__pycache__|[\\/]widget[\\/]static[\\/]|\.(?:tmp|swp)$|~$/u;
/** Editors save several files at once, and one file in several steps. */
const SETTLE_MS = 100;
/** @type {Record<string, string>} */
const TYPES = {
  ".json": "application/json",
  ".mjs": "text/javascript; charset=utf-8",
  ".wasm": "application/wasm",
};

/** @returns {import("vite").Plugin} */
export function devServer() {
  return {
    name: "py-attn-dev-server",
    apply: "serve",
    async configureServer(server) {
      const failure = await update([]);
      if (failure) throw new Error(failure);
      server.middlewares.use(serveFolder);
      server.watcher.add(WATCHED);
      const changed = reloader(server);
      server.watcher.on("all", (_, file) => {
        if (WATCHED.some((watched) => file.startsWith(watched)) && !IGNORED.test(file)) changed(file);
      });
    },
  };
}

/**
 * A function to be called with each changed file: updates once changes have settled, one update at a time.
 * @param {import("vite").ViteDevServer} server
 */
function reloader(server) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let running = false;
  let waiting = false;

  async function run() {
    if (running) {
      waiting = true;
      return;
    }
    running = true;
    do {
      waiting = false;
      const failure = await update(["--again"]);
      if (failure) {
        server.config.logger.error(failure);
        server.ws.send({ type: "error", err: { message: failure, stack: "" } });
      } else if (!waiting) {
        server.ws.send({ type: "full-reload", path: "*" });
      }
    } while (waiting);
    running = false;
  }

  return (/** @type {string} */ file) => {
    server.config.logger.info(`${path.relative(root, file)} changed`, { timestamp: true });
    clearTimeout(timer);
    timer = setTimeout(run, SETTLE_MS);
  };
}

/** Runs scripts/dev.py; resolves with its error message, or ''. @param {string[]} options @returns {Promise<string>} */
function update(options) {
  return new Promise((resolve) => {
    const command = [path.join(root, "scripts", "python.js"), "dev", ...options];
    const child = spawn(process.execPath, command, { cwd: root, stdio: ["ignore", "inherit", "pipe"] });
    let words = "";
    child.stderr.on("data", (data) => (words += data));
    child.on("close", (code) => resolve(code ? words.trim() || "scripts/dev.py failed" : ""));
  });
}

/**
 * Answers with a file of .cache/dev/, where there is one of that name.
 * @param {import("vite").Connect.IncomingMessage} request
 * @param {import("node:http").ServerResponse} response
 * @param {import("vite").Connect.NextFunction} next
 */
function serveFolder(request, response, next) {
  const { pathname } = new URL(request.url ?? "/", "http://localhost");
  const file = path.join(folder, decodeURIComponent(pathname));
  const size = file.startsWith(folder + path.sep) ? sizeOf(file) : undefined;
  if (size === undefined) return next();
  response.writeHead(200, {
    "Content-Type": TYPES[path.extname(file)] ?? "application/octet-stream",
    "Content-Length": size,
    "Cache-Control": "no-cache",
  });
  createReadStream(file).pipe(response);
}

/** @param {string} file @returns {number | undefined} nothing where it is no file */
function sizeOf(file) {
  const found = statSync(file, { throwIfNoEntry: false });
  return found?.isFile() ? found.size : undefined;
}
