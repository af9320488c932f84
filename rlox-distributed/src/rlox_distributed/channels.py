"""Names and options of gRPC channels, alike on both sides."""

from __future__ import annotations

__all__ = ["HEADROOM", "PROTOCOL_VERSION", "SERVICE", "channel_options"]

PROTOCOL_VERSION = 3
SERVICE = "rlox.distributed.v1.EnvWorker"
HEADROOM = 1 << 16
"""Bytes of a message beside its arrays."""


def channel_options(largest: int) -> list[tuple[str, int]]:
    """Return gRPC's options: keepalive of 10 s and 5 s, and messages of so many bytes."""
    return [
        ("grpc.max_receive_message_length", largest),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.so_reuseport", 0),
    ]
