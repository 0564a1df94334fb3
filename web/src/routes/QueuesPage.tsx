import { Page } from "@/app/Page";
import { EmptyState } from "@/components/EmptyState";

export function QueuesPage() {
  return (
    <Page>
      <EmptyState icon="queues" title="Queues" />
    </Page>
  );
}
