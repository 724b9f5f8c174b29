//! The gRPC services: identity, authorization, limits; and the shell around the controller.

pub mod shell;
