"""OpenAPI documents for tests: a small shop, whole and broken in one place."""

from collections.abc import Mapping


def operation(**parts: object) -> dict[str, object]:
    return {"responses": {"200": {"description": "ok"}}, **parts}


def document(paths: Mapping[str, object], version: str = "3.0.3", **parts: object) -> dict[str, object]:
    servers = [{"url": "https://{region}.shop.example/v1", "variables": {"region": {"default": "eu"}}}]
    return {"openapi": version, "info": {"title": "Shop", "version": "1"}, "servers": servers, "paths": paths, **parts}


COMPONENTS = {
    "parameters": {"Page": {"name": "page", "in": "query", "schema": {"type": "integer", "minimum": 1}}},
    "schemas": {
        "Order": {
            "type": "object",
            "required": ["id", "item"],
            "properties": {
                "id": {"type": "string", "readOnly": True},
                "item": {"type": "string"},
                "count": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
                "gift": {"type": "string", "nullable": True},
                "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Order"}},
            },
        }
    },
}

SHOP = document(
    {
        "/orders/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            "get": operation(operationId="getOrder", summary="Gets an order", tags=["orders"]),
            "delete": operation(operationId="deleteOrder", description="Deletes an order."),
        },
        "/orders": {
            "get": operation(
                operationId="listOrders",
                summary="Lists orders",
                parameters=[
                    {"$ref": "#/components/parameters/Page"},
                    {"name": "status", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                    {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
                ],
            ),
            "post": operation(
                operationId="createOrder",
                description="Creates an order.",
                requestBody={
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}},
                },
            ),
        },
    },
    components=COMPONENTS,
)
