import { fileURLToPath } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { fakeServer } from "./dev/fakeServer.ts";

const local = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const server = process.env.STOKER_API_URL ?? "http://127.0.0.1:8080";
const fake = process.env.STOKER_FAKE === "1";

// Everything of the API lives beside /dashboard on the same origin; in development the rest is passed on.
const api =
  "^/(jobs|stats|workers|queues|dlq|events|types|schedules|bulk|series|health|ready|openapi.json)(/|\\?|$)";

export default defineConfig({
  base: "/dashboard/",
  plugins: [react(), tailwindcss(), ...(fake ? [fakeServer()] : [])],
  resolve: { alias: { "@": local("./src") } },
  build: {
    outDir: process.env.STOKER_DASHBOARD_OUT ?? local("../src/stoker/dashboard"),
    emptyOutDir: true,
    // `light-dark()` as it is written: without it the tokens would be doubled for browsers of 2023.
    target: ["chrome123", "firefox121", "safari17.5"],
    reportCompressedSize: true,
    // No data: URLs, so that the policy need not allow them.
    assetsInlineLimit: 0,
  },
  server: { proxy: fake ? {} : { [api]: { target: server, changeOrigin: false } } },
  test: {
    environment: "happy-dom",
    include: ["src/**/*.test.{ts,tsx}"],
    restoreMocks: true,
  },
});
