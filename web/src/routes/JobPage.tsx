import { Page } from "@/app/Page";
import { EmptyState } from "@/components/EmptyState";

export function JobPage() {
  return (
    <Page>
      <EmptyState icon="jobs" title="Job" />
    </Page>
  );
}
