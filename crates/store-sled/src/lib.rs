//! The embedded store: sled behind one committer.
