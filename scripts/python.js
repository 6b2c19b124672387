// Runs `python -m scripts.NAME …`: the project's own .venv where there is one, else (setup makes it) any
// Python 3.11+ of this machine. Only Node's own modules here: on a fresh clone node_modules is empty.
import { spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import path from "node:path";
import process from "node:process";

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const windows = process.platform === "win32";
const venvPython = path.join(root, ".venv", windows ? "Scripts/python.exe" : "bin/python");
const [name, ...options] = process.argv.slice(2);

/** @param {string} line @returns {never} */
function fail(line) {
  console.error(`py-attn: ${line}`);
  process.exit(1);
}

/** @param {string} command */
function isRecentPython(command) {
  const check = "import sys; sys.exit(sys.version_info < (3, 11))";
  return spawnSync(command, ["-c", check], { stdio: "ignore" }).status === 0;
}

function findPython() {
  if (name !== "setup" && existsSync(venvPython)) return venvPython;
  const candidates = ["python3", "python", "python3.14", "python3.13", "python3.12", "python3.11", "py"];
  const given = process.env.PYTHON;
  const found = (given ? [given] : candidates).find(isRecentPython);
  return found ?? fail(`Python 3.11 or newer is needed, ${given ? `PYTHON=${given} is not` : "none was found"}.`);
}

const [major, minor] = process.versions.node.split(".").map(Number);
if (major < 20 || (major === 20 && minor < 19)) {
  fail(`Node 20.19 or newer is needed, this is ${process.versions.node}.`);
}

const child = spawn(findPython(), ["-m", `scripts.${name}`, ...options], { cwd: root, stdio: "inherit" });
// Ctrl-C also reaches the child, which handles it; its exit code is passed on.
process.on("SIGINT", () => {});
process.on("SIGTERM", () => child.kill("SIGTERM"));
child.on("error", (error) => fail(error.message));
child.on("exit", (code, signal) => process.exit(code ?? (signal === "SIGINT" ? 130 : 1)));
