//! The gRPC services: identity, authorization, limits.
