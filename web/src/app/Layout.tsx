import { Outlet, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { Toasts } from "@/components/Toast";
import { useShortcuts } from "@/keyboard/shortcuts";
import { Header } from "./Header";
import { Navigation } from "./Navigation";
import { Palette } from "./Palette";
import { PAGES } from "./pages";
import { ShortcutsDialog } from "./ShortcutsDialog";
import { TokenDialog } from "./TokenDialog";
import { useDocumentTitle } from "./useDocumentTitle";

/** The frame of every page: navigation, head, what can be opened from anywhere. */
export function Layout() {
  const navigate = useNavigate();
  const [open, setOpen] = useState<"palette" | "help" | null>(null);
  const close = () => setOpen(null);
  useDocumentTitle();
  useShortcuts("Everywhere", [
    { keys: "mod+k", text: "Go to or do…", run: () => setOpen("palette"), anywhere: true },
    { keys: "?", text: "This help", run: () => setOpen("help") },
    ...PAGES.map(({ to, label, key }) => ({
      keys: `g ${key}`,
      text: `Go to ${label}`,
      run: () => void navigate({ to }),
    })),
  ]);
  return (
    <div className="flex h-dvh max-md:flex-col">
      <a
        href="#page"
        className="sr-only focus:not-sr-only focus:fixed focus:top-2 focus:left-2 focus:z-50 focus:bg-raised focus:p-2"
      >
        To the page
      </a>
      <Navigation onHelp={() => setOpen("help")} />
      <div className="flex min-h-0 min-w-0 flex-1 flex-col">
        <Header onPalette={() => setOpen("palette")} />
        <main id="page" tabIndex={-1} className="min-h-0 flex-1 overflow-auto outline-none">
          <Outlet />
        </main>
      </div>
      {open === "palette" && <Palette onClose={close} onHelp={() => setOpen("help")} />}
      {open === "help" && <ShortcutsDialog onClose={close} />}
      <TokenDialog />
      <Toasts />
    </div>
  );
}
