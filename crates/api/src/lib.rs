//! The gRPC API: code generated from proto/, conversions to domain types and back.
