//! The API as it is on the wire, and how its files are written.

mod annotations;
mod certificate_files;
mod comments;
mod openssl;
mod wire;
