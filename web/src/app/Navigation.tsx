import { Link } from "@tanstack/react-router";
import { Icon } from "@/components/Icon";
import { Logo } from "@/components/Logo";
import { compact } from "@/lib/format";
import { useLive } from "@/live/live";
import { PAGES } from "./pages";
import { ThemeSwitch } from "./ThemeSwitch";

/** At the side where there is room, at the bottom where there is not. */
export function Navigation({ onHelp }: { onHelp: () => void }) {
  const deadLetters = useLive((state) => state.stats?.deadLetters ?? 0);
  return (
    <nav
      aria-label="Pages"
      className="z-20 flex shrink-0 border-line bg-panel max-md:order-last max-md:border-t md:w-14 md:flex-col md:border-r lg:w-48"
    >
      <div className="flex h-12 items-center gap-2.5 px-4 max-md:hidden md:justify-center lg:justify-start">
        <Logo />
        <span className="text-base font-semibold tracking-tight max-lg:sr-only">Stoker</span>
      </div>
      <ul className="flex min-w-0 flex-1 gap-0.5 max-md:justify-around max-md:px-1 md:flex-col md:px-2 md:py-1">
        {PAGES.map((page) => (
          <li key={page.to} className="min-w-0">
            <Link
              to={page.to}
              activeOptions={{ exact: page.to === "/", includeSearch: false }}
              title={page.label}
              className="group relative flex items-center gap-2.5 rounded-md text-muted hover:bg-hover hover:text-text max-md:h-12 max-md:flex-col max-md:justify-center max-md:gap-0 max-md:px-1.5 max-md:py-1 md:h-8 md:justify-center md:px-2.5 lg:justify-start"
              activeProps={{ className: "bg-hover !text-text font-medium", "aria-current": "page" }}
            >
              <span className="group-aria-[current=page]:text-accent">
                <Icon name={page.icon} />
              </span>
              <span className="clip max-md:max-w-14 max-md:text-[10px] max-md:leading-4 md:max-lg:sr-only">
                {page.label}
              </span>
              {page.to === "/dead-letters" && deadLetters > 0 && (
                <span className="ml-auto rounded-full bg-bad/12 px-1.5 text-2xs font-medium text-bad max-lg:absolute max-lg:top-0 max-lg:right-0">
                  <span className="sr-only">, total </span>
                  {compact(deadLetters)}
                </span>
              )}
            </Link>
          </li>
        ))}
      </ul>
      <div className="flex flex-col gap-1 p-2 max-md:hidden">
        <button
          type="button"
          onClick={onHelp}
          title="Keyboard shortcuts"
          className="flex h-8 items-center gap-2.5 rounded-md px-2.5 text-muted hover:bg-hover hover:text-text md:justify-center lg:justify-start"
        >
          <Icon name="keyboard" />
          <span className="max-lg:sr-only">Shortcuts</span>
          <kbd aria-hidden="true" className="ml-auto max-lg:hidden">
            ?
          </kbd>
        </button>
        <ThemeSwitch />
      </div>
    </nav>
  );
}
