"""The autoscaler: looks at a coordinator over its REST API, decides (`domain.scaling`), and starts and drains workers."""
