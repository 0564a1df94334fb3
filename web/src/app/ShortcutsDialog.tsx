import { Dialog } from "@/components/Dialog";
import { Keys } from "@/components/Keys";
import { currentShortcuts } from "@/keyboard/shortcuts";

/** What the keys do on this page. */
export function ShortcutsDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose} className="w-[min(92vw,560px)]">
      <div className="grid gap-5 sm:grid-cols-2">
        {currentShortcuts().map((group) => (
          <section key={group.title}>
            <h3 className="mb-1.5 text-xs font-semibold text-muted">{group.title}</h3>
            <dl className="flex flex-col gap-1">
              {group.shortcuts.map((shortcut) => (
                <div key={shortcut.keys} className="flex items-center justify-between gap-3">
                  <dt>{shortcut.text}</dt>
                  <dd>
                    <Keys keys={shortcut.keys} />
                  </dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}
