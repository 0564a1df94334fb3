import type { ErrorComponentProps } from "@tanstack/react-router";
import { ErrorNote } from "@/components/ErrorNote";
import { Page } from "./Page";

export function RouteError({ error, reset }: ErrorComponentProps) {
  return (
    <Page>
      <ErrorNote error={error} onRetry={reset} />
    </Page>
  );
}
