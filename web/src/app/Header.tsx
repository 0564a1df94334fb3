import { useRouterState } from "@tanstack/react-router";
import { Icon } from "@/components/Icon";
import { Logo } from "@/components/Logo";
import { keyNames } from "@/keyboard/shortcuts";
import { ConnectionState } from "./ConnectionState";
import { PAGES } from "./pages";

export function Header({ onPalette }: { onPalette: () => void }) {
  const path = useRouterState({ select: (state) => state.location.pathname });
  const page = PAGES.find(({ to }) => (to === "/" ? path === "/" : path.startsWith(to)));
  return (
    <header className="flex h-12 shrink-0 items-center gap-3 border-b border-line bg-panel px-4">
      <span className="md:hidden">
        <Logo />
      </span>
      <h1 className="clip text-base font-semibold">{page?.label ?? "Stoker"}</h1>
      <button
        type="button"
        onClick={onPalette}
        className="ml-auto flex h-[30px] items-center gap-2 rounded-md border border-line-strong bg-panel px-2.5 text-muted hover:bg-hover md:w-56"
      >
        <Icon name="search" size={14} />
        <span className="text-xs max-md:sr-only">Go to or do…</span>
        <kbd aria-hidden="true" className="ml-auto max-md:hidden">
          {keyNames("mod+k").flat().join(" ")}
        </kbd>
      </button>
      <ConnectionState />
    </header>
  );
}
