//! Policies and what they decide: the roles of the page, and the matrix of the server.

mod matrix;
mod roles;
