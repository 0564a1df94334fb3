import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState, useSyncExternalStore } from "react";
import { getToken, isTokenNeeded, onTokenChange, setToken } from "@/api/token";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";

/** Asks for the server's token when the server refused us without it. */
export function TokenDialog() {
  const needed = useSyncExternalStore(onTokenChange, isTokenNeeded);
  return needed ? <TokenForm /> : null;
}

function TokenForm() {
  const client = useQueryClient();
  const [value, setValue] = useState("");
  const [remember, setRemember] = useState(false);
  const refused = getToken() !== null;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setToken(value.trim(), remember);
    void client.invalidateQueries();
  };
  return (
    <Dialog title="This server needs its token" onClose={() => undefined}>
      <form onSubmit={submit} className="flex flex-col gap-3">
        <p className="text-muted">
          {refused ? "The server did not accept that token. " : ""}
          It is the value of <code className="font-mono text-text">STOKER_TOKEN</code> with which the server
          was started, or one that its operator gave you.
        </p>
        <label className="flex flex-col gap-1">
          <span className="text-xs text-muted">Token</span>
          <input
            className="field font-mono"
            type="password"
            autoComplete="current-password"
            spellCheck={false}
            required
            autoFocus
            value={value}
            onChange={(event) => setValue(event.target.value)}
          />
        </label>
        <label className="flex items-center gap-2">
          <input
            type="checkbox"
            className="accent-accent"
            checked={remember}
            onChange={(event) => setRemember(event.target.checked)}
          />
          Remember it on this computer
        </label>
        <div className="flex justify-end">
          <Button type="submit" tone="primary" disabled={!value.trim()}>
            Continue
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
