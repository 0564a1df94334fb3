import { Fragment } from "react";
import { keyNames } from "@/keyboard/shortcuts";

/** A shortcut as its keys. */
export function Keys({ keys }: { keys: string }) {
  return (
    <span className="inline-flex items-center gap-1 whitespace-nowrap">
      {keyNames(keys).map((chord, index) => (
        <Fragment key={chord.join("+")}>
          {index > 0 && <span className="text-2xs text-faint">then</span>}
          {chord.map((name) => (
            <kbd key={name}>{name}</kbd>
          ))}
        </Fragment>
      ))}
    </span>
  );
}
