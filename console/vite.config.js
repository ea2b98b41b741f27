import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// `npm run dev` serves the console by itself; what it asks goes to a broker, by default the one on this machine.
const broker = process.env.POSTROAD_HTTP ?? "http://127.0.0.1:8161";

export default defineConfig({
  base: "/console/",
  plugins: [react()],
  build: {
    outDir: "dist/app",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    // The policy of content allows no data: scripts or styles; images may be small files of their own.
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  server: {
    port: Number(process.env.PORT ?? 5173),
    strictPort: true,
    proxy: { "/api": { target: broker, headers: { host: new URL(broker).host, origin: broker } } },
  },
});
