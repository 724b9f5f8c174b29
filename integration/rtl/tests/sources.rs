//! The sources: what tools say of them.
