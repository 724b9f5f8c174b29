//! Policies and what they decide: the roles of the page, and the matrix of the server.

#[allow(clippy::module_inception, reason = "the inner one is the table of the server's tests")]
mod matrix;
mod roles;
