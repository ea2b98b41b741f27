// Compresses what Vite has built, so that the broker sends it as it is. Fails if the first page grows beyond its bound.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const FIRST_LOAD_BYTES_MAX = 150 * 1024;
const app = new URL("../dist/app/", import.meta.url).pathname;

let firstLoad = 0;
const index = readFileSync(join(app, "index.html"), "utf8");
for (const entry of readdirSync(app, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !/\.(html|js|css|svg)$/.test(entry.name)) continue;
  const path = join(entry.parentPath, entry.name);
  const plain = readFileSync(path);
  const brotli = brotliCompressSync(plain, {
    params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: plain.length },
  });
  const gzip = gzipSync(plain, { level: 9 });
  writeFileSync(`${path}.br`, brotli);
  writeFileSync(`${path}.gz`, gzip);
  // The larger of the two forms counts: over plain HTTP to another machine browsers take gzip alone.
  if (entry.name === "index.html" || index.includes(entry.name)) firstLoad += gzip.length;
}
const kib = (firstLoad / 1024).toFixed(1);
if (firstLoad > FIRST_LOAD_BYTES_MAX) {
  console.error(`the first load has ${kib} KiB compressed; at most ${FIRST_LOAD_BYTES_MAX / 1024} KiB are allowed`);
  process.exit(1);
}
console.log(`first load: ${kib} KiB compressed`);
