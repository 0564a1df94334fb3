import { useState } from "react";
import { copyText } from "@/lib/clipboard";
import { Button } from "./Button";
import { toast } from "./Toast";

/** Copies `text`, and says so. */
export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () =>
    copyText(text).then(
      () => {
        setCopied(true);
        setTimeout(() => setCopied(false), 1500);
      },
      (error: unknown) => toast.error(error),
    );
  return (
    <Button
      tone="ghost"
      size="sm"
      icon={copied ? "check" : "copy"}
      onClick={copy}
      aria-label={copied ? "Copied" : label}
      title={label}
    />
  );
}
