import { Page } from "@/app/Page";
import { EmptyState } from "@/components/EmptyState";

export function AnalyticsPage() {
  return (
    <Page>
      <EmptyState icon="analytics" title="Analytics" />
    </Page>
  );
}
