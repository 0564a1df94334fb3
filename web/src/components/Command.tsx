import { CopyButton } from "./CopyButton";

/** A command to run in a shell, ready to copy. */
export function Command({ text }: { text: string }) {
  return (
    <div className="inline-flex max-w-full items-center gap-1 rounded-md border border-line bg-sunken py-1 pr-1 pl-3 text-left">
      <code className="wrap-any font-mono text-xs whitespace-pre-wrap">
        <span aria-hidden="true" className="text-faint select-none">
          ${" "}
        </span>
        {text}
      </code>
      <CopyButton text={text} label="Copy the command" />
    </div>
  );
}
