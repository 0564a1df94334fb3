"""The shapes of queries and answers, as the OpenAPI document describes them."""
