import { Page } from "@/app/Page";
import { EmptyState } from "@/components/EmptyState";

export function JobsPage() {
  return (
    <Page>
      <EmptyState icon="jobs" title="Jobs" />
    </Page>
  );
}
