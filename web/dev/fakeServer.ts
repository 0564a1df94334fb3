import type { Plugin } from "vite";

export function fakeServer(): Plugin {
  return { name: "stoker-fake" };
}
